"""Accounts in the ledger: opened, capped, and what was spent of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from marginweave.schemas.budget import BudgetPlan, Plain
from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.accounts import Account, AccountTotal, CapChange
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.policy import Policy
from marginweave.tasks.ledger.admission import account_total, total_with
from marginweave.tasks.ledger.books import account_body, cap_body, policy_body, stated
from marginweave.tasks.ledger.boxes import box_body, box_for, box_of_cap
from marginweave.tasks.ledger.checks import (
    account_in,
    as_stored,
    check_cap,
    check_dataset,
    check_policy,
    check_weak_delta,
    policy_as_stored,
)
from marginweave.tasks.ledger.core import LedgerCore, now
from marginweave.tasks.ledger.location import opening_command
from marginweave.tasks.ledger.openings import opening_for, planned_statement
from marginweave.tasks.ledger.policies import PeriodForecast, period_forecast


class Accounts(LedgerCore):
    """The methods of the ledger on accounts."""

    def open_account(self, account: Account, *, actor: str) -> None:
        """Open `account` with the box of its cap; again with the same facts does nothing.

        Raises:
            BudgetError: it is open with other facts.
            InputError: a name or number that breaks a rule.
        """
        check_dataset(account.dataset)
        account = as_stored(account)
        check_cap(float(account.epsilon), float(account.delta))
        check_weak_delta(account.delta, account.weak_delta)
        check_policy(account.policy, account.epsilon, account.delta)
        account = replace(account, box=box_for(account.cap, account.kind_of_plan))
        with self._writing() as journal:
            present = self._view(journal).accounts.get(account.dataset)
            if present is None:
                body = account_body(account)
                journal.add_account(
                    Event(kind=EventKind.OPENED, actor=actor, created=now(), account=account.dataset, body=body)
                )
            elif account_body(replace(present, box=None)) != account_body(replace(account, box=None)):
                raise BudgetError(
                    f"account {account.dataset} is open with epsilon {present.epsilon:f}, delta {float(present.delta)!r}, "
                    f"unit {present.unit}, neighbors {present.neighbors}{_kind(present)}{_policy(present)}; "
                    "`marginweave ledger cap` changes a cap and the policy of a period, the rest stays"
                )

    def change_cap(
        self,
        dataset: str,
        epsilon: float,
        delta: float,
        reason: str,
        actor: str,
        *,
        policy: Policy | Literal["as it is"] | None = "as it is",
        weak_delta: str | None = None,
    ) -> None:
        """Set the cap of an account to (epsilon, delta), and the policy of its periods; what was spent stays spent.

        Its box becomes that of the new cap by the rule of the present one. A cap that is raised because of noisy results is
        no filter any more: what holds is the largest cap that any outcome would have led to.

        Raises:
            BudgetError: no such account.
            InputError: epsilon, delta, policy or reason break a rule.
        """
        check_cap(float(epsilon), float(delta))
        if not reason.strip():
            raise InputError("reason must say why the cap is changed")
        with self._writing() as journal:
            account = account_in(self._view(journal).accounts, dataset, opening_command(dataset))
            check_weak_delta(delta, weak_delta or account.weak_delta)
            body: dict[str, Any] = {**cap_body(epsilon, delta), "reason": reason}
            if account.box is not None:
                cap = Plain(epsilon=stated(epsilon), delta=stated(delta))
                body["box"] = box_body(box_of_cap(account, cap))
            if weak_delta:
                body["weak_delta"] = weak_delta
            chosen = account.policy if policy == "as it is" else policy and policy_as_stored(policy)
            check_policy(chosen, stated(epsilon), stated(delta))
            if chosen != account.policy:
                body["policy"] = policy_body(chosen)
            journal.append(Event(kind=EventKind.CAP_CHANGED, actor=actor, created=now(), account=dataset, body=body))

    def accounts(self) -> tuple[AccountTotal, ...]:
        """All accounts with what they have spent, in order of opening."""
        view = self._now()
        return tuple(account_total(account, view.spent_of(account.dataset)) for account in view.accounts.values())

    def account_total(self, dataset: str) -> AccountTotal:
        """What one account has spent.

        Raises:
            BudgetError: no such account.
        """
        view = self._now()
        account = account_in(view.accounts, dataset, opening_command(dataset))
        return account_total(account, view.spent_of(dataset))

    def check_account(self, dataset: str, command: str) -> None:
        """Refuse a dataset without an account, with the `command` that opens one.

        Raises:
            BudgetError: no such account.
        """
        account_in(self._now().accounts, dataset, command)

    def cap_changes(self, dataset: str) -> tuple[CapChange, ...]:
        """The caps that an account had since its first draw, oldest first: one where none was changed, none before a draw."""
        changes: list[CapChange] = []
        drawn = False
        for event in self._all_events():
            if event.account != dataset:
                continue
            drawn = drawn or event.kind == EventKind.DRAWN
            if event.kind in {EventKind.OPENED, EventKind.CAP_CHANGED}:
                change = CapChange(
                    epsilon=Decimal(event.body["epsilon"]), delta=Decimal(event.body["delta"]), since=event.created
                )
                changes = [*changes, change] if drawn else [change]
        return tuple(changes) if drawn else ()

    def forecast(self, dataset: str, plan: BudgetPlan) -> tuple[float, bool]:
        """Epsilon of the account with one more release of `plan`, and whether it fits; nothing is booked.

        Raises:
            BudgetError: no such account.
        """
        view = self._now()
        account = account_in(view.accounts, dataset, opening_for(dataset, plan))
        return total_with(account, view.spent_of(dataset), plan.cost, planned_statement(plan))

    def period_forecast(self, dataset: str, plan: BudgetPlan, moment: datetime) -> PeriodForecast | None:
        """What the account's policy says of one more release of `plan` at `moment`; None where there is no policy.

        Raises:
            BudgetError: no such account.
        """
        view = self._now()
        account = account_in(view.accounts, dataset, opening_for(dataset, plan))
        return period_forecast(account, view.releases.values(), plan.cost, planned_statement(plan), moment)


def _kind(account: Account) -> str:
    return "" if account.kind_of_plan is None else ", for releases of another plan"


def _policy(account: Account) -> str:
    return f", {account.policy}" if account.policy else ""
