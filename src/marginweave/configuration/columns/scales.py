"""Bins of numbers on a public geometric scale."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from marginweave.configuration.values import FrozenModel, Positive, Whole

_DECADES = 4
"""Decades from the largest bound down to the smallest magnitude that log bins distinguish from 0, if none is declared."""

Edges = tuple[float, ...]


class LogBins(FrozenModel):
    """A number `log` of bins whose edges are spaced geometrically over the bounds.

    Where the bounds include 0, it has a separate bin, up to `smallest`. Each side has log bins from there to its bound, in
    proportion to its decades. If `smallest` is left out, it is a ten-thousandth of the largest bound, or one step of `decimals`
    where that is more.
    """

    log: Annotated[Whole, Field(ge=1, le=10_000)]
    smallest: Positive | None = None


def smallest_of(bounds: tuple[float, float], declared: float | None, decimals: int | None) -> float:
    """Return the smallest magnitude above 0 that a logarithmic scale distinguishes from 0."""
    step = 0.0 if decimals is None else 10.0**-decimals
    if declared is not None:
        return max(step, declared)
    largest = max(map(abs, bounds))
    return max(step, largest / 10**_DECADES)


def log_edges(
    bounds: tuple[float, float], count: int, smallest: float, decimals: int | None
) -> Edges:
    """Return the edges of `count` log bins over the bounds, of three digits and rounded to `decimals`.

    Where rounding makes edges equal, all have twelve digits instead, whatever `decimals` is, because edges must increase.

    With 0 < low: low (high / low)^(i / count). Below 0 the mirror image. With 0 inside: [-smallest / 2, smallest) around 0, so
    that -smallest is no part of it, and geometric edges from `smallest` to the bound on either side.

    Raises:
        ValueError: bounds that leave no room for `smallest`, or fewer bins than there are sides.
    """
    first, *inner, last = _exact_edges(*bounds, count, smallest)
    rounded = (first, *(_rounded(edge, decimals) for edge in inner), last)
    if all(low < high for low, high in pairwise(rounded)):
        return rounded
    tidy = [float(f"{edge:.12g}") for edge in inner]
    return (first, *tidy, last)


def zero_bin(edges: Sequence[float]) -> int | None:
    """Return the index of the bin around 0 of a logarithmic scale; None where there is none."""
    if not edges[0] <= 0 <= edges[-1]:
        return None
    return min(bisect_right(edges, 0.0), len(edges) - 1) - 1


def _exact_edges(low: float, high: float, count: int, smallest: float) -> list[float]:
    """Return the edges of `log_edges` before they are rounded; raises ValueError as it does."""
    if low > 0:
        return _geometric_edges(low, high, count)
    if high < 0:
        return _mirrored(_geometric_edges(-high, -low, count))
    sides = [bound for bound in (-low, high) if bound]
    has_room_for_zero = 0 < smallest < min(sides)
    has_a_bin_each = count > len(sides)
    if not (has_room_for_zero and has_a_bin_each):
        raise ValueError(
            f"needs a log bin for 0 and one for each side of it, and bounds beyond the smallest magnitude ({smallest:g})"
        )
    # The bins but the one of 0 are divided in proportion to the decades of each side; a side has at least one.
    decades_below = math.log(-low / smallest) if low else 0.0
    decades_above = math.log(high / smallest) if high else 0.0
    divided = count - 1
    below = round(divided * decades_below / (decades_below + decades_above))
    below = max(below, 1 if low else 0)
    below = min(below, divided - 1 if high else divided)
    edges = list[float]()
    if low:
        negative = _mirrored(_geometric_edges(smallest, -low, below))
        edges += negative[:-1]  # the bin of 0 begins at -smallest / 2 instead
        edges.append(-smallest / 2)
    else:
        edges.append(0.0)
    if high:
        edges += _geometric_edges(smallest, high, divided - below)
    else:
        edges.append(0.0)
    return edges


def _geometric_edges(low: float, high: float, count: int) -> list[float]:
    """Return low (high / low)^(i / count) for i = 0 to count, with 0 < low; raises ValueError for an infinite ratio."""
    ratio = high / low
    if not math.isfinite(ratio):
        raise ValueError("needs bounds for log bins whose ratio is a number")
    edges = [low * ratio ** (i / count) for i in range(count)]
    return [*edges, high]


def _mirrored(edges: Sequence[float]) -> list[float]:
    return [-edge for edge in reversed(edges)]


def _rounded(edge: float, decimals: int | None) -> float:
    """Return the edge with three digits, rounded up to a multiple of 10^-decimals.

    All numbers of the column are such multiples: rounding up, and not down, leaves each in its bin [low, high).
    An edge between -10^-decimals and 0 is not rounded up: it separates 0 from the numbers below it.
    """
    rounded = float(f"{edge:.3g}")
    if decimals is None:
        return rounded
    steps = round(rounded * 10**decimals, 6)
    return rounded if -1 < steps < 0 else math.ceil(steps) / 10**decimals
