"""Computes the (epsilon, delta) on a resized table that gives the wanted one on the data: the functional parameters."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from marginweave.base.errors import InputError

# Rounding of a dozen floating-point operations, on the safe side.
_DOWN = 1 - 1e-13
# Beyond this a delta guarantees nothing; a smaller functional delta is always valid.
_MOST_DELTA = 0.5


def functional_parameters(
    epsilon: float, delta: float, copies: int, rate: Fraction, formula: Literal["printed", "tight"]
) -> tuple[float, float]:
    """Return (epsilon_f, delta_f) on the resized table that is (epsilon, delta) on the data, for c copies sampled at rate s.

    A mechanism that is (epsilon_f, delta_f)-DP when one record of the resized table is replaced. Cutting a sample to n records
    or filling it up, with randomness coupled, turns one sampled record more or less, or another one, into one replacement
    at most, so the mechanism is as private towards the sample of the c copies.

    `tight`, amplify each copy and then group: the c copies of a row come, go or change one after the other. Every copy stays
    with probability s by itself, so one such step leads from (1 - s) P + s Q to (1 - s) P + s Q', which are the outputs
    without this copy, with it, and with another one in its place. Any two of P, Q and Q' differ by one replacement of the
    resized table at most, and Q' = P where the copy goes. So the step is (epsilon_1, s delta_f)-DP, epsilon_1 =
    ln(1 + s (e^epsilon_f - 1)), whether a copy comes, goes or changes: advanced joint convexity (Balle, Barthe and Gaboardi
    2018, theorem 2; theorem 8 is the case that it comes or goes). c steps are
    (c epsilon_1, s delta_f (e^{c epsilon_1} - 1)/(e^epsilon_1 - 1))-DP (group privacy, Vadhan 2017, lemma 2.2), and
    e^epsilon_1 - 1 = s (e^epsilon_f - 1). Set equal to (epsilon, delta): epsilon_f = ln(1 + (e^{epsilon/c} - 1)/s),
    delta_f = delta (e^epsilon_f - 1)/(e^epsilon - 1).

    `printed`, group first and then amplify (docs/sources/data-processing.md): epsilon_f = ln(1 + (e^epsilon - 1)/s)/c and
    delta_f = delta / (s sum_{i=0}^{c-1} e^{i epsilon_f}); the sum from 0, for one copy has one term
    and not none, and the exponent epsilon_f, as it is the mechanism on the copies that is grouped.

    Both are rounded down. DP: arithmetic on public numbers.

    Raises:
        InputError: epsilon or delta out of range, no copy, or a rate outside (0, 1].
    """
    if not 0 < epsilon < math.inf:
        raise InputError(f"epsilon ({epsilon}) must be positive")
    if not 0 < delta < 1:
        raise InputError(f"delta ({delta}) must lie strictly between 0 and 1")
    if copies < 1:
        raise InputError(f"copies ({copies}) must be at least 1")
    if not 0 < rate <= 1:
        raise InputError(f"rate ({float(rate):g}) must lie in (0, 1]")
    s = float(rate)
    if formula == "tight":
        functional = _undo_sampling(epsilon / copies, s)
        share = _expm1_ratio(functional, epsilon)
    else:
        functional = _undo_sampling(epsilon, s) / copies
        share = _expm1_ratio(functional, copies * functional) / s
    return functional * _DOWN, min(delta * share * _DOWN, _MOST_DELTA)


def _undo_sampling(epsilon: float, s: float) -> float:
    """Return ln(1 + (e^epsilon - 1)/s), without overflow."""
    if epsilon < 1:
        return math.log1p(math.expm1(epsilon) / s)
    return epsilon + math.log(math.exp(-epsilon) - math.expm1(-epsilon) / s)


def _expm1_ratio(x: float, y: float) -> float:
    """Return (e^x - 1)/(e^y - 1), without overflow."""
    return math.exp(x - y) * math.expm1(-x) / math.expm1(-y)
