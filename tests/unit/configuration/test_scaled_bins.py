"""Log bins: public edges, the same for every table."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.columns import NumberColumn
from tests.support.configurations import configuration


def column(**keys: Any) -> NumberColumn:
    found = configuration(columns={"x": {"type": "number", **keys}}).columns["x"]
    assert isinstance(found, NumberColumn)
    return found


def edges_of(low: float, high: float, bins: int, **keys: Any) -> tuple[float, ...]:
    return column(bounds=[low, high], bins={"log": bins, **keys}).edges


@given(st.floats(1e-3, 1e6), st.floats(1.5, 1e6), st.integers(1, 60))
def test_edges_above_zero_have_one_ratio(low: float, factor: float, bins: int) -> None:
    """Within the three digits to which they are rounded; the ends are the bounds, and below 0 stands the mirror image."""
    high = low * factor
    edges = edges_of(low, high, bins)
    assert (edges[0], edges[-1], len(edges)) == (low, high, bins + 1)
    exact = low * factor ** (np.arange(bins + 1) / bins)
    assert np.allclose(edges, exact, rtol=0.0051)
    assert all(a < b for a, b in pairwise(edges))
    assert tuple(-edge for edge in reversed(edges_of(-high, -low, bins))) == edges


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(3, 40), st.sampled_from([None, 0.5, 1.0]))
def test_zero_has_a_bin_and_each_side_its_decades(
    below: float, above: float, bins: int, smallest: float | None
) -> None:
    """Numbers as large as `smallest` are in none of its bins; the sides have bins in proportion to their decades."""
    assume(max(below, above) > 100 and all(side == 0 or side > 100 for side in (below, above)))
    keys = {} if smallest is None else {"smallest": smallest}
    found = column(bounds=[-below, above], bins={"log": bins, **keys})
    least = smallest or max(below, above) / 10_000
    assume(all(side == 0 or side > least for side in (below, above)))
    edges, zero = found.edges, found.zero
    assert zero is not None
    assert (edges[0], edges[-1], len(edges)) == (-below, above, bins + 1)
    assert edges[zero] <= 0 <= edges[zero + 1]
    assert (
        edges[zero] == (-least / 2 if below else 0) or abs(edges[zero] + least / 2) < 0.01 * least
    )
    assert above == 0 or edges[zero + 1] == pytest.approx(least, rel=0.0051)
    sides = [np.log(max(side, least) / least) for side in (below, above)]
    assert abs(zero - (bins - 1) * sides[0] / sum(sides)) <= 1


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"bins": {"log": 5}}, "needs public bounds"),
        ({"bounds": [0, 9], "bins": {"log": 5}, "outer": "open"}, "no outer: open"),
        ({"bounds": [1, 9], "bins": {"log": 5, "smallest": 1}}, "bounds that include 0 alone"),
        ({"bounds": [0, 9], "bins": {"log": 1}}, "needs a log bin for 0 and one for each side"),
        (
            {"bounds": [0, 9], "bins": {"log": 4, "smallest": 9}},
            "bounds beyond the smallest magnitude",
        ),
        (
            {"bounds": [1, 9], "bins": {"log": 30}, "decimals": 0},
            "without any number of 0 decimals",
        ),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        column(**keys)


SCALES: dict[str, dict[str, Any]] = {
    "log": {"bounds": [0, 1000], "bins": {"log": 6}},
    "log from": {"bounds": [0, 1000], "bins": {"log": 6, "smallest": 1}},
    "log above 0": {"bounds": [1, 1000], "bins": {"log": 6}},
    "equal": {"bounds": [0, 1000], "bins": 6},
    "edges": {"bins": [0, 10, 1000]},
    "open": {"bins": [0, 10, 1000], "outer": "open"},
    "steps": {"bins": {"min": 0, "max": 1000, "step": 10}},
    "private": {"bounds": "private", "within": [0, 1000], "bins": 6},
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("decimals", [13, 400, 10**9, 1e308, -1])
def test_decimals_that_no_double_has_are_refused_on_every_scale(
    scale: str, decimals: float
) -> None:
    """In the same words, at once: an edge times ten to the decimals is no number then."""
    with pytest.raises(
        InputError, match=r"has decimals \(-?\d+\), which must lie between 0 and 12 for its bounds"
    ):
        column(**SCALES[scale], decimals=decimals)
