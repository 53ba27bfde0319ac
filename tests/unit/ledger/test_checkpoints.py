"""Sums that are read from a checkpoint on are those of all rows; no checkpoint is believed without its seal and its rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from marginweave.accounting.accounts import Policy
from marginweave.accounting.records import Event, EventKind
from marginweave.base.errors import AuditError, BudgetError
from marginweave.flows.cli.app import app
from marginweave.ledger import Ledger, LedgerLocation
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import LedgerKey, load_key
from marginweave.ledger.sums import Sums
from tests.support.databases import change, on_both, run
from tests.support.releases import ACCOUNT, gaussian, reserve_release, small_plan

OPENED = replace(
    ACCOUNT,
    epsilon=Decimal(2),
    policy=Policy(per="month", epsilon=Decimal(2), delta=Decimal("1e-6")),
)
SMALL = small_plan(("count", "level-1"), cost=gaussian(1e-3), epsilon=0.5, delta=1e-7)
TINY = small_plan(("count",), cost=gaussian(1e-6), epsilon=0.01, delta=1e-9)
EVERY = "marginweave.ledger.sums.EVERY"
STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["reserve", "return", "draw", "lose", "twin", "expire"]), st.integers(0, 9)
    ),
    st.tuples(st.sampled_from(["cap", "policy", "refuse", "reconcile"]), st.integers(1, 3)),
    st.tuples(st.just("clock"), st.integers(-40, 60)),
)


def all_rows(location: LedgerLocation) -> Sums:
    """The sums as they are where no checkpoint is believed."""
    with patch.object(Journal, "checkpoint", lambda _: None):
        return Ledger.open(location, environment={}).session.sums()


class History:
    """A ledger that changes step by step."""

    def __init__(self, location: Path) -> None:
        self.location, self.moment, self.names = (
            location,
            datetime(2026, 11, 21, tzinfo=UTC),
            list[str](),
        )
        self.ledger = Ledger.create(location, environment={})
        for account in (OPENED, replace(ACCOUNT, dataset="twin")):
            self.ledger.accounts.open(account, actor="steward")

    def take(self, what: str, value: int) -> None:
        """One step; one that is refused is a step, too."""
        ledger, name = self.ledger, self.names[value % len(self.names)] if self.names else ""
        with suppress(BudgetError), patch("marginweave.ledger.releases.now", lambda: self.moment):
            match what:
                case "reserve" | "twin" | "refuse":
                    plan = (
                        small_plan(cost=gaussian(0.12), epsilon=4.0) if what == "refuse" else SMALL
                    )
                    dataset = "twin" if what == "twin" else "affairs"
                    reserve_release(
                        ledger,
                        plan,
                        f"r{len(self.names)}",
                        dataset=dataset,
                        source=f"{dataset} {value}",
                    )
                    self.names.append(f"r{len(self.names)}")
                case "return" if name:
                    ledger.draws.return_unused(name, ["count", "level-1"][: 1 + value % 2])
                case "draw" | "lose" if name:
                    ledger.draws.take_lease(name, "l")
                    ledger.draws.begin(name, "count", "l")
                    end = ledger.draws.lose if what == "lose" else ledger.draws.commit
                    end(
                        name,
                        "count",
                        "l",
                        **({} if what == "lose" else {"digest": "ab" * 32, "tainted": False}),
                    )
                case "expire":
                    ledger.draws.expire(timedelta(0))
                case _:
                    self._decide(what, value)

    def _decide(self, what: str, value: int) -> None:
        from marginweave.base.budget import BasicAmount
        from marginweave.ledger.reconciliation import OtherHomes

        match what:
            case "clock":
                self.moment += timedelta(days=value)
            case "cap":
                self.ledger.accounts.change_cap(
                    "affairs", 1.0 + value, 1e-6 * value, "room", "steward"
                )
            case "policy":
                policy = (
                    None
                    if value == 3
                    else Policy(
                        per=("week", "year")[value - 1], epsilon=Decimal(1), delta=Decimal("1e-7")
                    )
                )
                self.ledger.accounts.change_cap(
                    "affairs", 3.0, 2e-6, "room", "steward", policy=policy
                )
            case "reconcile":
                unaccounted = OtherHomes(unaccounted=BasicAmount.as_stated(0.01 * value, 1e-9))
                self.ledger.reconcile([], unaccounted, actor="steward")


@given(steps=st.lists(STEPS, min_size=6, max_size=12), every=st.sampled_from([1, 5, 12]))
@settings(max_examples=8, deadline=None)
def test_a_checkpoint_gives_the_sums_of_all_rows(steps: list[tuple[str, int]], every: int) -> None:
    """Exactly, after every step, to a process that knows the ledger and to a fresh one; and an auditor agrees with each."""
    with TemporaryDirectory() as folder, patch(EVERY, every):
        history = History(Path(folder) / "ledger.sqlite")
        for what, value in steps:
            history.take(what, value)
            expected = all_rows(history.location)
            fresh = Ledger.open(history.location, environment={})
            assert fresh.session.sums() == expected == history.ledger.session.sums()
            view = fresh.session.view()
            assert (view.accounts, view.spent) == (
                expected.accounts,
                {
                    name: totals.spent
                    for name, totals in expected.totals.items()
                    if totals.spent.ever_reserved
                },
            )
        audited = audit_ledger(history.location, load_key(history.location, {}))
        assert (
            any(event.kind == EventKind.CHECKPOINT for event in audited.events)
            or len(audited.rows) < every
        )


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint behind every second transaction or so."""
    monkeypatch.setattr(EVERY, 6)


@pytest.fixture
def checked(often: None, ledger: Ledger, reserve: Callable[..., Any]) -> Ledger:
    """A release that has drawn, with a checkpoint behind it."""
    ledger.accounts.open(replace(ACCOUNT, dataset="twin"), actor="steward")
    reserve("first")
    ledger.draws.take_lease("first", "l")
    ledger.draws.begin("first", "count", "l")
    ledger.draws.commit("first", "count", "l", "ab" * 32, tainted=False)
    for number in range(6):
        ledger.accounts.open(replace(ACCOUNT, dataset=f"other-{number}"), actor="steward")
    return ledger


def last_checkpoint(location: LedgerLocation) -> int:
    """The number of the newest checkpoint."""
    return int(run(location, "SELECT max(seq) FROM events WHERE kind = 'CHECKPOINT'")[0][0])


@on_both
def test_what_a_checkpoint_has_added_up_is_not_read_again(
    checked, reserve, location, monkeypatch
) -> None:
    """The rows that a fresh process reads are as many after twenty releases as after one."""

    def rows_of_a_look() -> int:
        ledger, seen = Ledger.open(location), list[int]()
        original = Journal._rows

        def counting(self: Journal, query: Any) -> list[dict[str, Any]]:
            rows = original(self, query)
            seen.append(len(rows))
            return rows

        with patch.object(Journal, "_rows", counting):
            ledger.accounts.total("affairs")
        return sum(seen)

    for number in range(20):
        reserve(f"more-{number}", plan=TINY)
    assert rows_of_a_look() < 20
    fresh = Ledger.open(location)
    assert fresh.session.sums() == all_rows(location)
    assert fresh.session.sums().spent_of("affairs") == fresh.session.view().spent_of("affairs")


@on_both
@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "UPDATE events SET body = replace(body, '\"ever\":1', '\"ever\":0') WHERE seq = {last}",
            "row {last} .*changed",
        ),
        ("DELETE FROM events WHERE seq = {last}", "row is missing"),
        ("UPDATE events SET kind = 'REFUSED' WHERE seq = {last}", "row {last} .*changed"),
        ("DELETE FROM events WHERE seq = 2", "row 2 is missing"),
        ("UPDATE events SET body = replace(body, 'row', 'ROW') WHERE seq = 2", "row 2 .*changed"),
    ],
    ids=["changed", "removed", "hidden", "an account's row removed", "an account's row changed"],
)
def test_a_checkpoint_counts_with_its_seal_and_its_accounts_alone(
    checked, location, statement, fault
) -> None:
    """Whoever changes one, takes one away, or the rows on accounts that it names, is noticed by the next process."""
    last = last_checkpoint(location)
    change(location, statement.format(last=last))
    with pytest.raises(BudgetError, match=fault.format(last=last)):
        Ledger.open(location).accounts.total("affairs")


def forge(location: LedgerLocation, key: LedgerKey, ledger: Ledger) -> None:
    """A checkpoint that says that nothing was spent."""
    body = {**ledger.session.sums().row.body}
    for name, each in body.items():
        free = dict.fromkeys(each["spent"]["cost"], "0")
        body[name] = {**each, "spent": {**each["spent"], "cost": free}}
    with ledger.session.writing() as journal:
        replace(journal, key=key).append(Event(kind=EventKind.CHECKPOINT, body=body))


def test_an_auditor_computes_every_checkpoint_again(checked, location) -> None:
    """Sums that the key has sealed and that are not those of the rows are found, and named by row."""
    audit_ledger(location, load_key(location, {}))
    forge(location, checked.session.key, checked)
    row = last_checkpoint(location)
    with pytest.raises(
        AuditError, match=f"row {row} of the ledger: its sums are not those of the rows before it"
    ):
        audit_ledger(location, load_key(location, {}))


@on_both
def test_a_release_goes_on_with_all_of_its_rows_alone(checked, location) -> None:
    """Where the rows of a draw were taken away from before the checkpoint, it is neither drawn again nor given back."""
    change(location, "DELETE FROM events WHERE kind IN ('DRAWN', 'COMMITTED')")
    fresh = Ledger.open(location)
    # and the charge stays
    assert fresh.accounts.total("affairs") == checked.accounts.total("affairs")
    with pytest.raises(BudgetError, match="a row is missing"):
        reserve_release(fresh, small_plan(), "first")
    with pytest.raises(BudgetError, match="a row is missing"), patch(EVERY, 1000):
        fresh.draws.return_unused("first", ["count"])
    with pytest.raises(BudgetError, match="broken"):
        fresh.verify()


@on_both
def test_the_reservation_of_a_source_is_not_taken_away(checked, location) -> None:
    """A source that has an account is not released under another one, where somebody has removed the row that says so."""
    with pytest.raises(BudgetError, match="released under account affairs"):
        reserve_release(Ledger.open(location), SMALL, "other", dataset="twin")
    change(
        location,
        "DELETE FROM events WHERE release = 'first' AND kind = 'RESERVED' AND draw IS NULL",
    )
    with pytest.raises(BudgetError, match="row of a reservation is missing"):
        reserve_release(Ledger.open(location), SMALL, "other", dataset="twin")


@on_both
def test_a_ledger_without_checkpoints_gets_one_by_the_next_writer(
    ledger, reserve, location, monkeypatch
) -> None:
    """It is read whole once more, and written."""
    reserve("first")
    reserve("second", plan=SMALL)
    assert run(location, "SELECT count(*) FROM events WHERE kind = 'CHECKPOINT'") == [(0,)]
    monkeypatch.setattr(EVERY, 4)
    Ledger.open(location).draws.take_lease("first", "l")
    assert last_checkpoint(location) == ledger.verify()
    assert Ledger.open(location).session.sums() == all_rows(location)


def test_show_has_the_newest_releases(ledger, plan, location, monkeypatch) -> None:
    """Twenty of them, with a line on the others, and with `--all` every one; what is spent is of all."""
    for number in range(22):
        reserve_release(ledger, TINY, f"r{number:02}")
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))
    short, whole = (
        CliRunner().invoke(app, ["ledger", "show", "affairs", *more]).output
        for more in ((), ("--all",))
    )
    assert "22 release(s)" in short
    assert "The newest 8 of 22 releases; --all shows every release, stage and draw" in short
    assert ("r13" in short, "r14" in short, "r21" in short) == (False, True, True)
    assert ("r00" in whole, "The newest" in whole) == (True, False)
    assert len(short.splitlines()) <= 20
