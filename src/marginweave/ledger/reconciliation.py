"""Reconciles a ledger that was restored from an old copy with the rows that homes have seen: it only adds charges."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import (
    RECONCILING,
    TRANSITIONS,
    Event,
    EventKind,
    ReleaseRecord,
    State,
    now,
)
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger.invariants import lacks_row
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import LedgerKey
from marginweave.ledger.plans import check_cap
from marginweave.ledger.records import cap_body, release_with
from marginweave.ledger.session import Session
from marginweave.ledger.tables import check_row, event_of
from marginweave.ledger.witness import (
    BlindRun,
    Row,
    Sighting,
    blind_runs,
    sightings,
    unseen_charges,
)

_AFTER_THE_DRAWS = frozenset(
    {
        EventKind.SUBMITTED,
        EventKind.APPROVED,
        EventKind.REJECTED,
        EventKind.PUBLISHED,
        EventKind.SUPERSEDED,
    }
)


@dataclass(frozen=True, kw_only=True)
class OtherHomes:
    """The statement of a steward about other homes: the reason why there are none, or what they may have drawn."""

    reason: str | None = None
    unaccounted: BasicAmount | None = None

    def __post_init__(self) -> None:
        if (self.reason is None) == (self.unaccounted is None):
            raise InputError(
                "either --no-other-home or --unaccounted says what other homes may have released, and not both"
            )
        if self.reason is not None and not self.reason.strip():
            raise InputError("--no-other-home must say why there is none: it stays in the ledger")
        if self.unaccounted is not None:
            check_cap(self.unaccounted)

    @property
    def facts(self) -> dict[str, Any]:
        """Part of the body of a RECONCILED row."""
        if self.unaccounted is None:
            return {"no_other_home": self.reason}
        return {"unaccounted": cap_body(self.unaccounted.epsilon, self.unaccounted.delta)}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a reconciliation: numbers of added rows and runs, and the accounts frozen, opened or charged."""

    adopted: int
    lost: int
    frozen: tuple[str, ...]
    opened: tuple[str, ...]
    charged: tuple[str, ...]
    runs: int


def reconcile(
    session: Session, homes: Sequence[Path], other_homes: OtherHomes | None = None, *, actor: str
) -> Outcome:
    """Add the rows that the runs below `homes` have seen and the ledger lacks; a second time adds nothing.

    Signed rows become rows of today, at the price that they had. If there are any, or a run has lost its file, the ledger may
    be an old copy: every draw that is still RESERVED becomes CHARGED_LOST, as it may have been drawn, and no account admits a
    release until `other_homes` is stated. The charge in `other_homes` is added at every call. DP: adds charges only.

    Raises:
        BudgetError: a row that this ledger did not sign, a damaged file, or a row of an account that is not open.
    """
    charging = other_homes is not None and other_homes.unaccounted is not None
    with session.writing() as journal:
        ledger = journal.identity()
        blind: list[BlindRun] = []  # runs without a usable file
        seen: list[Sighting] = []
        for home in homes:
            blind += blind_runs(journal, unseen_charges(home, ledger))
        for home in homes:
            seen += sightings(home, ledger)
        blind_files = [run.sighting for run in blind if run.sighting.path.is_file()]
        missing = _missing_rows(journal, [*seen, *blind_files])
        view = session.view(journal)
        _check_accounts(missing, view.accounts)
        additions = _Additions(moment=now(), releases=dict(view.releases))
        if missing or blind:
            additions.catch_up(missing, blind)
        everyone = bool(missing or blind or charging)
        concerned = [account for account in view.accounts.values() if everyone or account.frozen]
        for account in concerned if everyone or other_homes is not None else ():
            additions.add_reconciled_row(account, other_homes, missing, len(homes), actor)
        journal.append(*additions.rows)
        newest = journal.newest_row()
        # In this transaction: a run that continues after it notes rows that are not in `present`.
        heads = _heads(seen)
        present = journal.hashes([head["seq"] for head in heads.values()])
    behind = [sighting for sighting, head in heads.items() if lacks_row(present, head)]
    _note_newest(ledger, behind, blind, newest)
    datasets = tuple(account.dataset for account in concerned)
    paths = {sighting.path for sighting in seen} | {run.sighting.path for run in blind}
    return Outcome(
        adopted=additions.adopted.total(),
        lost=additions.lost.total(),
        frozen=datasets if other_homes is None else (),
        opened=() if other_homes is None else datasets,
        charged=datasets if charging else (),
        runs=len(paths),
    )


def _heads(seen: Iterable[Sighting]) -> dict[Sighting, Row]:
    """Return the newest row in each file that has one."""
    heads = {}
    for sighting in seen:
        head = sighting.head()
        if head is not None:
            heads[sighting] = head
    return heads


@dataclass
class _Additions:
    """The rows that a reconciliation adds, every release with them, and the numbers of rows by account."""

    moment: datetime
    releases: dict[str, ReleaseRecord]
    rows: list[Event] = field(default_factory=list)
    adopted: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def catch_up(self, missing: Sequence[Row], blind: Iterable[BlindRun]) -> None:
        """Add the missing rows of draws, release by release, then lost draws, then the rows that follow the draws."""
        by_release: defaultdict[str, list[Row]] = defaultdict(list)  # oldest first
        for row in missing:
            by_release[str(row["release"])].append(row)
        self.adopt(chain.from_iterable(by_release.values()))
        self.charge_as_lost(blind)
        self.adopt(missing, ends=True)

    def adopt(self, rows: Iterable[Row], *, ends: bool = False) -> None:
        """Add the missing rows of draws; or, with `ends`, those that follow the draws: submitted, decided, published."""
        for row in rows:
            event = event_of(row)
            record = self.releases.get(event.release or "")
            if (event.kind in _AFTER_THE_DRAWS) == ends and _is_missing(record, event):
                body = {**event.body, "adopted": row["row_hash"]}
                self._add(replace(event, created=self.moment, body=body))
                self.adopted[event.account or ""] += 1

    def charge_as_lost(self, runs: Iterable[BlindRun]) -> None:
        """Bring every RESERVED draw to CHARGED_LOST: nobody knows whether it was drawn.

        So are the draws that one of `runs` has made, and that an old copy of the ledger has returned.
        """
        for record in list(self.releases.values()):
            reserved = [draw.name for draw in record.draws if draw.state == State.RESERVED]
            self._lose(record, reserved)
        for run in runs:
            record = self.releases.get(run.manifest.release)
            if record is not None:
                returned = [draw.name for draw in record.draws if draw.state == State.RETURNED]
                forgotten = [name for name in returned if name in run.forgotten]
                self._lose(record, forgotten)

    def add_reconciled_row(
        self,
        account: Account,
        other_homes: OtherHomes | None,
        missing: Iterable[Row],
        homes: int,
        actor: str,
    ) -> None:
        """Add the row that says what was added to an account, after the charge for homes that are lost."""
        name = account.dataset
        adopted = {event.body.get("adopted") for event in self.rows}
        account_hashes = [row["row_hash"] for row in missing if row["account"] == name]
        passed = [row_hash for row_hash in account_hashes if row_hash not in adopted]
        if other_homes is not None and other_homes.unaccounted is not None:
            self._charge(account, other_homes.unaccounted)
        body: dict[str, Any] = {
            "adopted": self.adopted[name],
            "lost": self.lost[name],
            "homes": homes,
            "frozen": other_homes is None,
        }
        if passed:
            body["passed"] = passed
        if other_homes is not None:
            body |= other_homes.facts
        row = Event(
            kind=EventKind.RECONCILED, actor=actor, created=self.moment, account=name, body=body
        )
        self._add(row)

    def _lose(self, record: ReleaseRecord, draws: Iterable[str]) -> None:
        """Bring these draws of a release to CHARGED_LOST."""
        entry = self._event(EventKind.CHARGED_LOST, record.dataset, record.release)
        for draw in draws:
            self._add(replace(entry, draw=draw))
            self.lost[record.dataset] += 1

    def _charge(self, account: Account, unaccounted: BasicAmount) -> None:
        """Add a release of one lost draw, which charges the account what other homes may have drawn."""
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
            "draws": [
                {
                    "name": "unaccounted",
                    "mechanism": "unaccounted",
                    "length": 0,
                    "parameter": None,
                    "terms": {},
                }
            ],
        }
        release = f"unaccounted-{account.dataset}-{len(self.releases)}"
        draw = replace(
            self._event(EventKind.RESERVED, account.dataset, release), draw="unaccounted"
        )
        self._add(replace(draw, draw=None, body=body))
        self._add(replace(draw, cost=Cost(plain=unaccounted)))
        self._add(replace(draw, kind=EventKind.CHARGED_LOST))

    def _add(self, entry: Event) -> None:
        """Add a row, and bring its release up to date."""
        self.rows.append(entry)
        record = release_with(self.releases.get(entry.release or ""), entry)
        if record is not None:
            self.releases[record.release] = record

    def _event(self, kind: EventKind, account: str, release: str) -> Event:
        """Return a row of this reconciliation about a release."""
        return Event(
            kind=kind,
            created=self.moment,
            account=account,
            release=release,
            body={"reconciled": True},
        )


def _missing_rows(journal: Journal, seen: Iterable[Sighting]) -> tuple[Row, ...]:
    """Return the rows that were seen, and that the ledger does not have, or adopted or passed; each once, oldest first."""
    hashes: set[str] = set()
    for ledger_row in journal.all_rows():
        body = event_of(ledger_row).body
        hashes |= {ledger_row["row_hash"], str(body.get("adopted")), *body.get("passed", ())}
    missing: dict[str, Row] = {}
    for sighting in seen:
        for row in sighting.rows():
            _check_signed(row, journal.key, sighting)
            # a checkpoint charges nothing
            if row["row_hash"] not in hashes and row["kind"] != EventKind.CHECKPOINT:
                missing[row["row_hash"]] = row
    in_order = sorted(missing.values(), key=lambda row: (row["seq"], row["row_hash"]))
    return tuple(in_order)


def _note_newest(
    ledger: str, behind: Iterable[Sighting], blind: Iterable[BlindRun], newest: Row
) -> None:
    """Let the files of runs continue from the `newest` row, once the rows that were added are durable.

    Files `behind` end with a row that the ledger has in another form; the draws of `blind` runs are adopted, or charged.
    """
    for run in blind:
        run.sighting.restart(ledger, newest)
    for sighting in behind:
        sighting.append(ledger, [newest])


def _check_signed(row: Row, key: LedgerKey, sighting: Sighting) -> None:
    """Refuse a row in a file that this ledger did not seal."""
    try:
        check_row(row, key)
        event_of(row)
    except (BudgetError, KeyError, ValueError, TypeError, AttributeError, ArithmeticError):
        raise BudgetError(
            f"{sighting.path}: row {row['seq']} was not signed by this ledger; nothing was reconciled. Restore the file, or, "
            "if somebody has forged it, remove it and name this home among those that cannot be looked at"
        ) from None


def _check_accounts(missing: Iterable[Row], accounts: Iterable[str]) -> None:
    """Refuse missing rows of an account that is not open."""
    unknown = sorted({str(row["account"]) for row in missing} - set(accounts))
    if unknown:
        raise BudgetError(
            f"account {unknown[0]} was opened after the copy was made that this ledger was restored from: open it again with "
            "the same numbers (marginweave ledger open), then reconcile"
        )


def _is_missing(record: ReleaseRecord | None, event: Event) -> bool:
    """Return whether the row of a signed event still has to be added to a release."""
    if record is None:
        return event.kind == EventKind.RESERVED and event.draw is None
    draw = record.draw(event.draw or "")
    kind = event.kind
    ended = not record.pending
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
