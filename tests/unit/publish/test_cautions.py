"""Warnings: each appears where it should, and not a step before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from marginweave.domain.combinations import Level
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.percentile import rank_error
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.publish.statement import promise
from marginweave.publish.wording import invented, reader_warnings
from tests.support.configurations import configuration
from tests.support.noisy_counts import domain_of
from tests.support.published import FACTS


def released(count: int = 10**6, candidates: int | None = 20, threshold: int = 30) -> Aggregates:
    """17 released values of deviation 10; by default thresholds keep nearly all empty ones out."""
    values = np.arange(17).reshape(-1, 1)
    level = Level(length=1, columns=np.zeros_like(values), values=values, counts=np.full(17, 100))
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=10.0,
        threshold=threshold,
        private_threshold=0,
        candidates=candidates,
    )
    return Aggregates(
        domain=domain_of((17,)),
        record_count=count,
        record_deviation=10.0,
        levels=(level,),
        noise=(noise,),
    )


def found(aggregates: Aggregates, **changes: Any) -> str:
    """The warnings of a configuration whose percentiles cost what they are planned to cost."""
    config = configuration(**changes)
    mechanisms = promise(config, plan_budget(config), FACTS).mechanisms
    return " ".join(map(str, reader_warnings(config, aggregates, mechanisms, ())))


def test_a_good_release_has_none() -> None:
    assert found(released(), privacy__delta=1e-10) == ""


@pytest.mark.parametrize(
    ("changes", "aggregates", "said"),
    [
        ({"privacy__epsilon": 5.1}, released(), "epsilon (5.1) is above 5"),
        ({"privacy__delta": 1e-6}, released(10**6), "delta (1e-06) is at least 1/n"),
        ({"privacy__delta": 1e-8}, released(10**6), "1/n^1.5 would be 1.0e-09"),
        (
            {"privacy__neighbors": "replace-one"},
            released(),
            "number of records itself is not protected",
        ),
        (
            {},
            released(500),
            "The automatic cap on contributions (percentile 99, combinations of 1, 2, 3) is unreliable",
        ),
        ({}, released(candidates=40, threshold=1), "may be noise only: half"),
        ({}, replace(released(), levels=(Level.empty(1),)), "No combination was released"),
    ],
)
def test_each_has_its_occasion(changes: dict[str, Any], aggregates: Aggregates, said: str) -> None:
    if "may be noise only" in said:
        said = f"About {round(invented(40, 17, 10.0, 1))} of the 17 published counts of 1 value may be noise only: half"
    assert said in found(aggregates, **changes)


@pytest.mark.parametrize(
    ("candidates", "said"), [(1 << 26, "About 17 of"), ((1 << 26) + 1, "Up to 17 of")]
)
def test_a_bound_on_the_candidates_is_not_told_as_their_number(candidates: int, said: str) -> None:
    level = Level(
        length=3,
        columns=np.zeros((17, 3), int),
        values=np.zeros((17, 3), int),
        counts=np.full(17, 100),
    )
    one = released(candidates=candidates, threshold=1)
    aggregates = replace(one, levels=(level,), noise=(replace(one.noise[0], length=3),))
    assert said in found(aggregates)


def test_why_a_length_was_cut_holds_for_either_reason() -> None:
    """A threshold is raised for what may be kept, or for what noise alone may lift of the superset."""
    aggregates = replace(released(), noise=(replace(released().noise[0], raised_from=3),))
    assert "might have reached the threshold" in found(aggregates)
    assert "too many drawn to choose them from" in found(aggregates)


def test_a_step_before_there_is_none() -> None:
    assert "above 5" not in found(released(), privacy__epsilon=5.0)
    assert "at least 1/n" not in found(released(10**6 - 1), privacy__delta=1e-6)
    assert "percentile" not in found(released(500), aggregate__percentile="none")
    assert "noise only" not in found(released(candidates=None, threshold=1))


def test_of_a_private_domain_the_public_ones_beside_it_are_told() -> None:
    """Two released values of 14 public candidates, at a threshold that half of the empty ones reach."""
    private = {"columns__region": {"type": "category", "domain": "private"}}
    columns = np.array([[0], [0], [1], [1], [1]])
    level = Level(
        length=1, columns=columns, values=np.array([[0], [1], [0], [1], [2]]), counts=np.full(5, 9)
    )
    aggregates = replace(released(candidates=None, threshold=1), levels=(level,))
    assert (
        "About 2 of the 2 published counts of 1 value with public domains may be noise only"
        in found(aggregates, **private)
    )
    high = replace(aggregates, noise=(replace(aggregates.noise[0], threshold=30),))
    assert "with public domains" not in found(high, **private)


def test_a_percentile_means_something_from_the_n_at_which_enough_lie_above_it() -> None:
    config = configuration()
    epsilon = next(
        draw.parameter for draw in plan_budget(config).draws if draw.name == "percentile-1"
    )
    error = rank_error(99, config.stability, epsilon, 4)  # 4 columns: a record has at most 4 values
    assert error == pytest.approx(2 * 0.99 / epsilon * np.log(4 / 0.05))
    assert "combinations of 1, 2, 3" in found(released(round(100 * error) - 1))
    assert "combinations of 2)" in found(released(round(100 * error) + 1))


@pytest.mark.parametrize(("empty", "threshold"), [(2000, 1), (2000, 8), (300, 12)])
def test_invented_combinations_are_estimated(empty: int, threshold: int) -> None:
    """Empty candidates and 50 that are far above the threshold: the estimate is what empty ones give, within 6 deviations."""
    rng = np.random.default_rng(5)
    false = int((np.rint(rng.normal(0, 10.0, empty)) >= threshold).sum())
    estimate = invented(empty + 50, false + 50, 10.0, threshold)
    q = false / empty
    assert abs(estimate - false) < 6 * np.sqrt(empty * q / (1 - q))
    assert invented(10, 10, 0.0, 1) == 0
