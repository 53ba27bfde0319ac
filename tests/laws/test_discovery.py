"""Discovery of private values for marginals: a value of one unit alone is published with probability delta at most.

Many trials fit one draw: units whose values nobody else has are independent trials, because every value has noise of its own.
Bounds are Clopper-Pearson's at a false alarm rate of 1e-6 a test; each fault of the last test is caught by the same bound.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from marginweave.configuration.release import Configuration
from marginweave.counts.released_rows import count_values
from marginweave.measurements import private_values as domain
from marginweave.measurements.private_values import PrivateValues, discover_labels
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.noise_table import noise_table
from marginweave.mechanisms.randomness import fresh_bits
from tests.support.configurations import PRIVATE, configuration
from tests.support.level_draws import clopper_pearson, table_of

SUBJECTS = 40_000
DELTA = 0.1


def config_of(theta: int, columns: int, neighbors: Any) -> Configuration:
    """`columns` private columns, theta rows a subject; delta_threshold is DELTA."""
    return configuration(
        columns={f"c{j}": PRIVATE for j in range(columns)},
        privacy={
            "epsilon": 4.0,
            "delta": 2 * DELTA,
            "weak_delta": "a law that can be measured",
            "unit": {"column": "id", "max_records": theta},
            "neighbors": neighbors,
        },
        aggregate={"method": "marginals", "delta_threshold_share": 0.5, "cliques": {"all": 1}},
    )


def exposed(
    config: Configuration, theta: int, columns: int, *, alike: bool
) -> tuple[int, Fraction]:
    """How many of the subjects have a value of their own published, and the exact probability for one."""
    plan = plan_budget(config)
    draw = plan.draw(PrivateValues)
    sd, threshold = draw.sigma(config), draw.threshold(config)
    owner = np.repeat(np.arange(SUBJECTS), theta)
    own = owner if alike else np.arange(SUBJECTS * theta)
    table = table_of([own.tolist()] * columns, [int(own.max()) + 1] * columns)
    found = discover_labels(
        count_values([table], range(columns)), table.labels, sd, threshold, fresh_bits()
    )
    rows = [int(label[1:]) for labels in found.values() for label in labels]
    shown = {value if alike else int(owner[value]) for value in rows}
    count, values = (theta, columns) if alike else (1, theta * columns)
    return len(shown), 1 - (1 - noise_table(sd).upper_tail(threshold - count)) ** values


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    "alike", [False, True], ids=["theta p values of count 1", "p values of count theta"]
)
@pytest.mark.parametrize(("theta", "columns"), [(1, 1), (1, 3), (3, 2)])
def test_own_values_are_published_with_probability_delta_at_most(
    theta: int, columns: int, alike: bool, neighbors: str
) -> None:
    """40,000 subjects; at most delta_threshold = 0.1, and what the table says exactly. False alarm 1e-6."""
    config = config_of(theta, columns, neighbors)
    assert plan_budget(config).delta_threshold == pytest.approx(DELTA)
    shown, exact = exposed(config, theta, columns, alike=alike)
    low, high = clopper_pearson(shown, SUBJECTS)
    assert exact <= DELTA
    assert low <= DELTA
    assert low <= exact <= high


def of_one_row(real: Callable[..., int]) -> Callable[..., int]:
    return lambda sd, held, _records, delta: real(sd, held, 1, delta)


def of_one_column(real: Callable[..., int]) -> Callable[..., int]:
    return lambda sd, _held, records, delta: real(sd, 1, records, delta)


def without_one_more(real: Callable[..., int]) -> Callable[..., int]:
    return lambda *given: real(*given) - 1


def none_at_all(_: Callable[..., int]) -> Callable[..., int]:
    return lambda *_: 1


@pytest.mark.parametrize("fault", [of_one_row, of_one_column, without_one_more, none_at_all])
def test_a_lower_threshold_would_be_found(
    fault: Callable[[Callable[..., int]], Callable[..., int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """theta forgotten, the number of columns forgotten, no + 1, no threshold: above delta in one of the extremes."""
    monkeypatch.setattr(domain, "private_threshold", fault(domain.private_threshold))
    bounds = []
    for alike in (False, True):
        shown, _ = exposed(config_of(3, 2, "add-remove"), 3, 2, alike=alike)
        bounds.append(clopper_pearson(shown, SUBJECTS)[0])
    assert max(bounds) > DELTA
