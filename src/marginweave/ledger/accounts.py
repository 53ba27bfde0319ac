"""Opens accounts in the ledger, changes their caps, and sums up what was spent."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from marginweave.accounting.accounts import Account, AccountTotal, Policy, Spent
from marginweave.accounting.charges import ChargedPlan
from marginweave.accounting.records import Event, EventKind
from marginweave.base.budget import MOST_DELTA, BasicAmount, stated
from marginweave.base.errors import BudgetError, InputError
from marginweave.configuration.values import check_name
from marginweave.ledger.boxes import account_total, box_for, box_of_cap, total_with
from marginweave.ledger.location import opening_command, opening_for
from marginweave.ledger.plans import check_cap
from marginweave.ledger.published_account import published_accounts
from marginweave.ledger.records import account_body, box_body, cap_body, policy_body
from marginweave.ledger.rules import PeriodForecast, period_forecast, policy_fault
from marginweave.ledger.session import Session
from marginweave.released.account import AccountFile


@dataclass(frozen=True)
class Accounts:
    """The accounts of a ledger."""

    session: Session

    def open(self, account: Account, *, actor: str) -> None:
        """Open `account` with the box of its cap; does nothing if it is open with the same facts.

        Raises:
            BudgetError: it is open with other facts.
            InputError: a name or number that breaks a rule.
        """
        account = _checked(account)
        with self.session.writing() as journal:
            present = self.session.sums(journal).accounts.get(account.dataset)
            if present is None:
                body = account_body(account)
                journal.add_account(
                    Event(kind=EventKind.OPENED, actor=actor, account=account.dataset, body=body)
                )
            elif account_body(present) != account_body(replace(account, box=present.box)):
                raise BudgetError(
                    f"account {account.dataset} is open with {_facts(present)}; `marginweave ledger cap` changes a cap and the "
                    "policy of a period, the rest stays"
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

        Its box becomes that of the new cap by the rule of the present one (`box_of_cap`). A cap that is raised because of noisy
        results is not a filter: the guarantee is then that of the largest cap that any outcome would have led to.

        Raises:
            BudgetError: no such account.
            InputError: epsilon, delta, policy or reason break a rule.
        """
        cap = BasicAmount.as_stated(epsilon, delta)
        check_cap(cap)
        if not reason.strip():
            raise InputError("reason must say why the cap is changed")
        with self.session.writing() as journal:
            account = account_in(self.session.sums(journal).accounts, dataset)
            chosen = account.policy if policy == "as it is" else policy and _as_stored(policy)
            _check(cap, weak_delta or account.weak_delta, chosen)
            body: dict[str, Any] = {**cap_body(epsilon, delta), "reason": reason}
            body["box"] = box_body(box_of_cap(account, cap))
            if weak_delta:
                body["weak_delta"] = weak_delta
            if chosen != account.policy:
                body["policy"] = policy_body(chosen)
            journal.append(
                Event(kind=EventKind.CAP_CHANGED, actor=actor, account=dataset, body=body)
            )

    def totals(self) -> tuple[AccountTotal, ...]:
        """Return the totals of all accounts, in order of opening."""
        sums = self.session.sums()
        totals = [
            account_total(account, sums.spent_of(dataset))
            for dataset, account in sums.accounts.items()
        ]
        return tuple(totals)

    def total(self, dataset: str) -> AccountTotal:
        """Return the total of one account.

        Raises:
            BudgetError: no such account.
        """
        sums = self.session.sums()
        return account_total(account_in(sums.accounts, dataset), sums.spent_of(dataset))

    def as_published(self, release: str) -> AccountFile:
        """Return account.json of a published release, from the rows up to its publication: the same at every call."""
        return published_accounts(self.session.events())[release].file

    def check(self, dataset: str, command: str) -> None:
        """Refuse a dataset without an account, with the `command` that opens one.

        Raises:
            BudgetError: no such account.
        """
        account_in(self.session.sums().accounts, dataset, command)

    def period_spent(self, dataset: str, moment: datetime) -> Spent:
        """Return what was spent in the period of the account's policy that `moment` is in; nothing without a policy.

        Raises:
            BudgetError: no such account.
        """
        with self.session.reading() as journal:
            sums = self.session.sums(journal)
            return sums.period_spent(account_in(sums.accounts, dataset), moment, journal)

    def forecast(self, dataset: str, plan: ChargedPlan) -> tuple[float, bool]:
        """Return epsilon of the account with one more release of `plan`, and whether it fits; nothing is charged.

        Raises:
            BudgetError: no such account.
        """
        sums = self.session.sums()
        account = account_in(sums.accounts, dataset, opening_for(dataset, plan))
        return total_with(account, sums.spent_of(dataset), plan.cost, plan.statement)

    def period_forecast(
        self, dataset: str, plan: ChargedPlan, moment: datetime
    ) -> PeriodForecast | None:
        """Return the forecast of the account's policy for one more release of `plan` at `moment`; None without a policy.

        Raises:
            BudgetError: no such account.
        """
        with self.session.reading() as journal:
            sums = self.session.sums(journal)
            account = account_in(sums.accounts, dataset, opening_for(dataset, plan))
            return period_forecast(
                account, sums.period_spent(account, moment, journal), plan, moment
            )


def account_in(
    accounts: Mapping[str, Account], dataset: str, command: str | None = None
) -> Account:
    """Return the account of `dataset`.

    Raises:
        BudgetError: there is none; the message names the open account with nearly this name, and ends with the `command`
            that opens it.
    """
    if dataset not in accounts:
        close = difflib.get_close_matches(dataset, accounts, n=1)
        meant = f"did you mean {close[0]}? If not, open it" if close else "open it"
        raise BudgetError(
            f"the ledger has no account {dataset}; {meant}: {command or opening_command(dataset)}"
        )
    return accounts[dataset]


def _checked(account: Account) -> Account:
    """Return `account` with the amounts that its row will hold and the box of its cap, so that what is stored was checked.

    Raises:
        InputError: a name or number that breaks a rule, such as an amount too small for a double, which would be stored as 0.
    """
    try:
        check_name(account.dataset)
    except ValueError as error:
        raise InputError(f"dataset ({account.dataset!r}) {error}") from None
    for name, value in (("epsilon", account.epsilon), ("delta", account.delta)):
        if value and not stated(value):
            raise InputError(f"{name} ({value}) is too small: it would be stored as 0")
    cap = BasicAmount.as_stated(account.epsilon, account.delta)
    policy = account.policy and _as_stored(account.policy)
    _check(cap, account.weak_delta, policy)
    box = box_for(cap, account.kind_of_plan)
    return replace(account, epsilon=cap.epsilon, delta=cap.delta, policy=policy, box=box)


def _as_stored(policy: Policy) -> Policy:
    """Return `policy` with the amounts that its row will hold."""
    return replace(policy, epsilon=stated(policy.epsilon), delta=stated(policy.delta))


def _check(cap: BasicAmount, weak_delta: str | None, policy: Policy | None) -> None:
    """Refuse an invalid cap, one whose delta is above .001 without a reason, and a policy that does not fit the cap."""
    check_cap(cap)
    if cap.delta > MOST_DELTA and not (weak_delta or "").strip():
        raise InputError(
            f"delta ({float(cap.delta):g}) is above {MOST_DELTA}: with that probability all may be disclosed; choose one far "
            "below 1 / (number of people), or say why not with --weak-delta REASON"
        )
    fault = policy_fault(policy, cap)
    if fault is not None:
        raise InputError(fault)


def _facts(account: Account) -> str:
    """Return the facts of an open account as words for a refusal."""
    kind = "" if account.kind_of_plan is None else ", for releases of another plan"
    policy = f", {account.policy}" if account.policy else ""
    return (
        f"epsilon {account.epsilon:f}, delta {float(account.delta)!r}, unit {account.unit}, neighbors {account.neighbors}"
        f"{kind}{policy}"
    )
