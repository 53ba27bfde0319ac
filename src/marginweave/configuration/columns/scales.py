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
"""From the largest bound down to the smallest magnitude that log bins tell from 0, where none is declared."""

Edges = tuple[float, ...]


class LogBins(FrozenModel):
    """So many bins whose edges are spaced geometrically over the bounds.

    Where the bounds include 0, it has a bin of its own, up to `smallest`, and each side has log bins from there to its bound,
    as many as it has decades. Without one `smallest` is a ten-thousandth of the largest bound, or one step of `decimals`
    where that is more.
    """

    log: Annotated[Whole, Field(ge=1, le=10_000)]
    smallest: Positive | None = None


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
