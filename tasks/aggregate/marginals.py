"""Dense marginals: which ones to measure, how to share the budget among them, exact counts, noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.budget import Stability
from marginweave.schemas.draws import CountNoise
from marginweave.schemas.errors import InputError, StageError
from marginweave.schemas.released.measurements import Clique, Measurement
from marginweave.tasks.mechanisms.gaussian import add_drawn_noise, add_noise, deviation, draw_laplace_noise
from marginweave.tasks.mechanisms.laplace import laplace_deviation, laplace_scale
from marginweave.tasks.mechanisms.noise_table import MAX_DEVIATION
from marginweave.tasks.mechanisms.randomness import NoiseBits

AnyCodes = NDArray[np.integer]
Split = Literal["equal", "cells"]
T = TypeVar("T")

# The power of its cells that a marginal's share of the budget has in the split of least error, by the kind of noise.
SHARE_POWER: dict[CountNoise, float] = {"rounded-gaussian": 2 / 3, "discrete-laplace": 1 / 2}

# As many rows at a time as keep the flat codes of one marginal at 8 MB.
_CHUNK = 1 << 20
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
    cliques: Sequence[Clique], sizes: Sequence[int], split: Split, noise: CountNoise = "rounded-gaussian"
) -> NDArray[np.float64]:
    """Share of the budget of every marginal: 1/m each, or proportional to the power of its cells with the least error.

    Gaussian, of mu^2 or of rho: rho_i = rho c_i^(2/3) / sum_j c_j^(2/3) minimizes the expected L1 error
    sum_i c_i / sqrt(pi rho_i) (PrivSyn, section 4.2: Lagrange). Laplace, of epsilon: the error is S sum_i c_i / epsilon_i,
    whose derivatives -S c_i / epsilon_i^2 are equal where epsilon_i is proportional to c_i^(1/2). Shape (m,), sums to 1;
    empty without cliques, for a selection may select nothing. DP: arithmetic on public sizes.
    """
    exponent = SHARE_POWER[noise] if split == "cells" else 0.0
    weights = np.array([float(cells(clique, sizes)) ** exponent for clique in cliques])
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def marginal_deviation(multiplier: float, stability: Stability) -> Fraction:
    """Standard deviation of the noise of one marginal: multiplier times its L2 sensitivity, a multiple of 1/1024.

    A unit holds at most theta = stability.records records of the bounded table. Coming or going, it moves the marginal by a
    vector u >= 0 with |u|_1 <= theta, so |u|_2 <= theta, which one full cell reaches; replaced, by u - v with
    |u - v|_2^2 <= |u|_2^2 + |v|_2^2 <= 2 theta^2, because u.v >= 0. m marginals cost mu^2 = sum_i 1/multiplier_i^2.
    DP: arithmetic on public numbers. Raises InputError unless multiplier is positive.
    """
    return deviation(multiplier, 1, stability)


def split_deviations(
    multiplier: float, cliques: Sequence[Clique], sizes: Sequence[int], split: Split, stability: Stability
) -> tuple[Fraction, ...]:
    """Standard deviation of each marginal of one draw with the joint noise multiplier `multiplier`.

    The marginal with the share s_i of `budget_shares` has the multiplier M / sqrt(s_i), so that together they cost
    mu^2 = sum_i s_i / M^2 = 1 / M^2. Where a share is so small that there is no table for its noise, all are equal, which
    `plan` has checked for every set of marginals that there may be. DP: arithmetic on public numbers.
    """
    shares = budget_shares(cliques, sizes, split)
    deviations = tuple(marginal_deviation(multiplier / math.sqrt(share), stability) for share in shares.tolist())
    if split == "cells" and max(deviations, default=0) > MAX_DEVIATION:
        return split_deviations(multiplier, cliques, sizes, "equal", stability)
    return deviations


def split_epsilons(
    epsilon: float, cliques: Sequence[Clique], sizes: Sequence[int], split: Split
) -> tuple[Fraction, ...]:
    """The epsilon of each marginal of one draw of Laplace noise with the joint epsilon, which they add up to exactly.

    `epsilon` is the decimal that it prints as, by which the draw is charged. DP: arithmetic on public numbers.
    """
    shares = [Fraction(share) for share in budget_shares(cliques, sizes, split, "discrete-laplace").tolist()]
    return tuple(Fraction(repr(epsilon)) * share / sum(shares) for share in shares)


def count_marginal(codes: Sequence[AnyCodes], sizes: Sequence[int], clique: Clique) -> NDArray[np.int64]:
    """Exact counts of the combinations of `clique` in one block of rows: shape sizes[a_1], sizes[a_2], …; private.

    Raises StageError as `count_marginals`.
    """
    return count_marginals([codes], sizes, [clique])[0]


def count_marginals(
    blocks: Iterable[Sequence[AnyCodes]], sizes: Sequence[int], cliques: Sequence[Clique]
) -> list[NDArray[np.int64]]:
    """Exact counts of the combinations of each clique in all blocks of rows, by one pass over these; private.

    Rows are numbered by mixed radix, code = ((a_1 s_2 + a_2) s_3 + a_3) …, and counted. Raises StageError for a code
    outside its size.
    """
    shapes = [tuple(sizes[a] for a in clique) for clique in cliques]
    counts = [np.zeros(math.prod(shape), np.int64) for shape in shapes]
    for codes in blocks:
        for clique, shape, counted in zip(cliques, shapes, counts, strict=True):
            for start in range(0, len(codes[0]), _CHUNK):
                part = [values[start : start + _CHUNK] for values in codes]
                _add(part, clique, shape, counted)
    return [counted.reshape(shape) for counted, shape in zip(counts, shapes, strict=True)]


def in_passes(cliques: Sequence[Clique], sizes: Sequence[int]) -> Iterator[list[Clique]]:
    """The cliques in their order, as many at a time as have room beside each other, so that few cells are held at once.

    DP: arithmetic on public sizes.
    """
    return grouped(cliques, lambda clique: cells(clique, sizes), _CELLS_A_PASS)


def grouped(items: Iterable[T], weight: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items in their order, in groups of which none weighs more than `most`, if it is not a single item that does."""
    taken: list[T] = []
    held = 0
    for item in items:
        more = weight(item)
        if taken and held + more > most:
            yield taken
            taken, held = [], 0
        taken.append(item)
        held += more
    if taken:
        yield taken


def _add(part: Sequence[AnyCodes], clique: Clique, shape: tuple[int, ...], counted: NDArray[np.int64]) -> None:
    flat = np.zeros(len(part[0]), np.int64)
    for attribute, size in zip(clique, shape, strict=True):
        values = part[attribute]
        if values.max(initial=0) >= size:
            raise StageError(f"codes of attribute {attribute} must be below its size")
        flat *= size
        flat += values
    if len(counted) > len(flat):  # a table of zeros would cost more than the rows
        np.add.at(counted, flat, 1)
    else:
        counted += np.bincount(flat, minlength=len(counted))


def measure_marginals(
    exact: Sequence[NDArray[np.int64]],
    cliques: Sequence[Clique],
    deviations: Sequence[Fraction],
    bits: NoiseBits,
) -> Iterator[Measurement]:
    """Each marginal with independent rounded Gaussian noise on all of its cells, zero ones included.

    Each is `add_noise` of a vector of L2 sensitivity S (`marginal_deviation`), and mu^2 adds (Dong, Roth and Su 2019, corollary
    3.3).
    DP: sum_i (S / deviation_i)^2 in mu^2; charge before the first is taken.

    Args:
        exact: marginals by `count_marginal`, of rows of a unit already bounded to theta.
        cliques: attributes of each marginal, increasing.
        deviations: of each marginal, from `split_deviations`.
        bits: of the draw; table i is marginal i.
    """
    for table, (counts, clique, sd) in enumerate(zip(exact, cliques, deviations, strict=True)):
        yield Measurement(attributes=clique, counts=add_noise(counts, sd, bits, table=table), deviation=float(sd))


def laplace_noises(sizes: Sequence[int], epsilons: Sequence[Fraction], stability: Stability) -> list[NDArray[np.int64]]:
    """The noise of all marginals of one draw, by their numbers of cells: made before the charge, for nothing else.

    DP: nothing of the rows. Raises InputError and StageError as `draw_laplace_noise`.
    """
    return [draw_laplace_noise(size, epsilon, stability) for size, epsilon in zip(sizes, epsilons, strict=True)]


def measure_with_laplace(
    exact: Sequence[NDArray[np.int64]],
    cliques: Sequence[Clique],
    epsilons: Sequence[Fraction],
    stability: Stability,
    noises: Sequence[NDArray[np.int64]],
) -> Iterator[Measurement]:
    """Each marginal with independent discrete Laplace noise on all of its cells, zero ones included.

    Each is `add_drawn_noise`; epsilons add (Dwork and Roth 2014, theorem 3.16).
    DP: (sum_i epsilon_i, 0)-DP; charge before the first is taken.

    Args:
        exact: marginals by `count_marginal`, of rows of a unit already bounded to theta.
        cliques: attributes of each marginal, increasing.
        epsilons: of each marginal, from `split_epsilons`.
        stability: how many records of one unit move, and how.
        noises: from `laplace_noises` with these epsilons and this stability.
    """
    for counts, clique, epsilon, noise in zip(exact, cliques, epsilons, noises, strict=True):
        yield Measurement(
            attributes=clique,
            counts=add_drawn_noise(counts, noise),
            deviation=laplace_deviation(laplace_scale(epsilon, stability)),
            noise="discrete-laplace",
        )


def estimate_total(measurements: Sequence[Measurement]) -> float:
    """The record count by inverse-variance weighting of the totals: a total of c cells has the variance c deviation^2.

    Incomplete marginals are biased low and count only where there are no others; never below 0. DP: post-processing.
    Raises InputError without measurements.
    """
    if not measurements:
        raise InputError("measurements (0) must be at least 1")
    used = [m for m in measurements if m.complete] or list(measurements)
    weights = np.array([1 / (m.counts.size * m.deviation**2) for m in used])
    totals = np.array([m.total for m in used])
    return max(0.0, float(weights @ totals / weights.sum()))
