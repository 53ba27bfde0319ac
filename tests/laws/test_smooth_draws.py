"""Where values lie inside bins: smooth and log-uniform draws keep every bin, and follow their neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from marginweave.base.arrays import Floats
from marginweave.columns import values_of
from marginweave.columns.draws import BelowCurve
from marginweave.columns.shapes import number_shape, smooth
from marginweave.configuration.columns import NumberColumn
from tests.support.configurations import configuration

DRAWS = 20_000


def column(**keys: Any) -> NumberColumn:
    found = configuration(columns={"x": {"type": "number", "missing": [], **keys}}).columns["x"]
    assert isinstance(found, NumberColumn)
    return found


def shape(found: NumberColumn, counts: Floats) -> BelowCurve:
    known = number_shape(found, counts, found.resolution)
    assert isinstance(known, BelowCurve)
    return known


edges = st.lists(st.integers(-500, 500), min_size=3, max_size=12, unique=True).map(sorted)
COLUMNS = st.one_of(
    edges.map(lambda e: column(bins=e)),
    edges.map(lambda e: column(bins=e, decimals=0)),
    st.integers(4, 12).map(
        lambda n: column(bounds=[0, 4000], bins={"log": n, "smallest": 1}, decimals=0)
    ),
    st.integers(4, 12).map(lambda n: column(bounds=[-90, 4000], bins={"log": n})),
    st.integers(4, 12).map(lambda n: column(bounds=[-90, 0], bins={"log": n}, draw="log-uniform")),
    edges.map(lambda e: column(bins=e, draw="log-uniform")),
)


@given(COLUMNS, st.data())
def test_every_bin_keeps_its_share_and_nothing_is_negative(
    found: NumberColumn, data: st.DataObject
) -> None:
    """The distribution function never falls and is exact at every edge: the mass of a bin is its count."""
    bins, unit = len(found.labels), 10.0**-found.resolution
    counts = np.array(
        data.draw(st.lists(st.integers(0, 1000), min_size=bins, max_size=bins)), np.float64
    )
    assume(counts.any())
    known = shape(found, counts)
    assert (np.diff(known.edges) > 0).all()
    assert (np.diff(known.below) >= 0).all()
    places = np.array([*found.edges[:-1], found.edges[-1] + unit]) / unit
    weights = np.ones(bins) if found.draw == "log-uniform" else counts
    below = np.interp(places, known.edges, known.below)
    assert np.allclose(np.diff(below), weights, atol=1e-9 * weights.sum())


@given(COLUMNS, st.integers(0, 2**32 - 1))
def test_a_draw_stays_in_its_bin_and_on_the_grid(found: NumberColumn, seed: int) -> None:
    """encode(decode(codes)) is codes, and what is declared whole is whole."""
    rng, bins = np.random.default_rng(seed), len(found.labels)
    counts = rng.integers(0, 50, bins) * rng.integers(0, 2, bins).astype(np.float64)
    codes = rng.integers(0, bins + 1, 400).astype(np.int32)
    kind = values_of(found, (), counts)
    values = kind.decode(codes, found.labels, rng.random)
    assert (kind.encode(values, None) == codes).all()
    numbers = values.drop_null().to_numpy()
    assert np.allclose(
        numbers * 10**found.resolution, np.rint(numbers * 10**found.resolution), atol=1e-3
    )


@given(st.lists(st.floats(1, 100), min_size=5, max_size=10), st.data())
def test_values_lean_towards_the_fuller_neighbor(widths: list[float], data: st.DataObject) -> None:
    """Where density falls from bin to bin, inner bins have a mean below their middle, by h^2 (m_0 - m_1) / (12 mass).

    Oracle: the integral of a cubic with the end slopes m_0, m_1, weighted harmonic means of the densities (Fritsch, Butland).
    """
    places = np.concatenate([[0.0], np.cumsum(np.round(widths, 2))])
    h, size = np.diff(places), len(widths)
    falls = data.draw(st.lists(st.floats(0.2, 0.9), min_size=size, max_size=size))
    density: Floats = np.cumprod(falls).astype(np.float64) * 100
    known = shape(column(bins=places.tolist()), (density * h).astype(np.float64))
    unit = 10.0 ** -column(bins=places.tolist()).resolution
    for i in range(1, size - 2):
        slopes = []
        for j in (i, i + 1):
            w1, w2 = 2 * h[j] + h[j - 1], h[j] + 2 * h[j - 1]
            slopes.append((w1 + w2) / (w1 / density[j - 1] + w2 / density[j]))
        mean = (places[i] + places[i + 1]) / 2 - h[i] ** 2 * (slopes[0] - slopes[1]) / (
            12 * density[i] * h[i]
        )
        inside = np.linspace(places[i], places[i + 1], 4001)
        below = (
            np.interp(inside / unit, known.edges, known.below)
            - known.below[known.edges.searchsorted(places[i] / unit)]
        )
        found = places[i + 1] - np.trapezoid(below, inside) / (density[i] * h[i])
        assert abs(found - mean) < 2e-3 * h[i]
        assert found < (places[i] + places[i + 1]) / 2


def test_log_uniform_is_uniform_in_the_logarithm() -> None:
    """The largest distance of 20,000 draws from the uniform distribution: above 0.02 with probability below 4e-7 (Massart)."""
    found = column(bins=[1, 40, 5000], draw="log-uniform")
    values = (
        values_of(found, ())
        .decode(np.ones(DRAWS, np.int32), found.labels, np.random.default_rng(1).random)
        .to_numpy()
    )
    u = np.sort(np.log(values / 40) / np.log(5000 / 40))
    assert np.abs(u - (np.arange(DRAWS) + 0.5) / DRAWS).max() < 0.02


def test_zero_of_log_bins_is_zero() -> None:
    """The bin of 0 gives 0."""
    found = column(bounds=[-50, 9000], bins={"log": 9, "smallest": 2})
    assert found.zero is not None
    counts = np.arange(9.0) + 1
    zeros = values_of(found, (), counts).decode(
        np.full(50, found.zero), found.labels, np.random.default_rng(0).random
    )
    assert set(zeros.to_pylist()) == {0.0}


@given(edges, st.data())
def test_between_edges_is_the_cubic_that_scipy_finds(
    places: list[int], data: st.DataObject
) -> None:
    """Bit for bit: releases are the same wherever the curve comes from."""
    bins = len(places) - 1
    counts = np.array(
        data.draw(st.lists(st.integers(0, 1000), min_size=bins, max_size=bins)), np.float64
    )
    known = smooth(places, counts, None, 1.0, is_log=False)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    ends = np.array([*places[:-1], places[-1] + 1.0])
    expected = np.clip(PchipInterpolator(ends, below)(known.edges), 0.0, below[-1])
    assert np.array_equal(known.below, np.maximum.accumulate(expected))
