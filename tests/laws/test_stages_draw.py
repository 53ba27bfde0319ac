"""What is drawn has the planned noise: measurements of a plan count and draw, with nothing but the ledger left out.

The laws beside this one are about the functions that measurements call. One that called another one, or handed on the exact
count, would break none of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from marginweave.base.budget import Stability
from marginweave.checkpoints.codecs import unpack_arrays, unpack_number
from marginweave.configuration.columns import NumberColumn
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.quantile_bounds import (
    BOUNDS,
    HIGH_PERCENTILE,
    LOW_PERCENTILE,
    column_position,
)
from marginweave.mechanisms.percentile import rank_scores, score_sensitivity
from marginweave.observations.payloads import unpack_level, unpack_observations
from tests.support.configurations import configuration
from tests.support.counting import count_marginal
from tests.support.level_draws import category, clopper_pearson, table_of
from tests.support.samples import every
from tests.support.stage_draws import SIZES, MeasuredTable, Z, assert_noise, measured_marginals


@pytest.mark.parametrize("theta", every(2, [1, 3], first=1))
def test_the_record_count(theta: int, tmp_path: Path) -> None:
    """4,000 draws of the count of 17 records: sd theta times the multiplier. The exact count has variance 0."""
    unit = "row" if theta == 1 else {"column": "id", "max_records": theta}
    config = configuration(columns={"a": category(3)}, privacy__unit=unit)
    stages = MeasuredTable(config, table_of([[1] * 17], [3]), tmp_path)
    stages.draw("count")
    drawn = np.array([unpack_number(stages.again("count")) for _ in range(4000)])
    assert_noise(drawn - 17.0, theta * stages.parameter("count"))


@pytest.mark.parametrize("percentile", ["none", 99], ids=["cap", "percentile"])
def test_a_length_of_combinations(percentile: Any, tmp_path: Path) -> None:
    """20,000 values that occur 10,000 times or never: noise on both, none suppressed by its exact count; false alarm 1e-6."""
    size, often = 20_000, 40
    config = configuration(
        columns={"a": category(size), "b": category(3)},
        aggregate={"reporting_length": 1, "percentile": percentile},
    )
    table = table_of(
        [np.repeat(np.arange(often), 10_000).tolist(), [3] * 10_000 * often], [size, 3]
    )
    stages = MeasuredTable(config, table, tmp_path)
    for draw in stages.plan.draws:
        if draw.length == 1:
            stages.draw(draw.name)
    drawn = unpack_level(stages.payloads["level-1"])
    bound = drawn.noise.contribution_bound
    sd = stages.parameter("level-1") * math.sqrt(bound)
    assert bound in {1, 2}
    assert drawn.noise.deviation == pytest.approx(sd, abs=1 / 1024)
    level = drawn.level
    frequent = (level.columns[:, 0] == 0) & (level.values[:, 0] < often)
    assert frequent.sum() == often
    assert_noise(level.counts[frequent] - 10_000.0, sd)
    empty = level.counts[~frequent]
    low, high = clopper_pearson(len(empty), size + 3 - often)
    assert low <= ndtr(-0.5 / sd) <= high
    # the positive half of symmetric noise has its mean square
    assert (
        abs((empty.astype(float) ** 2).mean() * len(empty) / (size + 3 - often) / (sd**2 / 2) - 1)
        < 0.1
    )


def assert_chosen(draw: Callable[[], bytes], expected: NDArray[np.float64]) -> None:
    """The first candidate is chosen as often as the exponential mechanism has it; false alarm 1e-6 by Clopper-Pearson."""
    drawn = [unpack_number(draw()) for _ in range(2000)]
    low, high = clopper_pearson(drawn.count(1), len(drawn))
    assert low <= expected[0] <= high


def exponential(
    histogram: Sequence[int], percentile: float, epsilon: float, theta: int
) -> NDArray[np.float64]:
    """Probabilities proportional to e^{epsilon s / (2 sensitivity)}, of the candidates 1, 2, …."""
    alone = Stability(records=theta, neighbors="add-remove")
    scores = rank_scores(np.array(histogram, np.int64), percentile)
    weights = np.exp(scores * (epsilon / (2 * score_sensitivity(percentile, alone))))
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


@pytest.mark.parametrize("theta", every(2, [1, 3], first=1))
def test_a_percentile_has_the_planned_epsilon(theta: int, tmp_path: Path) -> None:
    """40 records of one value and 30 of two, median: at twice epsilon, or without theta, another share of 2,000 draws is 1."""
    config = configuration(
        columns={"a": category(2), "b": category(3)},
        aggregate={"reporting_length": 1, "percentile": 50, "percentile_share": 0.5},
        privacy__unit="row" if theta == 1 else {"column": "id", "max_records": theta},
    )
    table = table_of([[1] * 70, [3] * 40 + [2] * 30], [2, 3])
    stages = MeasuredTable(config, table, tmp_path)
    stages.draw("percentile-1")
    epsilon = stages.parameter("percentile-1")
    right = exponential([0, 40, 30], 50, epsilon, theta)
    assert_chosen(lambda: stages.again("percentile-1"), right)
    for wrong in (
        exponential([0, 40, 30], 50, 2 * epsilon, theta),
        exponential([0, 40, 30], 50, epsilon, 4 - theta),
    ):
        assert abs(wrong[0] - right[0]) > 0.1  # nine standard errors


@pytest.mark.parametrize("theta", every(2, [1, 3], first=1))
def test_private_bounds_have_the_planned_epsilon(theta: int, tmp_path: Path) -> None:
    """All ages are 50: at twice epsilon, or without theta, another share of 2,000 bounds is on their side of the range."""
    config = configuration(
        columns={
            "age": {
                "type": "number",
                "bounds": "private",
                "within": [0, 120],
                "bins": 6,
                "decimals": 0,
            },
            "b": category(3),
        },
        privacy__unit="row" if theta == 1 else {"column": "id", "max_records": theta},
    )
    rows = 40 if theta == 1 else 80
    clean = SimpleNamespace(table=pa.table({"age": [50.0] * rows}))
    stages = MeasuredTable(config, table_of([[1], [3]], [6, 3]), tmp_path, [clean])
    column = config.columns["age"]
    assert isinstance(column, NumberColumn)
    at = int(np.searchsorted(column.bound_candidates, 50.0)) + 1
    histogram = np.bincount([at] * rows, minlength=len(column.bound_candidates) + 1)
    for kind, percentile in zip(BOUNDS, (LOW_PERCENTILE, HIGH_PERCENTILE), strict=True):
        draw = stages.plan.draw(kind, column_position(config, "age")).name
        stages.draw(draw)
        epsilon = stages.parameter(draw)
        right, *wrong = (
            float(exponential(histogram.tolist(), percentile, e, t)[:at].sum())
            for e, t in ((epsilon, theta), (2 * epsilon, theta), (epsilon, 4 - theta))
        )
        assert min(abs(share - right) for share in wrong) > 0.1  # nine standard errors
        drawn = [unpack_number(stages.again(draw)) for _ in range(2000)]
        low, high = clopper_pearson(sum(number <= at for number in drawn), len(drawn))
        assert low <= right <= high


def assert_marginals(
    stages: MeasuredTable,
    name: str,
    cliques: Sequence[tuple[int, ...]],
    codes: Sequence[NDArray[np.int64]],
) -> None:
    """All cells have the noise that is told, and together the marginals cost what the draw is charged."""
    measured = unpack_observations(stages.payloads[name])
    assert [m.attributes for m in measured] == list(cliques)
    assert sum(m.deviation**-2 for m in measured) <= stages.parameter(name) ** -2 * (1 + 1e-12)
    noise = [
        (m.counts - count_marginal(codes, SIZES, m.attributes)).ravel() / m.deviation
        for m in measured
    ]
    assert abs((np.concatenate(noise) ** 2).mean() - 1) < 0.01 + Z * math.sqrt(
        2 / sum(n.size for n in noise)
    )
    assert min(np.abs(n).max() for n in noise) > 0


def test_single_attributes_and_pairs(tmp_path: Path) -> None:
    """Residuals over 270 and 23,900 cells, zeros included, by their standard deviations: false alarm 4e-7."""
    stages, codes = measured_marginals(tmp_path, aggregate__cliques={"all": 2})
    stages.draw("one-way")
    assert_marginals(stages, "one-way", [(0,), (1,), (2,)], codes)
    stages.draw("marginals")
    assert_marginals(stages, "marginals", list(itertools.combinations(range(3), 2)), codes)


def test_scores_of_pairs(tmp_path: Path) -> None:
    """2,000 draws of three scores: the deviation that is told, and every draw another: false alarm 1e-6."""
    stages, _ = measured_marginals(tmp_path)
    stages.draw("one-way")
    stages.draw("selection")
    scores = np.array([unpack_arrays(stages.again("selection"))[0]["scores"] for _ in range(2000)])
    told = stages.plan.draw(PairScores).grid(stages.configuration).score_sigma
    assert np.abs(scores.std(axis=0, ddof=1) / told - 1).max() < 0.01 + Z * math.sqrt(
        1 / (2 * 2000)
    )
