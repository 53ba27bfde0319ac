"""A draw goes RESERVED → DRAWN → COMMITTED, RESERVED → RETURNED or DRAWN → CHARGED_LOST, and no other way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.records import State
from marginweave.base.budget import Cost
from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger
from tests.support.releases import ACCOUNT, reserve_release, small_plan

MOVES = {
    "begin": lambda ledger, name, lease: ledger.draws.begin("r", name, lease),
    "commit": lambda ledger, name, lease: ledger.draws.commit(
        "r", name, lease, f"digest-{lease}", tainted=False
    ),
    "lose": lambda ledger, name, lease: ledger.draws.lose("r", name, lease),
    "return": lambda ledger, name, _: ledger.draws.return_unused("r", [name]),
    "take": lambda ledger, _, lease: ledger.draws.take_lease("r", lease),
}
# state, move → state; everything else is refused. Every move but giving back needs the current lease; each is taken once.
TABLE = {
    ("RESERVED", "begin"): "DRAWN",
    ("RESERVED", "return"): "RETURNED",
    ("DRAWN", "commit"): "COMMITTED",
    ("DRAWN", "lose"): "CHARGED_LOST",
}
# The same again, by the lease that did it, finds its own row and writes nothing.
AGAIN = {(state, move) for (_, move), state in TABLE.items()}


PATHS = {
    "RESERVED": (),
    "RETURNED": ("return",),
    "DRAWN": ("begin",),
    "COMMITTED": ("begin", "commit"),
    "CHARGED_LOST": ("begin", "lose"),
}


def test_every_move_from_every_state(ledger, reserve) -> None:
    """Each of the twenty goes where the table says, is content with its own row, or is refused and changes nothing."""
    cases = {
        f"draw-{i}": case
        for i, case in enumerate(itertools.product(PATHS, sorted(MOVES.keys() - {"take"})))
    }
    cost = Cost(mu2=Decimal("0.001"), rho=Decimal("0.0005"))
    reserve("r", plan=small_plan(tuple(cases), cost=cost))
    ledger.draws.take_lease("r", "A")
    for name, (state, move) in cases.items():
        for before in PATHS[state]:
            MOVES[before](ledger, name, "A")
        rows = ledger.verify()
        if (state, move) in TABLE or (state, move) in AGAIN:
            MOVES[move](ledger, name, "A")
            assert ledger.verify() == rows + ((state, move) in TABLE)
        else:
            with pytest.raises(BudgetError):
                MOVES[move](ledger, name, "A")
    record = ledger.releases.find("r")
    assert record is not None
    ended = {draw.name: draw.state.value for draw in record.draws}
    assert ended == {name: TABLE.get(case, case[0]) for name, case in cases.items()}


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(MOVES)),
            st.sampled_from(["count", "level-1"]),
            st.sampled_from(["A", "B"]),
        ),
        max_size=12,
    )
)
def test_only_the_table_of_states_is_possible(moves: list[tuple[str, str, str]]) -> None:
    """Any sequence of calls ends where the table says; a refused call changes nothing; a charge leaves by RETURNED only."""
    cost = Cost(mu2=Decimal("0.01"), rho=Decimal("0.005"), delta=Decimal("1e-9"))
    states = {"count": "RESERVED", "level-1": "RESERVED"}
    ended: dict[str, str] = {}
    leases: dict[str, str] = {}
    taken: list[str] = []
    with TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "ledger.sqlite", environment={})
        ledger.accounts.open(ACCOUNT, actor="s")
        reserve_release(ledger, small_plan(("count", "level-1"), cost=cost), "r")
        for move, name, lease in moves:
            target = TABLE.get((states[name], move))
            if (states[name], move) in AGAIN and (move == "return" or ended[name] == lease):
                target = states[name]
            if move == "take":
                target = None if lease in taken[:-1] else states[name]
            elif move != "return" and taken[-1:] != [lease]:
                target = None
            if target is None:
                with pytest.raises(BudgetError):
                    MOVES[move](ledger, name, lease)
                continue
            MOVES[move](ledger, name, lease)
            if move != "take":
                states[name], ended[name] = target, lease
            elif taken[-1:] != [lease]:
                taken.append(lease)
            if move == "begin":
                leases[name] = lease
        record = ledger.releases.find("r")
        assert record is not None
        assert {draw.name: draw.state.value for draw in record.draws} == states
        charged = sum(state != "RETURNED" for state in states.values())
        assert record.charged == Cost(
            mu2=cost.mu2 * charged, rho=cost.rho * charged, delta=cost.delta * charged
        )
        assert record.lease == (taken[-1] if taken else None)
        # a draw keeps the lease that drew it, whoever commits it: its file has that name
        assert {
            d.name: d.lease
            for d in record.draws
            if d.state in {"DRAWN", "COMMITTED", "CHARGED_LOST"}
        } == leases
        assert all(
            d.digest in {"digest-A", "digest-B"} for d in record.draws if d.state == State.COMMITTED
        )
        ledger.verify()


def _is_content(move: Callable[[], None]) -> bool:
    try:
        move()
    except BudgetError:
        return False
    return True


def test_a_move_asked_again_finds_its_own_row(ledger, reserve) -> None:
    """The same lease in the same words writes nothing; other inputs, another digest or another lease are refused."""
    reserve()
    ledger.draws.take_lease("first", "A")
    facts = {"inputs": "ab", "program": "1.0"}
    ledger.draws.begin("first", "count", "A", facts)
    rows = ledger.verify()
    assert _is_content(lambda: ledger.draws.begin("first", "count", "A", facts))
    for other in ({}, {**facts, "inputs": "cd"}):
        with pytest.raises(BudgetError, match="is DRAWN; it cannot become DRAWN"):
            ledger.draws.begin("first", "count", "A", other)
    assert ledger.verify() == rows
    ledger.draws.take_lease("first", "B")
    with pytest.raises(BudgetError, match="is DRAWN; it cannot become DRAWN"):
        ledger.draws.begin("first", "count", "B", facts)
    for _ in range(2):
        ledger.draws.commit("first", "count", "B", "digest", tainted=False)
    with pytest.raises(BudgetError, match="is COMMITTED; it cannot become COMMITTED"):
        ledger.draws.commit("first", "count", "B", "another", tainted=False)
    assert ledger.verify() == rows + 2


def test_tainted_draws_are_never_committed(ledger, reserve) -> None:
    """Noise of a test's generator does not become a release."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    with pytest.raises(BudgetError, match="tainted"):
        ledger.draws.commit("first", "count", "lease", "digest", tainted=True)
    assert ledger.releases.find("first").draw("count").state == State.DRAWN


def test_giving_back_is_all_or_none(ledger, reserve) -> None:
    """One draw that was begun keeps the others reserved."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "level-2", "lease")
    with pytest.raises(
        BudgetError, match="level-2 of release first is DRAWN; it cannot become RETURNED"
    ):
        ledger.draws.return_unused("first", ["level-1", "level-2"])
    assert [draw.state for draw in ledger.releases.find("first").draws] == [
        State.RESERVED,
        State.RESERVED,
        State.DRAWN,
    ]


def test_unknown_releases_and_draws_are_refused(ledger, reserve) -> None:
    """Nothing is drawn that was not reserved."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    with pytest.raises(BudgetError, match="no draw level-9"):
        ledger.draws.begin("first", "level-9", "lease")
    with pytest.raises(BudgetError, match="release other is not in the ledger"):
        ledger.draws.begin("other", "count", "lease")
    assert ledger.releases.find("other") is None
