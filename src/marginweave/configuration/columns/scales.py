"""Bins of numbers on public scales: geometric ones, and the fine cells from which quantiles are bought."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from marginweave.configuration.values import FrozenModel, Number, Positive, Whole

FINE_CELLS = 256
"""Public cells over which a fine marginal is measured, where its quantiles are bought; fewer on a coarse grid."""
_DECADES = 4
"""From the largest bound down to the smallest magnitude that log bins tell from 0, where none is declared."""
_WIDE = 100
"""A range that spans a larger factor, or includes 0, has cells on the logarithmic scale."""

Edges = tuple[float, ...]


class LogBins(FrozenModel):
    """So many bins whose edges are spaced geometrically over the bounds.

    Where the bounds include 0, it has a bin of its own, up to `smallest`, and each side has log bins from there to its bound,
    as many as it has decades. Without one `smallest` is a ten-thousandth of the largest bound, or one step of `decimals`
    where that is more.
    """

    log: Annotated[Whole, Field(ge=1, le=10_000)]
    smallest: Positive | None = None


class QuantileBins(FrozenModel):
    """So many bins with about as many records each, whose edges are bought: a fine marginal is measured for them.

    It has 256 public cells over the bounds, on a `scale` that is linear or, where the bounds include 0 or span a factor above
    100, logarithmic as of `LogBins`; on a grid of `decimals` with fewer points a cell a point.
    """

    quantiles: Annotated[Whole, Field(ge=2, le=FINE_CELLS // 2)]
    scale: Literal["linear", "log"] | None = None
    smallest: Positive | None = None


class BoughtBins(FrozenModel):
    """Released edges in the place of quantiles, and the noisy fine marginal that they are from.

    `counts` are of the fine `cells`, as drawn, with noise of standard deviation `deviation`; every edge is one of a cell. No
    configuration that is written has them.
    """

    edges: tuple[Number, ...]
    cells: tuple[Number, ...]
    counts: tuple[int, ...]
    deviation: Number
    smallest: float | None = None
    """Of the logarithmic scale; None of the linear one."""


def smallest_of(bounds: tuple[float, float], declared: float | None, decimals: int | None) -> float:
    """The smallest magnitude above 0 that a logarithmic scale tells from it."""
    step = 0.0 if decimals is None else 10.0**-decimals
    return max(step, max(map(abs, bounds)) / 10**_DECADES if declared is None else declared)


def log_edges(bounds: tuple[float, float], count: int, smallest: float, decimals: int | None) -> Edges:
    """Edges of `count` log bins over the bounds, with three digits or, where that is too few, twelve.

    With 0 < low: low (high / low)^(i / count). Below 0 the mirror image. With 0 inside: [-smallest / 2, smallest) around 0, so
    that -smallest is no part of it, and geometric edges from `smallest` to the bound on either side.

    Raises:
        ValueError: bounds that leave no room for `smallest`, or fewer bins than there are sides.
    """
    exact = _exact(*bounds, count, smallest)
    tidy = [_rounded(edge, decimals) for edge in exact[1:-1]]
    if not all(low < high for low, high in pairwise([exact[0], *tidy, exact[-1]])):
        tidy = [float(f"{edge:.12g}") for edge in exact[1:-1]]
    return (exact[0], *tidy, exact[-1])


def fine_cells(bounds: tuple[float, float], bins: QuantileBins, decimals: int | None) -> tuple[Edges, float | None]:
    """Edges of the public cells of a fine marginal, and `smallest` of their scale, None of the linear one.

    With `decimals` every edge is rounded up to their grid, so that a cell holds some of its points.

    Raises:
        ValueError: as `log_edges`.
    """
    low, high = bounds
    points = math.inf if decimals is None else (high - low) * 10.0**decimals
    wide = low <= 0 <= high or max(abs(low), abs(high)) > _WIDE * min(abs(low), abs(high))
    if bins.scale == "log" or (bins.scale is None and wide and points > FINE_CELLS):
        smallest = smallest_of(bounds, bins.smallest, decimals)
        edges: Iterable[float] = _exact(low, high, FINE_CELLS, smallest)
    else:
        if bins.smallest is not None:
            raise ValueError("has smallest, which must not stand beside bins on a linear scale")
        smallest = None
        edges = (low + (high - low) * i / FINE_CELLS for i in range(FINE_CELLS + 1))
    inner = (float(f"{edge:.12g}") for edge in edges)
    if decimals is not None:
        inner = (_on_grid(edge, decimals, keeps=smallest is not None) for edge in inner)
    return (low, *sorted({edge for edge in inner if low < edge < high}), high), smallest


def zero_bin(edges: Sequence[float], smallest: float | None) -> int | None:
    """The place of the bin around 0 of a logarithmic scale; None where there is none."""
    if smallest is None or not edges[0] <= 0 <= edges[-1]:
        return None
    return min(bisect_right(edges, 0.0), len(edges) - 1) - 1


def _exact(low: float, high: float, count: int, smallest: float) -> list[float]:
    if low > 0:
        if not math.isfinite(high / low):
            raise ValueError("needs bounds for log bins whose ratio is a number")
        return [*(low * (high / low) ** (i / count) for i in range(count)), high]
    if high < 0:
        return [-edge for edge in reversed(_exact(-high, -low, count, smallest))]
    sides = [bound for bound in (-low, high) if bound]
    if not 0 < smallest < min(sides) or count <= len(sides):
        raise ValueError(
            f"needs a log bin for 0 and one for each side of it, and bounds beyond the smallest magnitude ({smallest:g})"
        )
    decades = [math.log(bound / smallest) for bound in (-low or smallest, high or smallest)]
    rest = count - 1
    below = round(rest * decades[0] / sum(decades))
    below = min(max(below, 1 if low else 0), rest - (1 if high else 0))
    left = [-edge for edge in reversed(_exact(smallest, -low, below, smallest))] if low else []
    right = _exact(smallest, high, rest - below, smallest) if high else []
    return [*left[:-1], *([-smallest / 2] if low else [0.0]), *(right or [0.0])]


def _rounded(edge: float, decimals: int | None) -> float:
    tidy = float(f"{edge:.3g}")
    return tidy if decimals is None else _on_grid(tidy, decimals, keeps=True)


def _on_grid(edge: float, decimals: int, *, keeps: bool) -> float:
    """The edge rounded up to a multiple of 10^-decimals; one between -10^-decimals and 0 may be kept, to tell 0 from below."""
    steps = round(edge * 10**decimals, 6)
    return edge if keeps and -1 < steps < 0 else math.ceil(steps) / 10**decimals
