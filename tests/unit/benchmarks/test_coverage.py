"""The benchmark of answers: what it counts, and what its page says of it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.accuracy.coverage import Tally, codes, published
from benchmarks.accuracy.coverage_page import covered, section
from benchmarks.accuracy.tables import Table
from marginweave.domain.labels import Domain

TABLE = Table(
    header=("sex", "town"),
    rows=[["f", "a"], ["m", "c"], ["f", ""], ["f", "a"]],
    domain={"sex": ["f", "m"], "town": ["", "a", "b", "c"]},
)
ROWS = codes(TABLE, (2, 4))
DOMAIN = Domain(names=("sex", "town"), labels=(("f", "m"), ("a", "b", "c")))


def line(count: int, low: int, high: int, **named: str) -> dict[str, object]:
    columns = [*named, *([None] * (2 - len(named)))]
    return {
        "count": count, "low": low, "high": high,
        **{f"column_{i}": name for i, name in enumerate(columns, 1)},
        **{f"value_{i}": named.get(name or "") for i, name in enumerate(columns, 1)},
    }  # fmt: skip


def test_rows_have_the_codes_of_the_release() -> None:
    assert ROWS.tolist() == [[0, 0], [1, 2], [0, 3], [0, 0]]


def test_published_intervals_are_compared_with_the_rows() -> None:
    tally = Tally(rows=4)
    lines = [
        line(3, 2, 4, sex="f"),
        line(3, 2, 4, sex="m"),
        line(0, 0, 1, sex="f", town="a"),
        line(1, 0, 2, sex="f", town="b"),
    ]
    published(pd.DataFrame(lines), DOMAIN, ROWS, tally)
    one, two = tally.sums["published, 1"], tally.sums["published, 2"]
    # 3 f are there, and 1 m is outside by 1
    assert one == pytest.approx([2, 1, 2 + 2 + 40 * 1, 4.0, 0])
    assert two == pytest.approx([2, 1, 1 + 2 + 40 * 1, 5.0, 0])


def test_a_release_is_one_observation_of_a_share() -> None:
    """Questions of one release share its noise: ten releases of which one covers nothing say less than their questions."""
    releases = [{"sums": {"mean": [100, 0 if i == 0 else 100, 0, 0, 0]}} for i in range(10)]
    assert covered(releases, "mean") == "90.0 ± 32.9"
    assert covered(releases[:1], "mean") == "0.0"
    assert covered(releases, "quantile") == ""


def test_the_score_of_the_best_interval_is_one() -> None:
    """Normal errors of which the standard deviation is known, in intervals of 1.96 of it."""
    rng, tally, sd = np.random.default_rng(1), Tally(rows=1000), 7.0
    for _ in range(20_000):
        error = rng.normal(0, sd)
        tally.add("inside", 50.0, (50 + error, 50 + error - 1.96 * sd, 50 + error + 1.96 * sd), sd)
    figure = {"table": "made", "method": "default", "epsilon": 1.0, "sums": dict(tally.sums)}
    told = {text.split(" | ")[0]: text.split(" | ") for text in section([figure])}
    line = told["| inside, 1 to 10 % of the rows"]
    assert 0.98 < float(line[5].split(" to ")[0]) < 1.02
    assert 94.0 < float(line[3]) < 96.0
