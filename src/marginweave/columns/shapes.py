"""Distribution of a number column's values inside its bins: over its whole range, of which a bin has its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.columns.draws import BelowCurve, Shape
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.binned import Histogram
from marginweave.configuration.columns.scales import LogBins

Curve = Callable[[Floats, Floats], tuple[Floats, Floats]]
# Number of straight pieces of a curve in a bin, and at most in all bins.
_PIECES = 32
_ALL_PIECES = 1 << 16


def number_shape(
    column: NumberColumn,
    counts: Floats | None,
    resolution: int,
) -> Shape:
    """Return the shape that `draw` of a column declares; `smooth`, the default, is uniform where no counts are known.

    Args:
        column: With public or released bounds.
        counts: Released counts of its bins, and of its codes after them, none negative.
        resolution: Decimals of the grid.

    Returns:
        In steps of the grid. DP: post-processing.
    """
    draw = column.draw or "smooth"
    unit = 10.0**-resolution
    if counts is not None:
        counts = counts[: len(column.bin_labels)]
    if draw == "midpoint":
        return "midpoint"
    if isinstance(draw, Histogram):
        edges = np.asarray(draw.edges) / unit
        below = np.concatenate([[0.0], np.cumsum(draw.weights)])
        return BelowCurve(edges=edges, below=below)
    has_counts = counts is not None and counts.any()
    if draw == "uniform" or (draw == "smooth" and not has_counts):
        return None
    if draw == "log-uniform":
        return log_uniform(column.edges, column.zero, unit)
    assert counts is not None
    is_log = isinstance(column.bins, LogBins)
    return smooth(column.edges, counts, column.zero, unit, is_log=is_log)


def smooth(
    edges: Sequence[float],
    counts: Floats,
    zero: int | None,
    unit: float,
    *,
    is_log: bool,
) -> BelowCurve:
    """Return a distribution that has the share of every bin, and a monotone cubic curve between the edges of each.

    Through the points (edge, records below it) goes the monotone piecewise cubic of Fritsch and Butland (1984): at an edge its
    slope, the density, is a weighted harmonic mean of those of the two bins, 0 next to an empty one. It never falls, and so
    every bin keeps its records. On a logarithmic scale the abscissa is sgn(x) ln(1 + |x| / e), e the
    least edge above 0; the bin `zero` is the number 0 alone, and divides the curve.
    DP: post-processing.
    """
    lengths = [abs(edge) for edge in edges if edge]
    scale = min(lengths) if is_log else 0.0
    below = np.concatenate([[0.0], np.cumsum(counts)])

    def curve(place: Floats, under: Floats) -> tuple[Floats, Floats]:
        abscissa = place
        if scale:
            abscissa = np.sign(place) * np.log1p(np.abs(place) / scale)
        fine = _pieces(abscissa)
        x = fine
        if scale:
            x = np.sign(fine) * np.expm1(np.abs(fine)) * scale
        y = np.clip(_monotone_cubic(abscissa, under, fine), under[0], under[-1])
        return x, np.maximum.accumulate(y)

    return _joined(edges, below, zero, unit, curve)


def _monotone_cubic(x: Floats, y: Floats, fine: Floats) -> Floats:
    """Return the values at `fine` of the cubics through points that never fall; `fine` divides each interval alike.

    scipy's PchipInterpolator gives the same values. Its import takes as long as a stage of a small release.
    """
    steps = np.diff(x)
    rises = np.diff(y) / steps
    slopes = _slopes(steps, rises)
    cubic = (slopes[:-1] + slopes[1:] - 2 * rises) / steps
    interval = np.arange(len(fine)) * len(steps) // (len(fine) - 1)
    interval[-1] -= 1
    coefficients = (y[:-1], slopes[:-1], (rises - slopes[:-1]) / steps - cubic, cubic / steps)
    place = fine - x[interval]
    value = np.zeros(len(fine))
    power = np.ones(len(fine))
    for coefficient in coefficients:
        value += coefficient[interval] * power
        power *= place
    return value


def _slopes(steps: Floats, rises: Floats) -> Floats:
    """Return the slopes at the points, by the lengths and mean slopes, none negative, of the intervals between them."""
    if len(rises) == 1:
        return np.repeat(rises, 2)
    slopes = np.zeros(len(rises) + 1)
    weight_before = 2 * steps[1:] + steps[:-1]
    weight_after = steps[1:] + 2 * steps[:-1]
    rise_before = rises[:-1]
    rise_after = rises[1:]
    # next to an interval without a rise the slope is 0
    rising = (rise_before > 0) & (rise_after > 0)
    inverse = (
        weight_before[rising] / rise_before[rising] + weight_after[rising] / rise_after[rising]
    )
    slopes[1:-1][rising] = 1.0 / (inverse / (weight_before + weight_after)[rising])
    slopes[0] = _end_slope(steps[0], steps[1], rises[0], rises[1])
    slopes[-1] = _end_slope(steps[-1], steps[-2], rises[-1], rises[-2])
    return slopes


def _end_slope(step: float, next_step: float, rise: float, next_rise: float) -> float:
    """Return the slope at an end: that of the parabola through three points, where it rises."""
    return max(0.0, ((2 * step + next_step) * rise - step * next_rise) / (step + next_step))


def log_uniform(
    edges: Sequence[float],
    zero: int | None,
    unit: float,
) -> BelowCurve:
    """Return density proportional to 1 / |x| in every bin of one sign, uniform in others; the bin `zero` is the number 0."""

    def curve(place: Floats, under: Floats) -> tuple[Floats, Floats]:
        low = place[:-1, None]
        high = place[1:, None]
        y = _pieces(under)
        pieces_of_bin = (len(y) - 1) // (len(under) - 1)
        below_bin = np.repeat(under[:-1], pieces_of_bin)
        share = (y[:-1] - below_bin).reshape(len(low), -1)
        one_sign = low * high > 0
        divisor = np.where(one_sign, low, 1.0)
        ratio = np.where(one_sign, high / divisor, 1.0)
        # the inverse of ln(x / low) / ln(high / low), and of (x - low) / (high - low)
        logarithmic = low * ratio**share
        even = low + (high - low) * share
        x = np.where(one_sign, logarithmic, even)
        return np.append(x.ravel(), place[-1]), y

    below = np.arange(len(edges), dtype=np.float64)
    return _joined(edges, below, zero, unit, curve)


def _joined(
    edges: Sequence[float],
    below: Floats,
    zero: int | None,
    unit: float,
    curve: Curve,
) -> BelowCurve:
    """Return the curve of all bins, or of those on either side of the bin `zero`, whose records are on the point 0 of the grid.

    The last bin, which is closed, ends one step beyond its edge.
    """
    place = np.array([*edges[:-1], edges[-1] + unit])
    if zero is None:
        x, y = _curve_of(curve, place, below)
    else:
        cut = zero + 1
        point = np.array([0.0, min(unit, place[cut])])
        left_x, left_y = _curve_of(curve, place[:cut], below[:cut])
        right_x, right_y = _curve_of(curve, place[cut:], below[cut:])
        x = np.concatenate([left_x, point, right_x])
        y = np.concatenate([left_y, below[zero : zero + 2], right_y])
    increases = np.append(True, np.diff(x) > 0)
    return BelowCurve(edges=x[increases] / unit, below=y[increases])


def _curve_of(
    curve: Curve,
    place: Floats,
    below: Floats,
) -> tuple[Floats, Floats]:
    """Return the curve of these edges; a single edge is the curve itself."""
    return curve(place, below) if len(place) > 1 else (place, below)


def _pieces(values: Floats) -> Floats:
    """Return the values, with points at equal distances between each two of them."""
    most = min(_PIECES, _ALL_PIECES // len(values))
    number = max(1, most)
    fractions = np.arange(number) / number
    steps = np.diff(values)[:, None]
    inner = values[:-1, None] + steps * fractions
    return np.append(inner.ravel(), values[-1])
