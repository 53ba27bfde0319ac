"""What the stages hand to the ledger has the planned noise: they themselves are run, with nothing but the ledger left out.

The laws beside this one are about the functions that the stages call. A stage that called another one, or handed on the exact
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
from marginweave.counts.payloads import unpack_level, unpack_measurements
from marginweave.counts.selection import scoring
from marginweave.mechanisms.percentile import rank_scores, score_sensitivity
from marginweave.planning.prices import BOUND_KINDS, column_position
from marginweave.prepare.clean import HIGH_PERCENTILE, LOW_PERCENTILE
from marginweave.tasks import preprocess as preprocess_task
from marginweave.tasks.aggregate import combinations as task
from marginweave.tasks.aggregate import marginals as marginals_task
from tests.support.configurations import configuration
from tests.support.counting import count_marginal
from tests.support.level_draws import category, clopper_pearson, table_of
from tests.support.samples import every
from tests.support.stage_draws import ENCODED, SIZES, Stages, Z, assert_noise, marginal_stages


@pytest.mark.parametrize("theta", every(2, [1, 3], first=1))
def test_the_record_count(theta: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 draws of the count of 17 records: sd theta times the multiplier. The exact count has variance 0."""
    unit = "row" if theta == 1 else {"column": "id", "max_records": theta}
    config = configuration(columns={"a": category(3)}, privacy__unit=unit)
    stages = Stages(config, table_of([[1] * 17], [3]), tmp_path, monkeypatch)
    task.count_records(stages.reference, ENCODED)
    drawn = np.array([unpack_number(stages.makes["count"]()) for _ in range(4000)])
    assert_noise(drawn - 17.0, theta * stages.multiplier("count"))


@pytest.mark.parametrize("percentile", ["none", 99], ids=["cap", "percentile"])
def test_a_length_of_combinations(percentile: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 values that occur 10,000 times or never: noise on both, none suppressed by its exact count; false alarm 1e-6."""
    size, often = 20_000, 40
    config = configuration(
        columns={"a": category(size), "b": category(3)},
        aggregate={"reporting_length": 1, "percentile": percentile},
    )
    table = table_of([np.repeat(np.arange(often), 10_000).tolist(), [3] * 10_000 * often], [size, 3])
    stages = Stages(config, table, tmp_path, monkeypatch)
    task.aggregate_level(stages.reference, ENCODED, 1)
    drawn = unpack_level(stages.drawn["level-1"])
    bound = drawn.noise.contribution_bound
    sd = stages.multiplier("level-1") * math.sqrt(bound)
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
    assert abs((empty.astype(float) ** 2).mean() * len(empty) / (size + 3 - often) / (sd**2 / 2) - 1) < 0.1


def assert_chosen(draw: Callable[[], bytes], expected: NDArray[np.float64]) -> None:
    """The first candidate is chosen as often as the exponential mechanism has it; false alarm 1e-6 by Clopper-Pearson."""
    drawn = [unpack_number(draw()) for _ in range(2000)]
    low, high = clopper_pearson(drawn.count(1), len(drawn))
    assert low <= expected[0] <= high


def exponential(histogram: Sequence[int], percentile: float, epsilon: float, theta: int) -> NDArray[np.float64]:
    """Probabilities proportional to e^{epsilon s / (2 sensitivity)}, of the candidates 1, 2, …."""
    alone = Stability(records=theta, neighbors="add-remove")
    scores = rank_scores(np.array(histogram, np.int64), percentile)
    weights = np.exp(scores * (epsilon / (2 * score_sensitivity(percentile, alone))))
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


@pytest.mark.parametrize("theta", every(2, [1, 3], first=1))
def test_a_percentile_has_the_planned_epsilon(theta: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 records of one value and 30 of two, median: at twice epsilon, or without theta, another share of 2,000 draws is 1."""
    config = configuration(
        columns={"a": category(2), "b": category(3)},
        aggregate={"reporting_length": 1, "percentile": 50, "percentile_share": 0.5},
        privacy__unit="row" if theta == 1 else {"column": "id", "max_records": theta},
    )
    table = table_of([[1] * 70, [3] * 40 + [2] * 30], [2, 3])
    stages = Stages(config, table, tmp_path, monkeypatch)
    task.aggregate_level(stages.reference, ENCODED, 1)
    epsilon = stages.multiplier("percentile-1")
    right = exponential([0, 40, 30], 50, epsilon, theta)
    assert_chosen(stages.makes["percentile-1"], right)
    for wrong in (exponential([0, 40, 30], 50, 2 * epsilon, theta), exponential([0, 40, 30], 50, epsilon, 4 - theta)):
        assert abs(wrong[0] - right[0]) > 0.1  # nine standard errors


@pytest.mark.parametrize("theta", every(2, [1, 3], first=1))
def test_private_bounds_have_the_planned_epsilon(theta: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ages are 50: at twice epsilon, or without theta, another share of 2,000 bounds is on their side of the range."""
    config = configuration(
        columns={
            "age": {"type": "number", "bounds": "private", "within": [0, 120], "bins": 6, "decimals": 0},
            "b": category(3),
        },
        privacy__unit="row" if theta == 1 else {"column": "id", "max_records": theta},
    )
    rows = 40 if theta == 1 else 80
    clean = SimpleNamespace(table=pa.table({"age": [50.0] * rows}))
    stages = Stages(config, table_of([[1], [3]], [6, 3]), tmp_path, monkeypatch)
    stages.reference.derived = SimpleNamespace(checkpoint=lambda *_: ENCODED)
    monkeypatch.setattr(preprocess_task, "draw_once", stages.once)
    monkeypatch.setattr(preprocess_task, "open_clean", lambda *_: [clean])
    preprocess_task.release_bounds(stages.reference, ENCODED)
    column = config.columns["age"]
    assert isinstance(column, NumberColumn)
    at = int(np.searchsorted(column.bound_candidates, 50.0)) + 1
    histogram = np.bincount([at] * rows, minlength=len(column.bound_candidates) + 1)
    for kind, percentile in zip(BOUND_KINDS, (LOW_PERCENTILE, HIGH_PERCENTILE), strict=True):
        draw = str(stages.reference.plan.draw(kind, column_position(config, "age")))
        epsilon = stages.multiplier(draw)
        right, *wrong = (
            float(exponential(histogram.tolist(), percentile, e, t)[:at].sum())
            for e, t in ((epsilon, theta), (2 * epsilon, theta), (epsilon, 4 - theta))
        )
        assert min(abs(share - right) for share in wrong) > 0.1  # nine standard errors
        drawn = [unpack_number(stages.makes[draw]()) for _ in range(2000)]
        low, high = clopper_pearson(sum(number <= at for number in drawn), len(drawn))
        assert low <= right <= high


def assert_marginals(
    stages: Stages, name: str, cliques: Sequence[tuple[int, ...]], codes: Sequence[NDArray[np.int64]]
) -> None:
    """All cells have the noise that is told, and together the marginals cost what the draw is charged."""
    measured = unpack_measurements(stages.drawn[name])
    assert [m.attributes for m in measured] == list(cliques)
    assert sum(m.deviation**-2 for m in measured) <= stages.multiplier(name) ** -2 * (1 + 1e-12)
    noise = [(m.counts - count_marginal(codes, SIZES, m.attributes)).ravel() / m.deviation for m in measured]
    assert abs((np.concatenate(noise) ** 2).mean() - 1) < 0.01 + Z * math.sqrt(2 / sum(n.size for n in noise))
    assert min(np.abs(n).max() for n in noise) > 0


def test_single_attributes_and_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals over 270 and 23,900 cells, zeros included, by their standard deviations: false alarm 4e-7."""
    stages, codes = marginal_stages(tmp_path, monkeypatch, aggregate__cliques={"all": 2})
    marginals_task.measure_one_way(stages.reference, ENCODED)
    assert_marginals(stages, "one-way", [(0,), (1,), (2,)], codes)
    marginals_task.measure_larger(stages.reference, ENCODED)
    assert_marginals(stages, "marginals", list(itertools.combinations(range(3), 2)), codes)


def test_scores_of_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 draws of three scores: the deviation that is told, and every draw another: false alarm 1e-6."""
    stages, _ = marginal_stages(tmp_path, monkeypatch)
    marginals_task.measure_one_way(stages.reference, ENCODED)
    marginals_task.score_pairs(stages.reference, ENCODED)
    scores = np.array([unpack_arrays(stages.makes["selection"]())[0]["scores"] for _ in range(2000)])
    told = scoring(stages.reference.configuration, stages.reference.plan).score_sigma
    assert np.abs(scores.std(axis=0, ddof=1) / told - 1).max() < 0.01 + Z * math.sqrt(1 / (2 * 2000))
