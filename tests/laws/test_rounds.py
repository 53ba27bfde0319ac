"""Marginals chosen in rounds: the sensitivity of scores, the exact chances of choices, the noise of shares."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError
from marginweave.configuration.bin_levels import BinLevel, BinLevels
from marginweave.configuration.marginals import AdaptiveCliques
from marginweave.counts.marginals import count_marginals
from marginweave.domain.masks import Clique
from marginweave.measurements import round_draws
from marginweave.measurements.marginal_rows import by_level
from marginweave.measurements.marginals import measure_marginals, split_noise
from marginweave.measurements.one_way import drawn_one_way
from marginweave.measurements.round_candidates import Candidates
from marginweave.measurements.round_draws import Rounds
from marginweave.measurements.rounds import (
    STEPS,
    candidate_scores,
    candidate_sets,
    score_sensitivity,
)
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.mechanisms.gaussian import RoundedGaussian, select_candidate
from marginweave.mechanisms.randomness import DrawBits, fresh_bits
from marginweave.observations.means import merge_observations
from marginweave.observations.payloads import unpack_observations, unpack_pick
from tests.support.configurations import configuration
from tests.support.draws import GAUSSIAN
from tests.support.level_draws import category, table_of
from tests.support.stage_draws import (
    MARGINALS,
    SIZES,
    MeasuredTable,
    assert_noise,
    measured_marginals,
)

SMALL = (2, 3, 2)
# the second attribute at its only level, whose first code has two of its codes
LEVEL = np.array([0, 0, 1])
UNITS = [
    Stability(records=records, neighbors=neighbors)
    for records in (1, 2)
    for neighbors in ("add-remove", "replace-one")
]
# false alarm of one test of a distribution
ALARM = 1e-6


def tables(records: int) -> Iterator[NDArray[np.int64]]:
    """Every table of so many records, as the number of records of each of the 12 kinds."""
    for kinds in itertools.combinations_with_replacement(range(math.prod(SMALL)), records):
        yield np.bincount(np.array(kinds, np.int64), minlength=math.prod(SMALL)).astype(np.int64)


def moves(unit: Stability) -> list[NDArray[np.int64]]:
    """All that one unit can add: up to theta records; under replace-one in the place of as many others or fewer."""
    whole = [table for records in range(unit.records + 1) for table in tables(records)]
    if unit.neighbors == "add-remove":
        return whole
    return [added - taken for added in whole for taken in whole]


def scored(
    kinds: NDArray[np.int64], settings: AdaptiveCliques, model: dict[Clique, NDArray[np.float64]]
) -> list[int]:
    """The scores of a table that is told by the number of records of each kind."""
    whole = kinds.reshape(SMALL)
    exact = {
        clique: whole.sum(axis=tuple(a for a in range(3) if a not in clique))
        for clique in candidate_sets(settings, SMALL)
    }
    scores: list[int] = candidate_scores(
        [exact],
        lambda cliques: [model[clique] for clique in cliques],
        candidates_of(settings),
        settings,
        1.7,
    ).tolist()
    return scores


def candidates_of(settings: AdaptiveCliques) -> Candidates:
    """The candidates of three attributes; where bins may be coarser, the second one has a level."""
    of = (BinLevel(place=1, bins=3, bins_joined=2),) if settings.coarsen else ()
    return Candidates(
        sets=candidate_sets(settings, SMALL),
        levels=BinLevels(sizes=(*SMALL, 2)[: 3 + len(of)], of=of),
        codes=((1, LEVEL),)[: len(of)],
    )


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize(("weights", "coarsen"), [("workload", True), ("equal", False)])
def test_no_neighbor_moves_a_score_beyond_its_sensitivity(
    unit: Stability, weights: Any, coarsen: bool
) -> None:
    """All tables of up to 2 records and all their neighbors, models of fractions and of a few full cells; one reaches it.

    In coarser bins, too: there a record that moves within joined bins moves nothing, and no other moves more.
    """
    settings = AdaptiveCliques(weights=weights, coarsen=coarsen)
    rng = np.random.default_rng(8)
    candidates = candidate_sets(settings, SMALL)
    fractions = {clique: 2 * rng.random([SMALL[a] for a in clique]) for clique in candidates}
    full = {
        clique: 5.0 * (rng.random([SMALL[a] for a in clique]) < 0.5).astype(np.float64)
        for clique in candidates
    }
    every = [table for records in range(3 + unit.records) for table in tables(records)]
    numbers = {table.tobytes(): number for number, table in enumerate(every)}
    apart = np.unique(moves(unit), axis=0)
    furthest = np.zeros(len(candidates_of(settings).all), np.int64)
    for model in (fractions, full):
        scores = np.array([scored(table, settings, model) for table in every])
        for table in (table for records in range(3) for table in tables(records)):
            others = (table + apart)[((table + apart) >= 0).all(axis=1)]
            moved = (
                scores[[numbers[other.tobytes()] for other in others]]
                - scores[numbers[table.tobytes()]]
            )
            furthest = np.maximum(furthest, np.abs(moved).max(axis=0))
    # a single record moves pairs in coarser bins as far as at their finest
    assert furthest.tolist() == [
        score_sensitivity(settings, [clique], unit) for clique in candidates_of(settings).columns
    ]
    assert furthest.max() == score_sensitivity(settings, candidates, unit)
    assert furthest.max() == STEPS * unit.records * (
        2 if unit.neighbors == "replace-one" else 1
    ) * max(len(clique) if weights == "workload" else 1 for clique in candidates)


@pytest.mark.parametrize("coarsen", [False, True])
def test_a_score_is_the_distance_less_the_noise_times_the_weight(coarsen: bool) -> None:
    """To 1/1024 record a cell, from the definition; with coarser bins, of each table, less half of the noise."""
    settings, rng = AdaptiveCliques(coarsen=coarsen), np.random.default_rng(2)
    candidates = candidate_sets(settings, SMALL)
    exact = {c: rng.integers(0, 90, [SMALL[a] for a in c]) for c in candidates}
    model = {c: 90 * rng.random([SMALL[a] for a in c]) for c in candidates}
    every = candidates_of(settings)
    scores = candidate_scores(
        [exact], lambda cliques: [model[clique] for clique in cliques], every, settings, 1.7
    )
    named = [
        (clique, place) for clique in candidates for place in range(1 + (coarsen and 1 in clique))
    ]
    for score, (clique, coarser) in zip((scores / STEPS).tolist(), named, strict=True):
        tables = [exact[clique], model[clique]]
        if coarser:
            tables = [np.add.reduceat(table, [0, 2], axis=clique.index(1)) for table in tables]
        cells = tables[0].size
        noise = math.sqrt(2 / math.pi) * 1.7 * cells / (2 if coarsen else 1)
        wanted = len(clique) * (np.abs(tables[0] - tables[1]).sum() - noise)
        error = exact[clique].size / STEPS
        assert score == pytest.approx(wanted, abs=len(clique) * (error + 1 / STEPS))


def chances(scores: NDArray[np.int64], sensitivity: float, epsilon: float) -> NDArray[np.float64]:
    """The exact probabilities of the exponential mechanism."""
    exponent = epsilon * scores / (2 * sensitivity)
    weights = np.exp(exponent - exponent.max())
    found: NDArray[np.float64] = weights / weights.sum()
    return found


def test_choices_follow_the_exponential_mechanism() -> None:
    """6,000 choices among 6 by chi^2: false alarm 1e-6; with half or twice the sensitivity it fails almost surely."""
    scores, sensitivity, epsilon, trials = (
        np.array([0, -900, 2000, 3500, 3000, -6000], np.int64),
        3072,
        2.0,
        6_000,
    )
    drawn = np.bincount(
        [select_candidate(scores, sensitivity, epsilon, fresh_bits()) for _ in range(trials)],
        minlength=6,
    )
    expected, limit = trials * chances(scores, sensitivity, epsilon), stats.chi2.isf(ALARM, 5)
    assert ((drawn - expected) ** 2 / expected).sum() < limit
    for wrong in (sensitivity / 2, sensitivity * 2):
        other = trials * chances(scores, wrong, epsilon)
        noncentral = ((other - expected) ** 2 / expected).sum()
        assert stats.ncx2.sf(limit, 5, noncentral) > 1 - 1e-6


def test_a_choice_is_private_on_neighbors() -> None:
    """Exact chances of tables a unit apart: their logarithms differ by at most epsilon, and by nearly as much somewhere."""
    settings, unit, rng = AdaptiveCliques(coarsen=True), UNITS[1], np.random.default_rng(5)
    candidates = candidate_sets(settings, SMALL)
    sensitivity, widest = score_sensitivity(settings, candidates, unit), 0.0
    model = {clique: rng.random([SMALL[a] for a in clique]) for clique in candidates}
    for table in tables(2):
        ours = np.log(chances(np.array(scored(table, settings, model)), sensitivity, 2.0))
        for move in moves(unit):
            if (table + move >= 0).all():
                theirs = np.log(
                    chances(np.array(scored(table + move, settings, model)), sensitivity, 2.0)
                )
                widest = max(widest, float(np.abs(theirs - ours).max()))
    assert 0.5 < widest <= 2.0 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("scores", "sensitivity", "epsilon"),
    [([], 1, 1.0), ([0.5], 1, 1.0), ([1], 0, 1.0), ([1], 1, 0.0), ([1], 1, math.inf)],
)
def test_what_cannot_be_chosen_from_is_refused(
    scores: list[Any], sensitivity: int, epsilon: float
) -> None:
    with pytest.raises(InputError, match="must be"):
        select_candidate(
            np.array(scores, None if scores else np.int64), sensitivity, epsilon, fresh_bits()
        )


@pytest.mark.parametrize("shares", [1, 4, 5])
def test_shares_together_have_the_noise_that_is_told(shares: int) -> None:
    """40,000 cells measured once a share, merged: mean 0 and the variance that `deviation` tells; false alarm 4e-7."""
    exact = [np.full((200, 200), 1000, np.int64)]
    unit = Stability(records=1, neighbors="add-remove")
    deviations = split_noise(RoundedGaussian(unit), 6.0, [(0, 1)], (200, 200), "equal")
    drawn = [
        m
        for _ in range(shares)
        for m in measure_marginals(GAUSSIAN, exact, [(0, 1)], deviations, fresh_bits())
    ]
    (merged,) = merge_observations(drawn)
    assert merged.deviation == pytest.approx(6.0 / math.sqrt(shares), rel=0.002)
    assert_noise((merged.counts - 1000).ravel().astype(np.float64), merged.deviation)


class RoundsOfTable:
    """Rounds of a table, drawn as they are due."""

    def __init__(self, folder: Path, **cliques: Any) -> None:
        self.stages, self.codes = measured_marginals(
            folder, aggregate__cliques={"adaptive": 2, **cliques}, privacy__epsilon=8.0
        )

    def run(self) -> int:
        """All rounds; how many they are."""
        left = list(self.stages.plan.draws)
        while (due := next((draw for draw in left if draw.is_due(self.stages)), None)) is not None:
            left.remove(due)
            self.stages.draw(due.name)
        return len(Rounds(self.stages).finished)


@pytest.mark.parametrize("annealing", [True, False])
def test_every_share_is_measured_at_its_price(annealing: bool, tmp_path: Path) -> None:
    """Each planned share once: what it measures has, together, the mu^2 of the plan, and the noise that is told: 4e-7 a share.

    Columns are independent, so that rounds teach nothing: annealed, five shares make rounds of 1 and 4; each chooses two pairs.
    """
    rounds = RoundsOfTable(tmp_path, rounds=5, batch=2, annealing=annealing)
    number = rounds.run()
    assert number == (2 if annealing else 5)
    stages = rounds.stages
    assert {name for name in stages.payloads if name.startswith("measure-")} == {
        f"measure-{i}" for i in range(1, 6)
    }
    assert len([name for name in stages.payloads if name.startswith("select-")]) == 2 * number
    for share in range(1, 6):
        measured = unpack_observations(stages.payloads[f"measure-{share}"])
        one = 1 if annealing and share == 1 else 2 if annealing else share
        assert [m.attributes for m in measured] == [
            unpack_pick(stages.payloads[f"select-{one}-{j}"])[0] for j in (1, 2)
        ]
        assert sum(m.deviation**-2 for m in measured) <= stages.parameter(
            f"measure-{share}"
        ) ** -2 * (1 + 1e-12)
        assert (
            sum(m.deviation**-2 for m in measured)
            >= stages.parameter(f"measure-{share}") ** -2 * 0.99
        )
        exact = count_marginals([rounds.codes], SIZES, [m.attributes for m in measured])
        noise = [
            (m.counts - table).ravel() / m.deviation
            for m, table in zip(measured, exact, strict=True)
        ]
        together = np.concatenate(noise)
        assert abs((together**2).mean() - 1) < 0.01 + 5.2 * math.sqrt(2 / together.size)
    merged = Rounds(stages).observed()
    assert len({m.attributes for m in merged}) == len(merged)
    assert len(stages.payloads) == 1 + 2 * number + 5


def test_a_set_in_coarser_bins_is_measured_as_the_sum_of_its_cells(tmp_path: Path) -> None:
    """Two numbers of 64 bins and a category, at an epsilon at which the finest tables would drown: each share as planned.

    Every table that is measured is the exact one, with cells of joined bins added up, and noise of the deviation that is
    stated: the mean square of 4 shares within 5.2 standard errors, false alarm 4e-7 a share.
    """
    rng = np.random.default_rng(4)
    first = rng.integers(0, 64, 5000)
    second = (first + rng.integers(0, 4, 5000)) % 64
    rows = [first, second, rng.integers(0, 3, 5000)]
    number = {"type": "number", "bins": {"min": 0, "max": 64, "step": 1}, "missing": []}
    columns = {name: {**number, "outside": "error"} for name in "ab"} | {"c": category(3)}
    config = configuration(
        columns=columns,
        **MARGINALS,
        aggregate__cliques={"adaptive": 2, "rounds": 4, "batch": 2, "coarsen": True},
        synthesize={"method": "mixture"},
    )
    sizes = public_sizes(config)
    stages = MeasuredTable(config, table_of([codes.tolist() for codes in rows], sizes), tmp_path)
    left = list(stages.plan.draws)
    while (due := next((draw for draw in left if draw.is_due(stages)), None)) is not None:
        left.remove(due)
        stages.draw(due.name)
    levels = drawn_one_way(stages).levels
    joined = 0
    for share in range(1, 5):
        measured = unpack_observations(stages.payloads[f"measure-{share}"])
        finest, coarse = by_level(measured, levels, len(sizes))
        joined += len(coarse)
        noise = []
        for observation in (*finest, *coarse):
            exact = np.zeros(observation.counts.shape, np.int64)
            codes = zip(observation.attributes, observation.codes, strict=True)
            np.add.at(exact, tuple(code[rows[a]] for a, code in codes), 1)
            noise.append((observation.counts - exact).ravel() / observation.deviation)
        together = np.concatenate(noise)
        assert abs((together**2).mean() - 1) < 0.01 + 5.2 * math.sqrt(2 / together.size)
        spent = sum(observation.deviation**-2 for observation in measured)
        assert spent == pytest.approx(stages.parameter(f"measure-{share}") ** -2, rel=0.01)
    assert joined
    observed = Rounds(stages).observed()
    assert len({m.attributes for m in observed}) == len(observed)


def test_all_that_a_round_draws_is_booked(tmp_path: Path) -> None:
    """One round: two choices and a share, each under its own name in the ledger."""
    rounds = RoundsOfTable(tmp_path, rounds=1, batch=2)
    assert rounds.run() == 1
    assert set(rounds.stages.payloads) == {"one-way", "select-1-1", "select-1-2", "measure-1"}


def test_the_choice_is_drawn_with_the_planned_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 first choices of a round among three pairs have the exact chances: chi^2, false alarm 1e-6."""
    rounds = RoundsOfTable(tmp_path, rounds=3, batch=1)
    told: list[tuple[NDArray[np.int64], int, float]] = []

    def choose(scores: NDArray[np.int64], sensitivity: int, epsilon: float, bits: DrawBits) -> int:
        told.append((scores, sensitivity, epsilon))
        return select_candidate(scores, sensitivity, epsilon, bits)

    monkeypatch.setattr(round_draws, "select_candidate", choose)
    rounds.run()
    scores, sensitivity, epsilon = told[0]
    draw = rounds.stages.plan.by_name["select-1-1"]
    assert (sensitivity, epsilon) == (2 * STEPS, draw.parameter)
    assert float(draw.cost.rho) >= epsilon**2 / 8
    cliques = candidate_sets(AdaptiveCliques(adaptive=2), SIZES)
    drawn = np.bincount(
        [cliques.index(unpack_pick(rounds.stages.again("select-1-1"))[0]) for _ in range(2000)],
        minlength=3,
    )
    expected = 2000 * chances(scores, sensitivity, epsilon)
    # the probability that some choice with less than one expected draw is drawn often is part of the alarm
    likely = expected > 5
    assert ((drawn - expected)[likely] ** 2 / expected[likely]).sum() < stats.chi2.isf(ALARM / 2, 2)
    assert (
        stats.binom.sf(drawn[~likely].sum() - 1, 2000, expected[~likely].sum() / 2000) > ALARM / 2
    )
