"""Computes the account.json that is published with a release; a pure function of the rows.

A release that is not published counts with all that it had reserved: which draws it returned can follow from its noise, which
is not published. The draws that a published release returned are in its own statement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from marginweave.accounting.accounts import Account, Spent
from marginweave.accounting.records import Event, EventKind, ReleaseRecord, State
from marginweave.base.formats import ACCOUNT_MEANING, CAP_WAS_CHANGED, CAP_WAS_LOWERED
from marginweave.ledger.boxes import account_total
from marginweave.ledger.records import ACCOUNT_ROWS, account_with, release_with
from marginweave.released.account import (
    AccountCost,
    AccountFile,
    Amounts,
    CapStatement,
    EpsilonDelta,
    LargestCap,
    ReconciledStatement,
    RestoredStatement,
)


@dataclass(frozen=True, kw_only=True)
class PublishedAccount:
    """An account at the `moment` when a release of it was published, with its caps since the first draw.

    `is_adopted`: the row of the publication was adopted after the ledger had been restored from an old copy, so that neither
    moment nor sums are those of the publication.
    """

    moment: datetime
    account: Account
    spent: Spent
    caps: tuple[CapStatement, ...]
    is_adopted: bool = False

    @property
    def file(self) -> AccountFile:
        """account.json. DP: what published releases state, and what was fixed before their draws."""
        account = self.account
        total = account_total(account, self.spent)
        epsilon = float(account.epsilon)
        delta = float(account.delta)
        largest_epsilon = max(cap.epsilon for cap in self.caps)
        largest_delta = max(cap.delta for cap in self.caps)
        largest_cap = LargestCap(
            epsilon=largest_epsilon, delta=largest_delta, meaning=CAP_WAS_CHANGED
        )
        was_lowered = (epsilon, delta) != (largest_epsilon, largest_delta)
        was_changed = len(self.caps) > 1
        restored = tuple(map(_published_part, account.reconciled))
        return AccountFile(
            as_of=f"{self.moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            dataset=account.dataset,
            unit=account.unit,
            neighbors=account.neighbors,
            cap=EpsilonDelta(epsilon=epsilon, delta=delta),
            releases=self.spent.releases,
            total=AccountCost(
                epsilon=total.epsilon,
                delta=delta,
                composition=total.composition,
                charged=Amounts(**self.spent.cost.texts),
            ),
            meaning=CAP_WAS_LOWERED if was_lowered else ACCOUNT_MEANING,
            caps_since_the_first_draw=self.caps if was_changed else None,
            largest_cap=largest_cap if was_changed else None,
            weak_delta=account.weak_delta,
            restored=restored or None,
        )


def _published_part(reconciled: ReconciledStatement) -> RestoredStatement:
    """Return the fields of a reconciliation that account.json has."""
    return RestoredStatement(
        **{name: getattr(reconciled, name) for name in RestoredStatement.model_fields}
    )


def published_accounts(events: Iterable[Event]) -> dict[str, PublishedAccount]:
    """Return for each published release its account after the rows up to its newest publication."""
    course = _Course()
    accounts: dict[str, PublishedAccount] = {}
    for event in events:
        if event.account is not None and event.kind in ACCOUNT_ROWS:
            course.take_account(event.account, event)
        elif event.account is not None and event.release is not None:
            course.take_release(event.account, event.release, event)
            if event.kind == EventKind.PUBLISHED:
                account = course.of(event.account, event.created)
                accounts[event.release] = replace(account, is_adopted="adopted" in event.body)
    return accounts


@dataclass
class _Course:
    """Accounts, releases and sums after the rows that were taken."""

    accounts: dict[str, Account] = field(default_factory=dict)
    releases: dict[str, ReleaseRecord] = field(default_factory=dict)
    caps: dict[str, tuple[CapStatement, ...]] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)
    spent: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    # releases as they are in `spent`, and by account those that have had rows since
    _counted: dict[str, ReleaseRecord] = field(default_factory=dict)
    _uncounted: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take_account(self, name: str, event: Event) -> None:
        """Take a row about an account."""
        self.accounts[name] = account_with(self.accounts.get(name), event)
        if event.kind in {EventKind.OPENED, EventKind.CAP_CHANGED}:
            epsilon = float(event.body["epsilon"])
            delta = float(event.body["delta"])
            cap = CapStatement(epsilon=epsilon, delta=delta, since=event.created.isoformat())
            earlier = self.caps[name] if name in self.drawn else ()
            self.caps[name] = (*earlier, cap)

    def take_release(self, name: str, release: str, event: Event) -> None:
        """Take a row about a release of the account `name`."""
        record = release_with(self.releases.get(release), event)
        if record is not None:  # else it was refused
            self.releases[release] = record
            self._uncounted[name].add(release)
        if event.kind == EventKind.DRAWN:
            self.drawn.add(name)

    def of(self, name: str, moment: datetime) -> PublishedAccount:
        """Return the account after the rows that were taken."""
        for release in self._uncounted.pop(name, set()):
            record = _as_published(self.releases[release])
            self.spent[name] = self.spent[name].with_release(record, self._counted.get(release))
            self._counted[release] = record
        return PublishedAccount(
            moment=moment, account=self.accounts[name], spent=self.spent[name], caps=self.caps[name]
        )


def _as_published(record: ReleaseRecord) -> ReleaseRecord:
    """Return a published release, or one that returned all draws, as it is; any other with all of its draws reserved."""
    if record.outputs or all(draw.state == State.RETURNED for draw in record.draws):
        return record
    return replace(
        record, draws=tuple(replace(draw, state=State.RESERVED) for draw in record.draws)
    )
