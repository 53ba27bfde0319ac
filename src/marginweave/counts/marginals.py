"""Dense marginals: which ones to measure, how to share the budget among them, exact counts, noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Counts
from marginweave.base.errors import InputError, StageError
from marginweave.measurements.tables import Clique, Measurement
from marginweave.mechanisms.base import CountNoise
from marginweave.mechanisms.laplace import add_drawn_noise
from marginweave.mechanisms.randomness import DrawBits

AnyCodes = NDArray[np.integer]
Split = Literal["equal", "cells"]
T = TypeVar("T")

# As many rows at a time as stay in the processor's cache while all marginals are counted.
_CHUNK = 1 << 14
_CELLS_A_PASS = 1 << 23


def cells(clique: Clique, sizes: Sequence[int]) -> int:
    """Number of cells of a marginal: the product of the sizes of its attributes."""
    return math.prod(sizes[a] for a in clique)


def all_cliques(sizes: Sequence[int], length: int, cell_limit: int | None = None) -> tuple[Clique, ...]:
    """All sets of `length` attributes with at most `cell_limit` cells, in lexicographic order.

    DP: arithmetic on public sizes. Raises InputError unless 1 <= length <= number of attributes.
    """
    if not 1 <= length <= len(sizes):
        raise InputError(f"length ({length}) must be at least 1 and at most the number of attributes ({len(sizes)})")
    found = itertools.combinations(range(len(sizes)), length)
    return tuple(c for c in found if cell_limit is None or cells(c, sizes) <= cell_limit)


def budget_shares(
    cliques: Sequence[Clique], sizes: Sequence[int], split: Split, power: float = 2 / 3
) -> NDArray[np.float64]:
    """Share of the budget of every marginal: 1/m each, or proportional to a power of its cells: that of least error.

    Gaussian, of mu^2 or of rho: rho_i = rho c_i^(2/3) / sum_j c_j^(2/3) minimizes the expected L1 error
    sum_i c_i / sqrt(pi rho_i) (PrivSyn, section 4.2: Lagrange). Laplace, of epsilon: the error is S sum_i c_i / epsilon_i,
    whose derivatives -S c_i / epsilon_i^2 are equal where epsilon_i is proportional to c_i^(1/2). Shape (m,), sums to 1;
    empty without cliques, for a selection may select nothing. DP: arithmetic on public sizes.
    """
    exponent = power if split == "cells" else 0.0
    weights = np.array([float(cells(clique, sizes)) ** exponent for clique in cliques])
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def split_noise(
    noise: CountNoise, parameter: float, cliques: Sequence[Clique], sizes: Sequence[int], split: Split
) -> tuple[Fraction, ...]:
    """The part of each marginal of one draw of `noise` with the joint `parameter`, by the shares of `budget_shares`.

    Together they cost what the draw does. Where a share is so small that there is no table for its noise, all are equal, which
    `plan` has checked for every set of marginals that there may be. DP: arithmetic on public numbers.
    """
    parts = noise.parts(parameter, budget_shares(cliques, sizes, split, noise.share_power).tolist())
    if split == "cells" and max(parts, default=0) > noise.largest_part:
        return split_noise(noise, parameter, cliques, sizes, "equal")
    return parts


def count_marginals(
    blocks: Iterable[Sequence[AnyCodes]], sizes: Sequence[int], cliques: Sequence[Clique]
) -> list[NDArray[np.int64]]:
    """Exact counts of the combinations of each clique in all blocks of rows, by one pass over these; private.

    Rows are numbered by mixed radix, code = ((a_1 s_2 + a_2) s_3 + a_3) …, and counted. Raises StageError for a code
    outside its size.
    """
    from marginweave.counts.marginal_kernel import add_counts

    shapes = [tuple(sizes[a] for a in clique) for clique in cliques]
    counts = [np.zeros(math.prod(shape), np.int64) for shape in shapes]
    attributes = sorted({attribute for clique in cliques for attribute in clique})
    place = {attribute: i for i, attribute in enumerate(attributes)}
    layouts = [np.array([[place[a], sizes[a]] for a in clique], np.int64).reshape(-1, 2) for clique in cliques]
    for codes in blocks:
        for attribute in attributes:
            values = codes[attribute]
            if values.max(initial=0) >= sizes[attribute] or values.min(initial=0) < 0:
                raise StageError(f"codes of attribute {attribute} must be below its size")
        for start in range(0, len(codes[0]), _CHUNK):
            part = np.empty((len(attributes), len(codes[0][start : start + _CHUNK])), np.int64)
            for row, attribute in enumerate(attributes):
                part[row] = codes[attribute][start : start + _CHUNK]
            for layout, counted in zip(layouts, counts, strict=True):
                add_counts(part, layout, counted)
    return [counted.reshape(shape) for counted, shape in zip(counts, shapes, strict=True)]


def in_passes(cliques: Sequence[Clique], sizes: Sequence[int]) -> Iterator[list[Clique]]:
    """The cliques in their order, as many at a time as have room beside each other, so that few cells are held at once.

    DP: arithmetic on public sizes.
    """
    return grouped(cliques, lambda clique: cells(clique, sizes), _CELLS_A_PASS)


def grouped(items: Iterable[T], weight: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items in their order, in groups of which none weighs more than `most`, if it is not a single item that does."""
    taken: list[T] = []
    filled = 0
    for item in items:
        more = weight(item)
        if taken and filled + more > most:
            yield taken
            taken, filled = [], 0
        taken.append(item)
        filled += more
    if taken:
        yield taken


def measure_marginals(
    noise: CountNoise,
    exact: Sequence[Counts],
    cliques: Sequence[Clique],
    parts: Sequence[Fraction],
    bits: DrawBits,
    presampled: Sequence[Counts] | None = None,
) -> Iterator[Measurement]:
    """Each marginal with independent noise on all of its cells, zero ones included.

    Rounded Gaussian noise is `add_noise` of a vector of L2 sensitivity S (`marginal_sigma`), and mu^2 adds (Dong, Roth and Su
    2019, corollary 3.3); discrete Laplace noise is `add_drawn_noise`, and epsilons add (Dwork and Roth 2014, theorem 3.16).
    DP: sum_i (S / sigma_i)^2 in mu^2, or (sum_i epsilon_i, 0)-DP; charge before the first is taken.

    Args:
        noise: its kind, for how many records of one unit move, and how.
        exact: from `count_marginals`, of rows of a unit already bounded to theta.
        cliques: attributes of each marginal, increasing.
        parts: of each marginal, from `split_noise`.
        bits: of the draw; table i is marginal i.
        presampled: noise that was made before the charge, from `CountNoise.presample` with these parts.
    """
    for table, (counts, clique, part) in enumerate(zip(exact, cliques, parts, strict=True)):
        noisy = (
            noise.add(counts, part, bits, table) if presampled is None else add_drawn_noise(counts, presampled[table])
        )
        yield Measurement(attributes=clique, counts=noisy, deviation=float(noise.sigma(part)), noise=noise.name)


def estimate_total(measurements: Sequence[Measurement]) -> float:
    """The record count by inverse-variance weighting of the totals: a total of c cells has the variance c sigma^2.

    Incomplete marginals are biased low and count only where there are no others; never below 0. DP: post-processing.
    Raises InputError without measurements.
    """
    if not measurements:
        raise InputError("measurements (0) must be at least 1")
    used = [m for m in measurements if m.complete] or list(measurements)
    weights = np.array([1 / (m.counts.size * m.deviation**2) for m in used])
    totals = np.array([m.total for m in used])
    return max(0.0, float(weights @ totals / weights.sum()))
