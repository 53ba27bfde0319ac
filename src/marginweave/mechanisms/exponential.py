"""Chooses by the exponential mechanism, exactly: with probability proportional to e^{-rate distance}, in integers alone.

Candidates of one score are a level: a distance d from the best score, a number m_d of candidates, and a weight m_d r^d, where
r = e^{-rate}, rate a fraction. In the order of their distances the levels share [0, T), T the sum of the weights, and a
uniform U in [0, 1), of infinitely many bits, chooses the level in whose part U T lies (inversion: Devroye 1986, II.2); of its
candidates one is chosen uniformly. U is read as far as is needed and no further, and weights are computed as far (Knuth and
Yao 1976): with F bits of both,

    A_i <= 2^F C_i <= A_i + 2 N_i,   u <= 2^F U < u + 1,

where C_i is the sum of the first weights up to level i, N_i the number of candidates in them. Level i is certain if
2^F (A_{i-1} + 2 N_{i-1}) <= u A_T and (u + 1) (A_T + 2 N_T) <= 2^F A_i, for then C_{i-1} <= U T < C_i whatever the bits that
were not read: nothing is below the first level, and nothing is above the last. Where none is certain, F doubles, and u keeps
its bits. So what is chosen is what the infinite U chooses from the exact weights, and each candidate has its probability
exactly; no weight is rounded to 0. As the boundaries are a null set, the loop ends with probability 1: with the first F of 128
bits but for about 4 L N 2^-128, L the number of levels.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Integers, Words
from marginweave.base.budget import Cost, amount
from marginweave.base.errors import InputError
from marginweave.mechanisms.base import DrawMechanism
from marginweave.mechanisms.noise_table import exponential, uniform_numbers
from marginweave.mechanisms.normal import log_ndtr
from marginweave.mechanisms.randomness import DrawBits, WordStream

Distances = Words

_PRECISION = 128
# Products of rounded factors lose less than 2^24 units, so that 32 bits more than F leave one unit of 2^-F (`_power_tables`).
_GUARD = 32
_DIGIT = 10
# ln 2 < 7/10: a distance of more than 7/10 (F + 1) / rate has a weight below 2^-(F + 1).
_LN2 = Fraction(7, 10)
_LARGEST = (1 << 64) - 1
# Levels of which the weights are in memory at once.
_CHUNK = 1 << 16
# Streams of a draw: the level, and the place among its candidates.
_LEVEL = 0
_PLACE = 1


def choose(scores: Integers, rate: Fraction, bits: DrawBits) -> int:
    """Choose the place of a score, with probability proportional to e^{rate score}.

    The scores have the shape (candidates,), at least one.

    DP: by the caller, whose `rate` is epsilon / (2 sensitivity).
    """
    unsigned = scores.astype(np.uint64)  # modulo 2^64, as is the difference, which is below it
    distances: Distances = unsigned[np.argmax(scores)] - unsigned
    chosen = _choose_distance(distances, rate, bits.stream(_LEVEL))
    places = np.flatnonzero(distances == np.uint64(chosen))
    return int(places[uniform_numbers(1, len(places), bits.stream(_PLACE))[0]])


def _choose_distance(distances: Distances, rate: Fraction, stream: WordStream) -> int:
    precision = _PRECISION
    uniform = stream.integer(precision)
    while True:
        levels = _Levels.near(distances, rate, precision)
        chosen = _certain_distance(levels, uniform, precision)
        if chosen is not None:
            return chosen
        uniform = uniform << precision | stream.integer(precision)
        precision *= 2


@dataclass(frozen=True, kw_only=True)
class _Levels:
    """Levels whose weight is not far below 2^-F, ascending.

    `members` has the number of candidates of each, `candidates` that of all levels, left out or not.
    """

    distances: Distances
    members: Integers
    candidates: int
    tables: tuple[NDArray[np.object_], ...]
    precision: int

    @classmethod
    def near(cls, distances: Distances, rate: Fraction, precision: int) -> _Levels:
        """Return the levels of candidates with these distances, shape (candidates,)."""
        most = min(_LARGEST, int(_LN2 * (precision + 1) / rate))
        near = distances[distances <= np.uint64(most)]
        levels, members = np.unique(near, return_counts=True)
        return cls(
            distances=levels,
            members=members,
            candidates=len(distances),
            tables=_power_tables(rate, most, precision + _GUARD),
            precision=precision,
        )

    def sums(self) -> list[int]:
        """Return A_i at the end of each chunk of levels."""
        firsts = range(0, len(self.distances), _CHUNK)
        return list(accumulate(sum(self._weights(first)) for first in firsts))

    def _weights(self, first: int) -> list[int]:
        chunk = slice(first, first + _CHUNK)
        powers = self.powers_below(self.distances[chunk])
        members = self.members[chunk].astype(object)
        weights: list[int] = (powers * members).tolist()
        return weights

    def powers_below(self, distances: Distances) -> NDArray[np.object_]:
        """Return A_d: 2^F r^d, rounded down by less than 2, and exactly 2^F for d = 0; shape of `distances`."""
        bits = self.precision + _GUARD
        mask = np.uint64((1 << _DIGIT) - 1)
        product = self.tables[0][(distances & mask).astype(np.int64)]
        for place, table in enumerate(self.tables[1:], 1):
            digits = distances >> np.uint64(_DIGIT * place) & mask
            product = product * table[digits.astype(np.int64)] >> bits
        rounded: NDArray[np.object_] = product >> _GUARD
        return rounded

    def within(self, chunk: int, below: int) -> list[int]:
        """Return A_i of the levels of a chunk; `below` is A_i at the end of the chunk before."""
        return [below + weight for weight in accumulate(self._weights(chunk * _CHUNK))]


def _certain_distance(levels: _Levels, uniform: int, precision: int) -> int | None:
    """Return the distance that is chosen whatever bits follow; None if they matter."""
    sums = levels.sums()
    total = sums[-1]
    complete = int(levels.members.sum()) == levels.candidates
    reach = (uniform + 1) * (total + 2 * levels.candidates)
    # The first A_i with reach <= 2^F A_i; beyond all of them it is the last level, if no level was left out.
    least = -(-reach >> precision)
    chunk = min(bisect_left(sums, least), len(sums) - 1)
    before = sums[chunk - 1] if chunk else 0
    ends = levels.within(chunk, before)
    inside = bisect_left(ends, least)
    if inside == len(ends):
        if not complete:
            return None
        inside -= 1
    place = chunk * _CHUNK + inside
    end_before = ends[inside - 1] if inside else before
    # A_{i-1} + 2 N_{i-1}
    candidates_before = int(levels.members[:place].sum())
    below = end_before + 2 * candidates_before
    if place and below << precision > uniform * total:
        return None
    return int(levels.distances[place])


def _power_tables(rate: Fraction, largest: int, bits: int) -> tuple[NDArray[np.object_], ...]:
    """Return r^(j 1024^t), j = 0 ... 1023, for the digits t of distances up to `largest`.

    rate * largest is at most 7/10 (F + 1). With G = F + 32 `bits`, a table is made by 1023 products at most from its first
    factor, which is less than 2 units too small; each product loses one unit more than its factors did, so that entries lose
    less than 1023 * 3, and products of the at most seven digits less than 2^15. `_Levels.powers_below` is then at most 2^F
    r^d, and by less than 2 smaller.
    """
    tables = []
    for place in range(0, max(1, largest.bit_length()), _DIGIT):
        most = min((1 << _DIGIT) - 1, largest >> place)
        entries = [1 << bits]
        if most:
            factor = exponential(rate * (1 << place), bits)
            for _ in range(most):
                entries.append(entries[-1] * factor >> bits)
        tables.append(np.array(entries, object))
    return tuple(tables)


def selection_mu(epsilon: float) -> float:
    """Return the GDP parameter of the exponential mechanism with `epsilon`.

    It is mu = 2 PhiInv(1/(1 + e^{-epsilon/2})) <= 0.62666 epsilon.

    Proof: its privacy loss lies in an interval [t - epsilon, t] (Durfee and Rogers 2019: bounded range), and among all
    such pairs a pair of two-point distributions whose logits differ by epsilon dominates (Dong, Durfee and Rogers 2020).
    With logits a - epsilon/2 and a + epsilon/2 that pair has one break-point in its trade-off, and the convex G_mu lies
    below the two segments iff it does so at the break-point: mu(a) = h(a + epsilon/2) - h(a - epsilon/2),
    h = PhiInv(logistic). h' = Phi(z) Phi(-z)/phi(z) is even and falls in |z| (checked numerically up to 35 standard
    deviations), so a = 0 is the worst: mu = 2 h(epsilon/2). The bound 0.62666 = sqrt(2 pi)/4 is h'(0).
    DP: arithmetic on public numbers; the independent check is epsilon^2/8 in zCDP. Raises InputError unless positive.
    """
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon ({epsilon}) must be positive")
    from scipy.special import erfinv, log_expit, ndtri_exp  # slow to import, and few plans select

    if epsilon < 1:
        # erfinv keeps the relative precision that a probability near one half would lose
        return math.sqrt(8) * float(erfinv(math.tanh(epsilon / 4)))
    return -2 * float(ndtri_exp(log_expit(-epsilon / 2)))


def selection_epsilon(mu: float) -> float:
    """Return the largest epsilon whose `selection_mu` is at most `mu`, rounded down: 4 artanh(erf(mu / sqrt 8)).

    DP: arithmetic on public numbers. Raises InputError unless mu is positive.
    """
    if not 0 < mu < math.inf:
        raise InputError(f"mu ({mu}) must be positive")
    if mu < 1:
        probability = math.erf(mu / math.sqrt(8))
        return 4 * math.atanh(probability) * (1 - 1e-12)
    logit = log_ndtr(mu / 2) - log_ndtr(-mu / 2)
    return 2 * logit * (1 - 1e-12)


class Exponential(DrawMechanism):
    """A choice among public candidates by their private scores."""

    name = "exponential"
    parameter = "epsilon"
    words = "exponential mechanism over a public range, epsilon {parameter:.6g}"

    @staticmethod
    def price(parameter: float) -> Cost:
        """Return selection_mu(epsilon)^2 in mu^2, epsilon^2/8 in rho."""
        return Cost(mu2=amount(selection_mu(parameter) ** 2), rho=amount(parameter**2 / 8))
