"""A ledger that was restored from an old copy, brought up to what homes have seen of it: charges are added, none is taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from marginweave.schemas.budget import Plain
from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.accounts import Account
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.schemas.ledger.states import RECONCILING, TRANSITIONS, State
from marginweave.tasks.ledger.books import cap_body, release_of
from marginweave.tasks.ledger.chain import check_row
from marginweave.tasks.ledger.core import LedgerCore, now
from marginweave.tasks.ledger.journal import Journal
from marginweave.tasks.ledger.keyring import Keyring
from marginweave.tasks.ledger.moves import LEDGER_ACTOR
from marginweave.tasks.ledger.other_homes import OtherHomes, unaccounted_cost
from marginweave.tasks.ledger.tables import event_of
from marginweave.tasks.ledger.witness import BlindRun, Row, Sighting, blind_runs, sightings

_DRAWING = frozenset({EventKind.DRAWN, EventKind.COMMITTED, EventKind.CHARGED_LOST})
_AFTER_THE_DRAWS = (
    EventKind.SUBMITTED,
    EventKind.APPROVED,
    EventKind.REJECTED,
    EventKind.PUBLISHED,
    EventKind.SUPERSEDED,
)
_PENDING = frozenset({State.RESERVED, State.DRAWN})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a reconciliation has added, and the accounts that admit nothing after it, again, or are charged for other homes."""

    adopted: int
    lost: int
    frozen: tuple[str, ...]
    opened: tuple[str, ...]
    charged: tuple[str, ...]
    runs: int


class Reconciliation(LedgerCore):
    """The method of the ledger that adds what homes have seen of it."""

    def reconcile(self, homes: Sequence[Path], others: OtherHomes | None = None, *, actor: str) -> Outcome:
        """Adopt what the runs below `homes` have seen and the ledger lacks; again it does nothing.

        Signed rows become rows of today at the price that they had. Where there are any, or a run has lost its own, the ledger
        may be an old copy: everything in it that is still RESERVED becomes CHARGED_LOST, for it may have been drawn, and every
        account admits nothing until `others` is said. What `others` charges, it charges whenever it is said. DP: adds charges
        only.

        Raises:
            BudgetError: a row that this ledger did not sign, a damaged file, or a row of an account that is not open.
        """
        with self._writing() as journal:
            identity = journal.identity()
            blind = [run for home in homes for run in blind_runs(journal, home)]
            blinded = [run.sighting for run in blind if run.sighting.path.is_file()]
            seen = [sighting for home in homes for sighting in sightings(home, identity)]
            missing = _missing(journal, [*seen, *blinded], self._key)
            view = self._view(journal)
            work = _Work(moment=now(), releases={name: list(own) for name, own in view.events.items()})
            if missing:
                _check_accounts(missing, view.accounts)
                work.adopt(missing)
            if missing or blind:
                work.lose_reserved()
                work.lose_forgotten(blind)
                work.adopt_ends(missing)
            charging = others is not None and others.unaccounted is not None
            everyone = bool(missing or blind or charging)
            concerned = [account for account in view.accounts.values() if everyone or account.frozen]
            for account in concerned if everyone or others is not None else ():
                work.close(account, others, missing, len(homes), actor)
            if work.rows:
                journal.append_all(work.rows)
            newest = journal.newest_row()
            present = journal.hashes([head["seq"] for each in seen if (head := each.head())])
        for run in blind:  # its rows are adopted, or charged as lost: it begins to see again
            if run.release is None or run.release.program is not None:
                run.sighting.begin_again(identity, newest)
        for sighting in seen:  # after the rows are durable: what was seen is accounted for
            head = sighting.head()
            if head is not None and present.get(head["seq"]) != head["row_hash"]:
                sighting.append(identity, [newest])
        datasets = tuple(account.dataset for account in concerned)
        return Outcome(
            adopted=work.adopted,
            lost=work.lost,
            frozen=datasets if others is None else (),
            opened=() if others is None else datasets,
            charged=datasets if charging else (),
            runs=len({sighting.path for sighting in seen} | {run.sighting.path for run in blind}),
        )


@dataclass
class _Work:
    """The rows that a reconciliation adds, and every release as it stands with them."""

    moment: datetime
    releases: dict[str, list[Event]]
    rows: list[Event] = field(default_factory=list)
    adopted_by: dict[str, int] = field(default_factory=dict)
    lost_by: dict[str, int] = field(default_factory=dict)

    @property
    def adopted(self) -> int:
        return sum(self.adopted_by.values())

    @property
    def lost(self) -> int:
        return sum(self.lost_by.values())

    def adopt(self, missing: Iterable[Row]) -> None:
        """What was reserved, begun and ended of draws, release by release, each in the order in which it was."""
        new: set[str] = set()
        begun: dict[str, int] = {}
        for row in missing:
            begun.setdefault(str(row["release"]), row["seq"])
        for row in sorted(missing, key=lambda row: (begun[str(row["release"])], str(row["release"]), row["seq"])):
            event = event_of(row)
            record, release = self._record(event.release), event.release or ""
            if event.kind == EventKind.RESERVED and event.draw is None and record is None:
                new.add(release)
                self._take(row, event)
            elif (event.kind == EventKind.RESERVED and event.draw is not None and release in new) or (
                record is not None and _goes_on(record, event)
            ):
                self._take(row, event)

    def adopt_ends(self, missing: Iterable[Row]) -> None:
        """What followed from draws that are all settled: submitted, decided, published."""
        for row in missing:
            event = event_of(row)
            record = self._record(event.release)
            if event.kind in _AFTER_THE_DRAWS and record is not None and _may_end(record, event):
                self._take(row, event)

    def lose_reserved(self) -> None:
        """Everything that is still RESERVED becomes CHARGED_LOST: nobody knows whether it was drawn."""
        for release in list(self.releases):
            record = self._record(release)
            for draw in record.draws if record else ():
                if record is not None and draw.state == State.RESERVED:
                    self._lose(record, draw.name)

    def lose_forgotten(self, runs: Iterable[BlindRun]) -> None:
        """What a run has drawn, and an old copy of the ledger has given back."""
        for run in runs:
            record = self._record(run.manifest.release)
            for draw in record.draws if record else ():
                if record is not None and draw.name in run.forgotten and draw.state == State.RETURNED:
                    self._lose(record, draw.name)

    def _lose(self, record: ReleaseRecord, draw: str) -> None:
        entry = self._event(EventKind.CHARGED_LOST, record.dataset, {"reconciled": True}, release=record.release)
        self._add(replace(entry, draw=draw))
        self.lost_by[record.dataset] = self.lost_by.get(record.dataset, 0) + 1

    def close(
        self, account: Account, others: OtherHomes | None, missing: Sequence[Row], homes: int, actor: str
    ) -> None:
        """The row that says what was added to an account, and the charge for what nobody has seen."""
        name = account.dataset
        taken = {event.body.get("adopted") for event in self.rows}
        passed = [row["row_hash"] for row in missing if row["account"] == name and row["row_hash"] not in taken]
        if others is not None and others.unaccounted is not None:
            self._charge(account, others.unaccounted, len(self.releases))
        body = {
            "adopted": self.adopted_by.get(name, 0),
            "lost": self.lost_by.get(name, 0),
            "homes": homes,
            "frozen": others is None,
            **({"passed": passed} if passed else {}),
            **({} if others is None else others.facts),
        }
        self.rows.append(replace(self._event(EventKind.RECONCILED, name, body), actor=actor))

    def _charge(self, account: Account, unaccounted: Plain, number: int) -> None:
        release = f"unaccounted-{account.dataset}-{number}"
        body = {
            **cap_body(unaccounted.epsilon, unaccounted.delta),
            "reconciled": True,
            "run": "unaccounted",
            "plan_digest": "",
            "source_digest": "",
            "unit": account.unit,
            "neighbors": account.neighbors,
            "accountant": "unaccounted",
            "draws": [{"name": "unaccounted", "mechanism": "unaccounted", "length": 0, "parameter": None}],
        }
        first = self._event(EventKind.RESERVED, account.dataset, body, release=release)
        draw = replace(first, draw="unaccounted", cost=unaccounted_cost(unaccounted), body={"reconciled": True})
        for entry in (first, draw, replace(draw, kind=EventKind.CHARGED_LOST, cost=None)):
            self._add(entry)

    def _take(self, row: Row, event: Event) -> None:
        self._add(replace(event, created=self.moment, body={**event.body, "adopted": row["row_hash"]}))
        self.adopted_by[event.account or ""] = self.adopted_by.get(event.account or "", 0) + 1

    def _add(self, entry: Event) -> None:
        self.rows.append(entry)
        self.releases.setdefault(entry.release or "", []).append(entry)

    def _record(self, release: str | None) -> ReleaseRecord | None:
        return release_of(self.releases.get(release or "", []))

    def _event(self, kind: EventKind, account: str, body: dict[str, Any], release: str | None = None) -> Event:
        return Event(kind=kind, actor=LEDGER_ACTOR, created=self.moment, account=account, release=release, body=body)


def _missing(journal: Journal, seen: Sequence[Sighting], key: Keyring) -> list[Row]:
    """The rows that were seen, and are neither in the ledger nor accounted for in it; each once, oldest first."""
    known: set[str] = set()
    for present in journal.all_rows():
        body = event_of(present).body
        known |= {present["row_hash"], str(body.get("adopted")), *body.get("passed", ())}
    found: dict[str, Row] = {}
    for sighting in seen:
        for row in sighting.rows():
            _check_signed(row, key, sighting)
            if row["row_hash"] not in known:
                found[row["row_hash"]] = row
    return sorted(found.values(), key=lambda row: (row["seq"], row["row_hash"]))


def _check_signed(row: Row, key: Keyring, sighting: Sighting) -> None:
    try:
        check_row(row, key)
        event_of(row)
    except (BudgetError, KeyError, ValueError, TypeError, AttributeError, ArithmeticError):
        raise BudgetError(
            f"{sighting.path}: row {row['seq']} was not signed by this ledger; nothing was reconciled. Restore the file, or, "
            "if somebody has forged it, remove it and name this home among those that cannot be looked at"
        ) from None


def _check_accounts(missing: Iterable[Row], accounts: Iterable[str]) -> None:
    unknown = sorted({str(row["account"]) for row in missing} - set(accounts))
    if unknown:
        raise BudgetError(
            f"account {unknown[0]} was opened after the copy was made that this ledger was restored from: open it again with "
            "the same numbers (marginweave ledger open), then reconcile"
        )


def _goes_on(record: ReleaseRecord, event: Event) -> bool:
    """Whether a signed row about draws, or an attempt, still has to be added to a release as it stands."""
    if event.kind == EventKind.EVALUATED_INTERNALLY:
        return True
    if event.kind == EventKind.LEASED:
        return record.lease != event.lease and not (record.outputs or record.proposed)
    draw = record.draw(event.draw or "")
    if event.kind not in _DRAWING or draw is None:
        return False
    return (draw.state, State(event.kind.value)) in (TRANSITIONS | RECONCILING)


def _may_end(record: ReleaseRecord, event: Event) -> bool:
    if event.kind == EventKind.SUPERSEDED:
        return record.superseded_by is None
    if any(draw.state in _PENDING for draw in record.draws):
        return False
    if event.kind == EventKind.SUBMITTED:
        return not record.proposed
    if event.kind == EventKind.PUBLISHED:
        return not record.outputs
    return bool(record.proposed) and record.decision is None
