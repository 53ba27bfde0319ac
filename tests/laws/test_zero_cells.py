"""Noise for zero cells without visiting them: the distribution is that of noise on every candidate.

Every statistic has a false alarm rate of 1e-6, and is seen to fail on broken code: a probability that is 2 % off, a
threshold that is one off, a wrong number of cells, positions that repeat, cells that occur or are no candidates kept.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chisquare

from marginweave.counts.candidates import CandidateSet
from marginweave.measurements import levels as level_module
from marginweave.measurements.levels import LevelMechanism, draw_level, draw_unvisited, draw_visited
from marginweave.mechanisms import zero_cells
from marginweave.mechanisms.noise_table import noise_table, uniform_numbers
from tests.support.counting import WholeCounts
from tests.support.seeded_bits import SeededBits
from tests.support.tables import level_from

FALSE_ALARM = 1e-6
Outcome = tuple[Any, ...]
Case = tuple[CandidateSet, WholeCounts]
Exact = tuple[NDArray[np.int64], dict[Outcome, float]]
Break = Callable[[pytest.MonkeyPatch], None]
MECHANISM = LevelMechanism(length=3, contribution_bound=1, sigma=Fraction(3, 2), threshold=2)


def triples() -> tuple[CandidateSet, WholeCounts]:
    """Seven triples of values of three columns, one of which is forbidden, in a superset of ten, and two that occur."""
    pairs = [
        ((0, 0), (1, 0)),
        ((0, 0), (1, 1)),
        ((0, 1), (1, 1)),
        ((0, 2), (1, 0)),
        ((0, 2), (1, 1)),
    ]
    pairs += [
        ((0, 0), (2, 0)),
        ((0, 0), (2, 1)),
        ((0, 1), (2, 0)),
        ((0, 1), (2, 1)),
        ((0, 2), (2, 1)),
    ]
    pairs += [((1, 0), (2, 0)), ((1, 0), (2, 1)), ((1, 1), (2, 0)), ((1, 1), (2, 1))]
    candidates = CandidateSet.above(
        level_from(dict.fromkeys(pairs, 1), 2), (3, 2, 2), [((0, 0), (1, 0), (2, 1))]
    )
    cells = np.concatenate(list(candidates.cells((0, 1, 2))))
    assert (candidates.superset, len(cells)) == (10, 7)
    return candidates, WholeCounts(
        column_sets=((0, 1, 2),), cells=(cells[[1, 4]],), counts=(np.array([1, 3], np.int64),)
    )


def outcome_probabilities(
    candidates: CandidateSet, bounded: WholeCounts, mechanism: LevelMechanism
) -> Exact:
    """Every joint outcome with its probability; a cell is None, its threshold, or 1 for everything above."""
    table, least = noise_table(mechanism.sigma), mechanism.threshold
    cells = np.concatenate(list(candidates.cells((0, 1, 2))))
    exact = dict(zip(bounded.cells[0].tolist(), bounded.counts[0].tolist(), strict=True))
    single = []
    for cell in cells.tolist():
        above = [float(table.upper_tail(t - exact.get(cell, 0))) for t in (least, least + 1)]
        single.append({None: 1 - above[0], 0: above[0] - above[1], 1: above[1]})
    outcomes = itertools.product((None, 0, 1), repeat=len(cells))
    return cells, {o: math.prod(s[x] for s, x in zip(single, o, strict=True)) for o in outcomes}


def joint_p_value(draw: Callable[..., Any], trials: int, case: Case, exact: Exact) -> float:
    """Chi-square of the joint distribution of survivors and values against the exact one."""
    (candidates, bounded), (cells, expected), mechanism = case, exact, MECHANISM
    assert sum(expected.values()) == pytest.approx(1)
    seen = Counter[Outcome]()
    place = {cell: i for i, cell in enumerate(cells.tolist())}
    for trial in range(trials):
        told, noisy = draw(bounded, candidates, mechanism, SeededBits(3, trial))[0, 1, 2]
        outcome: list[int | None] = [None] * len(cells)
        for cell, count in zip(told.tolist(), noisy.tolist(), strict=True):
            if cell not in place or outcome[place[cell]] is not None:
                return 0.0  # no candidate, or told twice: what cannot be
            outcome[place[cell]] = min(count - mechanism.threshold, 1)
        seen[tuple(outcome)] += 1
    likely = [o for o, p in expected.items() if p * trials >= 8]
    rest = trials - sum(seen[o] for o in likely)
    remaining = trials * (1 - math.fsum(expected[o] for o in likely))
    wanted = [*(expected[o] * trials for o in likely), remaining]
    return float(chisquare([*(seen[o] for o in likely), rest], wanted).pvalue)


@pytest.mark.parametrize("draw", [draw_visited, draw_unvisited])
def test_the_joint_distribution_is_the_exact_one(draw: Callable[..., Any]) -> None:
    """6,000 draws of seven candidates, of which two occur and one has to be told from the superset's other members."""
    case = triples()
    assert joint_p_value(draw, 6_000, case, outcome_probabilities(*case, MECHANISM)) > FALSE_ALARM


def repeating(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(count: int, size: int, bits: Any) -> Any:
        return np.sort(uniform_numbers(count, size, bits))

    monkeypatch.setattr(zero_cells, "draw_positions", drawn)


def keeping_what_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CandidateSet, "allowed", lambda *given: np.ones(len(given[-1]), np.bool_))


def keeping_what_occurs(monkeypatch: pytest.MonkeyPatch) -> None:
    real = level_module.np.isin
    monkeypatch.setattr(
        level_module.np, "isin", lambda a, b, **named: np.zeros_like(real(a, b, **named))
    )


def unconditional_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    real = level_module.passing_noise
    monkeypatch.setattr(
        level_module, "passing_noise", lambda n, t, *rest: np.maximum(real(n, 1, *rest), t)
    )


@pytest.mark.parametrize(
    "damage", [repeating, keeping_what_is_forbidden, keeping_what_occurs, unconditional_noise]
)
def test_the_joint_distribution_shows_what_is_broken(
    damage: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistic of the law has power."""
    case = triples()
    expected = outcome_probabilities(*case, MECHANISM)
    damage(monkeypatch)
    assert joint_p_value(draw_unvisited, 6_000, case, expected) < FALSE_ALARM


SIZES = (600, 700)


def many_p_values(seed: int) -> tuple[float, float, float]:
    """One draw over 420,000 pairs, every 700th of which occurs: number told, their noise, and where they are; p-values."""
    singles = {((j, v),): 1 for j, size in enumerate(SIZES) for v in range(size)}
    candidates = CandidateSet.above(level_from(singles, 1), SIZES)
    everything = np.concatenate(list(candidates.cells((0, 1))))
    occurring = everything[:: SIZES[1]]
    bounded = WholeCounts(
        column_sets=((0, 1),),
        cells=(occurring,),
        counts=(np.full(len(occurring), 10**6, np.int64),),
    )
    mechanism = LevelMechanism(length=2, contribution_bound=1, sigma=Fraction(10), threshold=3)
    told, noisy = draw_unvisited(bounded, candidates, mechanism, SeededBits(seed))[0, 1]
    assert np.all(np.diff(told) > 0)
    zero = noisy < 10**5
    table = noise_table(mechanism.sigma)
    zeros, p = len(everything) - len(occurring), float(table.upper_tail(3))
    number = 2 * min(binom.cdf(zero.sum(), zeros, p), binom.sf(zero.sum() - 1, zeros, p))
    edges = range(3, 34)
    tails = np.array([float(table.upper_tail(t)) for t in edges])
    expected = np.append(-np.diff(tails), tails[-1]) / tails[0] * zero.sum()
    values = np.bincount(np.minimum(noisy[zero] - 3, len(expected) - 1), minlength=len(expected))
    rows = np.bincount(told[zero] // (SIZES[1] + 1), minlength=SIZES[0])
    places = chisquare(rows).pvalue
    return float(number), float(chisquare(values, expected).pvalue), float(places)


def test_many_cells_pass_as_often_and_as_far_as_they_should() -> None:
    """Number, values and places, false alarm 1e-6 together; a probability 2 % off would be seen at ten deviations."""
    assert min(many_p_values(5)) > FALSE_ALARM / 3


def probability_off(monkeypatch: pytest.MonkeyPatch) -> None:
    real = zero_cells.passing_probability
    monkeypatch.setattr(
        zero_cells, "passing_probability", lambda t, sd: real(t, sd) * Fraction(102, 100)
    )


def threshold_off(monkeypatch: pytest.MonkeyPatch) -> None:
    real = zero_cells.passing_probability
    monkeypatch.setattr(zero_cells, "passing_probability", lambda t, sd: real(t + 1, sd))


def tail_off(monkeypatch: pytest.MonkeyPatch) -> None:
    real = level_module.passing_noise
    monkeypatch.setattr(
        level_module, "passing_noise", lambda n, t, *rest: np.maximum(real(n, t - 1, *rest), t)
    )


def too_few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    real = level_module.passing_zeros
    monkeypatch.setattr(level_module, "passing_zeros", lambda n, *rest: real(n - n // 50, *rest))


@pytest.mark.parametrize("damage", [probability_off, threshold_off, tail_off, too_few_cells])
def test_many_cells_show_what_is_broken(damage: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of the law have power."""
    damage(monkeypatch)
    assert min(many_p_values(5)) < FALSE_ALARM / 3


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over blocks of a few positions that begin and end inside sets of columns, the same law: 15 sets, false alarm 1e-6."""
    sizes = (3, 5, 2, 7, 4, 6)
    singles = {((j, v),): 1 for j, size in enumerate(sizes) for v in range(size)}
    candidates = CandidateSet.above(level_from(singles, 1), sizes)
    nothing = WholeCounts(column_sets=(), cells=(), counts=())
    mechanism = LevelMechanism(length=2, contribution_bound=1, sigma=Fraction(10), threshold=3)
    monkeypatch.setattr(zero_cells, "_PASSING", 7)
    sets, trials = list(candidates.column_sets()), 300
    told = Counter[tuple[Any, ...]]()
    for trial in range(trials):
        for columns, (cells, _) in draw_unvisited(
            nothing, candidates, mechanism, SeededBits(1, trial)
        ).items():
            told.update((columns, cell) for cell in cells.tolist())
    expected = {(c, cell) for c in sets for cells in candidates.cells(c) for cell in cells.tolist()}
    assert set(told) == expected
    p = float(noise_table(mechanism.sigma).upper_tail(3))
    spread = sum((told[cell] - trials * p) ** 2 for cell in expected) / (trials * p * (1 - p))
    assert abs(spread - len(expected)) < 5 * math.sqrt(2 * len(expected))


def test_the_way_of_drawing_depends_on_sizes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates are visited, many are not, whatever occurs; both tell cells in canonical order."""
    candidates, bounded = triples()
    mechanism = LevelMechanism(length=3, contribution_bound=1, sigma=Fraction(3, 2), threshold=3)
    assert level_module.visits_all(candidates, mechanism)
    monkeypatch.setattr(level_module, "_VISITED", 3)
    assert not level_module.visits_all(candidates, mechanism)
    level = draw_level(bounded, candidates, mechanism, SeededBits(0))
    assert level.counts.min(initial=3) >= 3
    keys = list(map(tuple, level.values.tolist()))
    assert keys == sorted(keys)
