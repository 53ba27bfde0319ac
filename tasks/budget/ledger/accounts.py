"""Accounts in the ledger: opened, capped, and what was spent of them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger import Account, AccountTotal, Event, EventKind
from marginweave.schemas.policy import Policy
from marginweave.tasks.budget.ledger.admission import account_total, total_with
from marginweave.tasks.budget.ledger.books import account_body, cap_body, policy_body, stated
from marginweave.tasks.budget.ledger.checks import (
    account_in,
    as_stored,
    check_cap,
    check_dataset,
    check_policy,
    check_purse,
    policy_as_stored,
)
from marginweave.tasks.budget.ledger.core import LedgerCore, now
from marginweave.tasks.budget.ledger.location import opening_command
from marginweave.tasks.budget.ledger.openings import opening_for, planned_statement
from marginweave.tasks.budget.ledger.policies import PeriodForecast, period_forecast


class Accounts(LedgerCore):
    """The methods of the ledger on accounts."""

    def open_account(self, account: Account, *, actor: str) -> None:
        """Open `account`; again with the same facts does nothing.

        Raises:
            BudgetError: it is open with other facts.
            InputError: a name or number that breaks a rule.
        """
        check_dataset(account.dataset)
        account = as_stored(account)
        check_cap(float(account.epsilon), float(account.delta))
        check_purse(account.purse, account.epsilon, account.delta)
        check_policy(account.policy, account.epsilon, account.delta)
        with self._writing() as journal:
            present = self._view(journal).accounts.get(account.dataset)
            if present is None:
                body = account_body(account)
                journal.add_account(
                    Event(kind=EventKind.OPENED, actor=actor, created=now(), account=account.dataset, body=body)
                )
            elif account_body(present) != account_body(account):
                raise BudgetError(
                    f"account {account.dataset} is open with epsilon {present.epsilon:f}, delta {float(present.delta)!r}, "
                    f"unit {present.unit}, neighbors {present.neighbors}{_purse(present)}{_policy(present)}; "
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
    ) -> None:
        """Set the cap of an account to (epsilon, delta), and the policy of its periods; what was spent stays spent.

        Raises:
            BudgetError: no such account.
            InputError: epsilon, delta, policy or reason break a rule.
        """
        check_cap(float(epsilon), float(delta))
        if not reason.strip():
            raise InputError("reason must say why the cap is changed")
        with self._writing() as journal:
            account = account_in(self._view(journal).accounts, dataset, opening_command(dataset))
            body = {**cap_body(epsilon, delta), "reason": reason}
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


def _purse(account: Account) -> str:
    purse = account.purse
    return f", a purse of epsilon {purse.epsilon:f} and delta {float(purse.delta)!r}" if purse else ", no purse"


def _policy(account: Account) -> str:
    return f", {account.policy}" if account.policy else ""
