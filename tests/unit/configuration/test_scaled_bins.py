"""Log bins and the fine cells of quantiles: public edges, the same for every table."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.columns import NumberColumn
from marginweave.prepare.quantiles import bought_bins
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
    assert edges[zero] == (-least / 2 if below else 0) or abs(edges[zero] + least / 2) < 0.01 * least
    assert above == 0 or edges[zero + 1] == pytest.approx(least, rel=0.0051)
    sides = [np.log(max(side, least) / least) for side in (below, above)]
    assert abs(zero - (bins - 1) * sides[0] / sum(sides)) <= 1


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"bins": {"log": 5}}, "needs public bounds"),
        ({"bounds": "private", "within": [0, 9], "bins": {"quantiles": 5}}, "needs public bounds"),
        ({"bounds": [0, 9], "bins": {"log": 5}, "outer": "open"}, "no outer: open"),
        ({"bounds": [1, 9], "bins": {"log": 5, "smallest": 1}}, "bounds that include 0 alone"),
        ({"bounds": [0, 9], "bins": {"log": 1}}, "needs a log bin for 0 and one for each side"),
        ({"bounds": [0, 9], "bins": {"log": 4, "smallest": 9}}, "bounds beyond the smallest magnitude"),
        ({"bounds": [1, 9], "bins": {"log": 30}, "decimals": 0}, "without any number of 0 decimals"),
        ({"bounds": [0, 9], "bins": {"quantiles": 10}, "decimals": 0}, "at most its 9 fine cells"),
        ({"bounds": [0, 9], "bins": {"quantiles": 4, "scale": "linear", "smallest": 1}}, "a linear scale"),
        ({"bounds": [0, 9], "bins": {"quantiles": 4}, "missing": [str(i) for i in range(150)]}, "missing codes beside"),
        ({"bounds": [0, 9], "bins": {"quantiles": 4}, "decimals": 0, "missing": ["3"]}, "in which every value is also"),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        column(**keys)


@given(
    st.sampled_from([(0, 400_000, None), (0, 120, 0), (-30, 45, None), (-1000, 0, 0), (1, 9999, 2), (1900, 2020, 0)]),
    st.integers(2, 90),
    st.sampled_from([None, "linear", "log"]),
    st.integers(0, 2**32 - 1),
)
def test_quantiles_are_bins_of_whole_cells_whatever_was_drawn(
    bounds: tuple[float, float, int | None], number: int, scale: str | None, seed: int
) -> None:
    """As many as declared, and each has a value of the column's grid: noise, however large, can make no configuration fail."""
    low, high, decimals = bounds
    keys = {} if decimals is None else {"decimals": decimals}
    scaled = {} if scale is None else {"scale": scale}
    declared = column(bounds=[low, high], bins={"quantiles": number, **scaled}, missing=[], **keys)
    cells, rng = declared.cells[0], np.random.default_rng(seed)
    assert 2 <= len(cells) <= 257
    counts = np.rint(rng.normal(0, 10.0 ** rng.integers(0, 6), len(cells) - 1) + rng.integers(0, 50)).astype(np.int64)
    found = declared.with_bins(bought_bins(declared, counts, 20.0))
    assert len(found.labels) == len(declared.labels) == number
    assert set(found.edges) <= set(cells)
    assert (found.edges[0], found.edges[-1]) == (low, high) == declared.clamp
    assert all(first <= last for first, last in map(found.grid, range(number)))


def test_quantiles_have_equal_parts_and_a_frequent_value_has_its_bin() -> None:
    """Of exact counts: ten bins of a tenth each; of a table half of which is 0, 0 alone and the rest in equal parts."""
    declared = column(bounds=[0, 400_000], bins={"quantiles": 10})
    rng = np.random.default_rng(3)
    values = np.minimum(rng.lognormal(7, 1.5, 50_000), 400_000)
    for zeros in (0, 50_000):
        x = np.append(values, np.zeros(zeros))
        counts = np.histogram(x, declared.cells[0])[0]
        edges = declared.with_bins(bought_bins(declared, counts, 1.0)).edges
        shares = np.histogram(x, edges)[0] / len(x)
        wanted = [0.1] * 10 if not zeros else [0.5, *[0.5 / 9] * 9]
        assert np.allclose(shares, wanted, atol=0.02)
