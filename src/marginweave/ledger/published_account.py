"""What may be told of an account when one of its releases is published; a pure function of the rows.

A release that is not published counts with all that it had reserved: what it gave back can follow from its noise, which nobody
has published. What a published release gave back is in its own statement.
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
    RestoredStatement,
)


@dataclass(frozen=True, kw_only=True)
class PublishedAccount:
    """An account at the `moment` when a release of it was published, with its caps since the first draw.

    `is_adopted`: the row that says so was adopted after the ledger had been restored from an old copy, so that neither moment
    nor sums are those of the publication.
    """

    moment: datetime
    account: Account
    spent: Spent
    caps: tuple[CapStatement, ...]
    is_adopted: bool = False

    @property
    def file(self) -> AccountFile:
        """account.json. DP: what published releases state, and what was fixed before their draws."""
        account, total = self.account, account_total(self.account, self.spent)
        epsilon, delta = float(account.epsilon), float(account.delta)
        largest = max(cap.epsilon for cap in self.caps), max(cap.delta for cap in self.caps)
        changed = len(self.caps) > 1
        told = RestoredStatement.model_fields
        restored = tuple(
            RestoredStatement(**{name: getattr(each, name) for name in told}) for each in account.reconciled
        )
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
            meaning=CAP_WAS_LOWERED if (epsilon, delta) != largest else ACCOUNT_MEANING,
            caps_since_the_first_draw=self.caps if changed else None,
            largest_cap=LargestCap(epsilon=largest[0], delta=largest[1], meaning=CAP_WAS_CHANGED) if changed else None,
            weak_delta=account.weak_delta,
            restored=restored or None,
        )


def published_accounts(events: Iterable[Event]) -> dict[str, PublishedAccount]:
    """By each published release, its account as the rows up to its newest publication leave it."""
    course, found = _Course(), dict[str, PublishedAccount]()
    for event in events:
        if event.account is not None and event.kind in ACCOUNT_ROWS:
            course.take_account(event.account, event)
        elif event.account is not None and event.release is not None:
            course.take_release(event.account, event.release, event)
            if event.kind == EventKind.PUBLISHED:
                account = course.of(event.account, event.created)
                found[event.release] = replace(account, is_adopted="adopted" in event.body)
    return found


@dataclass
class _Course:
    """Accounts, releases and sums as the rows up to now leave them."""

    accounts: dict[str, Account] = field(default_factory=dict)
    releases: dict[str, ReleaseRecord] = field(default_factory=dict)
    caps: dict[str, tuple[CapStatement, ...]] = field(default_factory=dict)
    drawn: set[str] = field(default_factory=set)
    spent: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    # releases as they are in `spent`, and which have had rows since
    _counted: dict[str, ReleaseRecord] = field(default_factory=dict)
    _since: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def take_account(self, name: str, event: Event) -> None:
        """Take a row about an account."""
        self.accounts[name] = account_with(self.accounts.get(name), event)
        if event.kind in {EventKind.OPENED, EventKind.CAP_CHANGED}:
            epsilon, delta = float(event.body["epsilon"]), float(event.body["delta"])
            cap = CapStatement(epsilon=epsilon, delta=delta, since=event.created.isoformat())
            self.caps[name] = (*(self.caps[name] if name in self.drawn else ()), cap)

    def take_release(self, name: str, release: str, event: Event) -> None:
        """Take a row about a release of the account `name`."""
        record = release_with(self.releases.get(release), event)
        if record is not None:  # else it was refused
            self.releases[release] = record
            self._since[name].add(release)
        if event.kind == EventKind.DRAWN:
            self.drawn.add(name)

    def of(self, name: str, moment: datetime) -> PublishedAccount:
        """The account as it is now."""
        for release in self._since.pop(name, set()):
            told = _as_told(self.releases[release])
            self.spent[name] = self.spent[name].with_release(told, self._counted.get(release))
            self._counted[release] = told
        return PublishedAccount(
            moment=moment, account=self.accounts[name], spent=self.spent[name], caps=self.caps[name]
        )


def _as_told(record: ReleaseRecord) -> ReleaseRecord:
    """A published release as it is; any other with all of its draws reserved, or none where it has begun none."""
    if record.outputs or all(draw.state == State.RETURNED for draw in record.draws):
        return record
    return replace(record, draws=tuple(replace(draw, state=State.RESERVED) for draw in record.draws))
