"""A ledger that was restored from an old copy, brought up to what homes have seen of it: charges are added, none is taken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import RECONCILING, TRANSITIONS, Event, EventKind, ReleaseRecord, State, now
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger.invariants import is_missing
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import LedgerKey
from marginweave.ledger.plans import check_cap
from marginweave.ledger.records import cap_body, release_with
from marginweave.ledger.session import Session
from marginweave.ledger.tables import check_row, event_of
from marginweave.ledger.witness import BlindRun, Row, Sighting, blind_runs, sightings, unseen_charges

_AFTER_THE_DRAWS = frozenset(
    {EventKind.SUBMITTED, EventKind.APPROVED, EventKind.REJECTED, EventKind.PUBLISHED, EventKind.SUPERSEDED}
)


@dataclass(frozen=True, kw_only=True)
class OtherHomes:
    """What a steward states about homes that were not looked at: that there are none, and why, or what they may have drawn."""

    reason: str | None = None
    unaccounted: BasicAmount | None = None

    def __post_init__(self) -> None:
        if (self.reason is None) == (self.unaccounted is None):
            raise InputError("either --no-other-home or --unaccounted says what of other homes, and not both")
        if self.reason is not None and not self.reason.strip():
            raise InputError("--no-other-home must say why there is none: it stays in the ledger")
        if self.unaccounted is not None:
            check_cap(self.unaccounted)

    @property
    def facts(self) -> dict[str, Any]:
        """As (part of) the body of a RECONCILED row."""
        if self.unaccounted is None:
            return {"no_other_home": self.reason}
        return {"unaccounted": cap_body(self.unaccounted.epsilon, self.unaccounted.delta)}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a reconciliation has added, and which accounts are frozen, opened, or charged for other homes."""

    adopted: int
    lost: int
    frozen: tuple[str, ...]
    opened: tuple[str, ...]
    charged: tuple[str, ...]
    runs: int


def reconcile(session: Session, homes: Sequence[Path], others: OtherHomes | None = None, *, actor: str) -> Outcome:
    """Adopt what the runs below `homes` have seen and the ledger lacks; a second time does nothing.

    Signed rows become rows of today at the price that they had. Where there are any, or a run has lost its own, the ledger
    may be an old copy: everything in it that is still RESERVED becomes CHARGED_LOST, for it may have been drawn, and every
    account admits nothing until `others` is given. What `others` charges is charged each time. DP: adds charges only.

    Raises:
        BudgetError: a row that this ledger did not sign, a damaged file, or a row of an account that is not open.
    """
    charging = others is not None and others.unaccounted is not None
    with session.writing() as journal:
        ledger = journal.identity()
        # without a usable file
        blind = [run for home in homes for run in blind_runs(journal, unseen_charges(home, ledger))]
        seen = [sighting for home in homes for sighting in sightings(home, ledger)]
        missing = _missing(journal, [*seen, *(run.sighting for run in blind if run.sighting.path.is_file())])
        view = session.view(journal)
        _check_accounts(missing, view.accounts)
        additions = _Additions(moment=now(), releases=dict(view.releases))
        if missing or blind:
            by_release: defaultdict[str, list[Row]] = defaultdict(list)  # each in the order in which it was
            for row in missing:
                by_release[str(row["release"])].append(row)
            additions.adopt(chain.from_iterable(by_release.values()))
            additions.lose(blind)
            additions.adopt(missing, ends=True)
        everyone = bool(missing or blind or charging)
        concerned = [account for account in view.accounts.values() if everyone or account.frozen]
        for account in concerned if everyone or others is not None else ():
            additions.close(account, others, missing, len(homes), actor)
        journal.append(*additions.rows)
        newest = journal.newest_row()
        # In this transaction: a run that goes on behind it notes rows that are not in `present`.
        heads = {sighting: head for sighting in seen if (head := sighting.head()) is not None}
        present = journal.hashes([head["seq"] for head in heads.values()])
    _settle(ledger, [sighting for sighting, head in heads.items() if is_missing(head, present)], blind, newest)
    datasets = tuple(account.dataset for account in concerned)
    return Outcome(
        adopted=additions.adopted.total(),
        lost=additions.lost.total(),
        frozen=datasets if others is None else (),
        opened=() if others is None else datasets,
        charged=datasets if charging else (),
        runs=len({each.path for each in [*seen, *(run.sighting for run in blind)]}),
    )


@dataclass
class _Additions:
    """The rows that a reconciliation adds, every release as it is with them, and their numbers by account."""

    moment: datetime
    releases: dict[str, ReleaseRecord]
    rows: list[Event] = field(default_factory=list)
    adopted: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def adopt(self, rows: Iterable[Row], *, ends: bool = False) -> None:
        """What was reserved, begun and ended of draws; or, with `ends`, what followed: submitted, decided, published."""
        for row in rows:
            event = event_of(row)
            record = self.releases.get(event.release or "")
            if (event.kind in _AFTER_THE_DRAWS) == ends and _is_missing(record, event):
                self._add(replace(event, created=self.moment, body={**event.body, "adopted": row["row_hash"]}))
                self.adopted[event.account or ""] += 1

    def lose(self, runs: Iterable[BlindRun]) -> None:
        """Everything that is still RESERVED becomes CHARGED_LOST: nobody knows whether it was drawn.

        So does what one of `runs` has drawn, and an old copy of the ledger has given back.
        """
        for record in list(self.releases.values()):
            self._lose(record, [draw.name for draw in record.draws if draw.state == State.RESERVED])
        for run in runs:
            drawn = self.releases.get(run.manifest.release)
            if drawn is not None:
                returned = [draw.name for draw in drawn.draws if draw.state == State.RETURNED]
                self._lose(drawn, [name for name in returned if name in run.forgotten])

    def close(
        self, account: Account, others: OtherHomes | None, missing: Iterable[Row], homes: int, actor: str
    ) -> None:
        """The row that says what was added to an account, and the charge for what nobody has seen."""
        name = account.dataset
        taken = {event.body.get("adopted") for event in self.rows}
        passed = [row["row_hash"] for row in missing if row["account"] == name and row["row_hash"] not in taken]
        if others is not None and others.unaccounted is not None:
            self._charge(account, others.unaccounted)
        body = {
            "adopted": self.adopted[name],
            "lost": self.lost[name],
            "homes": homes,
            "frozen": others is None,
            **({"passed": passed} if passed else {}),
            **({} if others is None else others.facts),
        }
        self._add(Event(kind=EventKind.RECONCILED, actor=actor, created=self.moment, account=name, body=body))

    def _lose(self, record: ReleaseRecord, draws: Iterable[str]) -> None:
        entry = self._event(EventKind.CHARGED_LOST, record.dataset, record.release)
        for draw in draws:
            self._add(replace(entry, draw=draw))
            self.lost[record.dataset] += 1

    def _charge(self, account: Account, unaccounted: BasicAmount) -> None:
        body = {
            **cap_body(unaccounted.epsilon, unaccounted.delta),
            "reconciled": True,
            "run": "unaccounted",
            "plan_digest": "",
            "source": "",
            "unit": account.unit,
            "neighbors": account.neighbors,
            "delta_threshold": 0,
            "spent_epsilon": float(unaccounted.epsilon),
            "draws": [{"name": "unaccounted", "mechanism": "unaccounted", "length": 0, "parameter": None, "terms": {}}],
        }
        release = f"unaccounted-{account.dataset}-{len(self.releases)}"
        draw = replace(self._event(EventKind.RESERVED, account.dataset, release), draw="unaccounted")
        self._add(replace(draw, draw=None, body=body))
        self._add(replace(draw, cost=Cost(plain=unaccounted)))
        self._add(replace(draw, kind=EventKind.CHARGED_LOST))

    def _add(self, entry: Event) -> None:
        self.rows.append(entry)
        record = release_with(self.releases.get(entry.release or ""), entry)
        if record is not None:
            self.releases[record.release] = record

    def _event(self, kind: EventKind, account: str, release: str) -> Event:
        return Event(kind=kind, created=self.moment, account=account, release=release, body={"reconciled": True})


def _missing(journal: Journal, seen: Iterable[Sighting]) -> tuple[Row, ...]:
    """The rows that were seen, and are neither in the ledger nor accounted for in it; each once, oldest first."""
    known: set[str] = set()
    for present in journal.all_rows():
        body = event_of(present).body
        known |= {present["row_hash"], str(body.get("adopted")), *body.get("passed", ())}
    found: dict[str, Row] = {}
    for sighting in seen:
        for row in sighting.rows():
            _check_signed(row, journal.key, sighting)
            if row["row_hash"] not in known and row["kind"] != EventKind.CHECKPOINT:  # adds nothing
                found[row["row_hash"]] = row
    return tuple(sorted(found.values(), key=lambda row: (row["seq"], row["row_hash"])))


def _settle(ledger: str, behind: Iterable[Sighting], blind: Iterable[BlindRun], newest: Row) -> None:
    """Let the files of runs go on from the `newest` row, once the rows that were added are durable.

    Those `behind` end with a row that the ledger has in another form now; what `blind` runs have drawn is adopted, or charged.
    """
    for run in blind:
        run.sighting.restart(ledger, newest)
    for sighting in behind:
        sighting.append(ledger, [newest])


def _check_signed(row: Row, key: LedgerKey, sighting: Sighting) -> None:
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


def _is_missing(record: ReleaseRecord | None, event: Event) -> bool:
    """Whether a signed row still has to be added to a release as it is."""
    if record is None:
        return event.kind == EventKind.RESERVED and event.draw is None
    draw, kind, ended = record.draw(event.draw or ""), event.kind, not record.pending
    moves = draw is not None and (draw.state, kind) in TRANSITIONS | RECONCILING
    undecided = ended and bool(record.proposed) and record.decision is None
    missing = {
        EventKind.RESERVED: draw is None and event.draw in record.planned,
        EventKind.DRAWN: moves,
        EventKind.COMMITTED: moves,
        EventKind.CHARGED_LOST: moves,
        EventKind.LEASED: record.lease != event.lease and not (record.outputs or record.proposed),
        EventKind.EVALUATED_INTERNALLY: True,
        EventKind.SUBMITTED: ended and not record.proposed,
        EventKind.APPROVED: undecided,
        EventKind.REJECTED: undecided,
        EventKind.PUBLISHED: ended and not record.outputs,
        EventKind.SUPERSEDED: record.superseded_by is None,
    }
    return missing.get(kind, False)
