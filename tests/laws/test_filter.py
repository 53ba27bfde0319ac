"""The cap is a filter: the best that an adversary can do, who sees every result before asking for the next draw.

His gain is computed backwards over a grid of losses: at the end (1 - e^(epsilon - loss))+, the hockey stick at epsilon; before,
the largest of what each draw that is still admitted leads to. A Gaussian draw of mu^2 moves the loss by N(mu^2/2, mu^2), a
threshold with an additive delta tells all with that probability. Draws are admitted by the shipped rules themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from marginweave.accounting.accountants import gdp_delta, gdp_mu
from marginweave.accounting.accounts import Account, Box, Spent
from marginweave.accounting.charges import Charge, ChargedPlan
from marginweave.accounting.composition import account_epsilon
from marginweave.base.budget import BasicAmount, Cost, amount
from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger, ReleaseRequest
from marginweave.ledger.boxes import admitted, box_fault, box_for, box_of_cap
from marginweave.ledger.replay import Replay
from tests.support.releases import PROGRAM, gaussian

EPSILON, DELTA = 1.0, 1e-6
CAP = BasicAmount(epsilon=Decimal(1), delta=Decimal("1e-6"))
ACCOUNT = Account(
    dataset="people", epsilon=CAP.epsilon, delta=CAP.delta, unit="row", neighbors="add-remove"
)
MU2 = gdp_mu(EPSILON, DELTA) ** 2
_STEP = 5e-4
_LOSSES = np.arange(-2.5, 3.5, _STEP)
Admits = Callable[[Spent, Cost], bool]


def _moved(values: np.ndarray, mu2: float) -> np.ndarray:
    """The mean of `values` after a Gaussian draw of mu^2 has moved the loss; beyond the grid they stay as at its ends."""
    sd = mu2**0.5
    reach = int((mu2 / 2 + 9 * sd) / _STEP) + 1
    centers = np.arange(-reach, reach + 1) * _STEP
    masses = ndtr((centers + _STEP / 2 - mu2 / 2) / sd) - ndtr((centers - _STEP / 2 - mu2 / 2) / sd)
    return np.convolve(np.pad(values, reach, mode="edge"), masses[::-1], mode="valid")


def best_gain(
    moves: tuple[Cost, ...], admits: Admits, start: Spent, statement: BasicAmount
) -> float:
    """The largest delta at EPSILON that any strategy of at most eight admitted `moves` reaches."""
    end = np.maximum(0.0, -np.expm1(EPSILON - _LOSSES))

    @cache
    def value(taken: tuple[int, ...]) -> bytes:
        spent = start
        for move, number in zip(moves, taken, strict=True):
            for _ in range(number):
                spent = spent.with_charge(move, statement)
        found = end
        for index, move in enumerate(moves):
            if sum(taken) < 8 and admits(spent, move):
                after = np.frombuffer(
                    value((*taken[:index], taken[index] + 1, *taken[index + 1 :]))
                )
                moved = _moved(after, float(move.mu2)) if move.mu2 else after
                found = np.maximum(found, float(move.delta) + (1 - float(move.delta)) * moved)
        return found.tobytes()

    return float(np.interp(0.0, _LOSSES, np.frombuffer(value((0,) * len(moves)))))


def _some(total: Decimal, parts: int) -> Decimal:
    """A part of `total`, rounded down: so many of them fit."""
    return (total / parts).quantize(Decimal(10) ** -24, rounding="ROUND_FLOOR")


def test_the_grid_is_exact_enough() -> None:
    """Without a choice it is the closed form, to one in a thousand."""
    halves = best_gain((gaussian(MU2 / 2),), lambda spent, _: spent.releases < 2, Spent(), CAP)
    assert halves == pytest.approx(gdp_delta(MU2**0.5, EPSILON), rel=1e-3)


def test_the_smallest_of_several_sums_is_no_filter() -> None:
    """An account's total is such a sum, and is shown alone.

    Half the mu^2, then by its result the other half or a threshold with all the delta left: each branch alone has
    1e-6.
    """
    half = gaussian(MU2 / 2 * (1 - 1e-9))
    left = DELTA - gdp_delta((MU2 / 2) ** 0.5, EPSILON)
    moves = (half, Cost(delta=amount(left * (1 - 1e-6))))

    def admits(spent: Spent, cost: Cost) -> bool:
        after = spent.with_charge(cost, CAP)
        return account_epsilon(after.cost, after.statement, CAP.delta)[0] <= EPSILON

    assert best_gain(moves, admits, Spent(), CAP) == pytest.approx(1.936e-6, rel=1e-3)


BOXES = {
    "a tenth for thresholds": box_for(CAP),
    "public domains": box_for(CAP, gaussian(0.01)),
    "for a plan with a threshold": box_for(CAP, gaussian(0.01, 2e-7)),
    "mostly thresholds": box_for(CAP, gaussian(0.001, 3e-7)),
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES.keys())
def test_no_strategy_gets_past_the_box(box: Box) -> None:
    """Draws of a quarter, a half and all of each coordinate, and the dear threshold of the rule before."""
    account = replace(ACCOUNT, box=box)
    left = DELTA - gdp_delta((MU2 / 2) ** 0.5, EPSILON)
    moves = tuple(
        [Cost(mu2=_some(box.mu2, parts)) for parts in (1, 2, 4)]
        + [Cost(delta=_some(box.delta_add, parts)) for parts in (1, 2) if box.delta_add]
        + [gaussian(MU2 / 2), Cost(delta=amount(left))]
    )

    def admits(spent: Spent, cost: Cost) -> bool:
        return admitted(account, spent, cost, CAP) is not None

    gain = best_gain(moves, admits, Spent(ever_reserved=1), CAP)
    assert 0.9 * DELTA < gain <= DELTA * (1 + 1e-3)


def test_a_first_release_by_its_statement_leaves_nothing_to_choose() -> None:
    """It may use all of (1, 1e-6); then nothing is admitted, so no strategy gets more."""
    box = box_for(CAP)
    account = replace(ACCOUNT, box=box)
    whole = gaussian(MU2 * (1 - 1e-9))

    def admits(spent: Spent, cost: Cost) -> bool:
        alone = whole if spent.ever_reserved and spent.cost.mu2 == whole.mu2 else None
        return admitted(account, replace(spent, cost_by_statement=alone), cost, CAP) is not None

    moves = (whole, gaussian(float(box.mu2) / 2), Cost(delta=box.delta_add))
    assert best_gain(moves, admits, Spent(), CAP) == pytest.approx(DELTA, rel=1e-3)


EPSILONS = st.floats(0.05, 20).map(lambda value: Decimal(repr(value)))
DELTAS = st.floats(1e-12, 1e-4).map(lambda value: Decimal(repr(value)))
CAPS = st.builds(
    lambda epsilon, delta: BasicAmount(epsilon=epsilon, delta=delta),
    EPSILONS,
    DELTAS | st.just(Decimal(0)),
)
PLANS = st.none() | st.builds(
    lambda mu2, delta, epsilon: replace(
        gaussian(mu2, delta), plain=BasicAmount(epsilon=amount(epsilon))
    ),
    st.floats(1e-6, 1) | st.just(0.0),
    st.floats(1e-14, 1e-6) | st.just(0.0),
    st.floats(0.01, 2) | st.just(0.0),
)


def _within(one: Box, other: Box) -> bool:
    whole = Cost(mu2=one.mu2, delta=one.delta_add, plain=one.allowance)
    return other.holds(whole)


@given(cap=CAPS, plan=PLANS, more=st.floats(1, 5), wider=st.floats(1, 5))
@settings(max_examples=30, deadline=None)
def test_a_box_keeps_its_cap_and_grows_with_it(
    cap: BasicAmount, plan: Cost | None, more: float, wider: float
) -> None:
    """It promises no more than (epsilon, delta), and a raised cap makes no coordinate smaller."""
    box = box_for(cap, plan)
    account = replace(ACCOUNT, epsilon=cap.epsilon, delta=cap.delta, kind_of_plan=plan, box=box)
    assert box_fault(box, cap) is None
    larger = BasicAmount(
        epsilon=cap.epsilon * Decimal(repr(more)), delta=cap.delta * Decimal(repr(wider))
    )
    raised = box_of_cap(account, larger)
    assert box_fault(raised, larger) is None
    assert _within(box, raised)


COSTS = st.builds(
    lambda mu2, delta, epsilon: replace(
        gaussian(mu2, delta), plain=BasicAmount(epsilon=amount(epsilon))
    ),
    st.sampled_from([0.0, 0.005, 0.02, 0.05]),
    st.sampled_from([0.0, 2e-8, 6e-8, 3e-7]),
    st.sampled_from([0.0, 0.1, 0.4]),
)


@given(spent=COSTS, asked=COSTS, less=COSTS, plan=PLANS)
@settings(max_examples=50, deadline=None)
def test_who_asks_for_less_is_admitted_too(
    spent: Cost, asked: Cost, less: Cost, plan: Cost | None
) -> None:
    """Admission is monotone in every coordinate, and what is admitted is held by the box."""
    box = box_for(CAP, plan)
    account = replace(ACCOUNT, box=box)
    before = Spent(releases=1, ever_reserved=1, cost=spent)
    if admitted(account, before, asked, CAP) is None:
        return
    assert box.holds(spent + asked)
    if less.mu2 <= asked.mu2 and less.delta <= asked.delta and less.plain.within(asked.plain):
        assert admitted(account, before, less, CAP) == "sums"


def _plan(cost: Cost) -> ChargedPlan:
    multiplier = (
        float("inf") if not cost.mu2 else float(np.nextafter(float(cost.mu2) ** -0.5, np.inf))
    )
    draws = tuple(
        Charge(name=name, mechanism="rounded-gaussian", parameter=multiplier, cost=cost)
        for name in ("count", "level-1")
    )
    return ChargedPlan(
        epsilon=1.0,
        delta=1e-6,
        neighbors="add-remove",
        delta_threshold=0.0,
        spent_epsilon=1.0,
        charges=draws,
    )


STEPS = st.one_of(
    st.tuples(
        st.just("reserve"),
        st.sampled_from([(0.0005, 0.0), (0.004, 1e-8), (0.01, 4e-8), (0.0279, 0.0)]),
    ),
    st.tuples(st.just("give back"), st.integers(0, 6)),
    st.tuples(st.just("lose"), st.integers(0, 6)),
    st.tuples(st.just("raise"), st.sampled_from([(1.1, 1.0), (1.0, 2.0), (1.5, 1.5)])),
)


@given(steps=st.lists(STEPS, min_size=3, max_size=12))
@settings(max_examples=8, deadline=None)
def test_no_history_leaves_its_box(steps: list[tuple[str, tuple[float, float] | int]]) -> None:
    """Whatever is reserved, given back, lost and raised: the sums stay inside, and an auditor agrees with every row."""
    with TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "ledger.sqlite", environment={})
        ledger.accounts.open(ACCOUNT, actor="steward")
        for number, (what, value) in enumerate(steps):
            _take(ledger, number, what, value)
            total = ledger.accounts.total("people")
            box = total.account.box
            assert box is not None
            by_statement = [
                record for record in ledger.releases.of("people") if record.by_statement
            ]
            if by_statement and not box.holds(by_statement[0].reserved):
                assert [record.release for record in ledger.releases.of("people")] == [
                    by_statement[0].release
                ]
            else:
                charged = sum((record.charged for record in ledger.releases.of("people")), Cost())
                assert box.holds(charged)
                assert total.spent.cost == charged
            replay = Replay()
            for seq, event in enumerate(ledger.session.events(), start=1):
                replay.step(seq, event)
            replay.finish()


def _take(ledger: Ledger, number: int, what: str, value: tuple[float, float] | int) -> None:
    releases = ledger.releases.of("people")
    if what == "reserve":
        assert isinstance(value, tuple)
        with suppress(BudgetError):
            request = ReleaseRequest(
                dataset="people",
                release=str(number),
                run=str(number),
                plan=_plan(gaussian(*value)),
                plan_digest="p",
                source=ledger.keys.source_digest({"": [b"s"]}),
                unit="row",
                program=PROGRAM,
                actor="steward",
            )
            ledger.releases.reserve(request)
    elif what == "raise":
        assert isinstance(value, tuple)
        cap = ledger.accounts.total("people").account.cap
        epsilon, delta = (
            float(amount_) * factor
            for amount_, factor in zip((cap.epsilon, cap.delta), value, strict=True)
        )
        if epsilon < 10 and delta < 1e-4:
            ledger.accounts.change_cap("people", epsilon, delta, "more", "steward")
    elif releases:
        assert isinstance(value, int)
        name = releases[value % len(releases)].release
        with suppress(BudgetError):
            if what == "lose":
                ledger.draws.take_lease(name, f"lease {number}")
                ledger.draws.begin(name, "count", f"lease {number}")
                ledger.draws.lose(name, "count", f"lease {number}")
            else:
                ledger.draws.return_unused(name, ["level-1"])
