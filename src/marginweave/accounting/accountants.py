"""Converts prices of noise: Gaussian differential privacy, and zCDP with its exact conversion, which checks a statement.

Every conversion has a direction in which an error is harmless, and errs in it: a budget is never too large, an epsilon
never too small. Figures of merit: `delta` within 1e-9 of the closed form (relative) for epsilon 0.001 to 100 and delta
1e-20 to 0.5; the margin below allows for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from marginweave.base.errors import InputError
from marginweave.mechanisms.normal import log_ndtr

# The two tails of the closed form cancel at small epsilon: 28 units in the last place of one are 2e-10 of their difference.
_MARGIN = 1 - 1e-9
_ZCDP_MARGIN = 1 - 1e-12
# Charges are rounded up, by 1e-16 each: a plan that used all of its budget would exceed its own epsilon by as much.
SLACK = 1 - 1e-9


def gdp_delta(mu: float, epsilon: float) -> float:
    """Smallest delta of mu-GDP at `epsilon`: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    Balle and Wang 2018, theorem 8; Dong, Roth and Su 2019, corollary 2.13. Logarithms of Phi keep e^epsilon from overflow.
    DP: arithmetic on public numbers. Raises InputError for a negative argument.
    """
    _check("mu", mu, positive=False)
    _check("epsilon", epsilon, positive=False)
    if mu == 0:
        return 0.0
    ours = log_ndtr(mu / 2 - epsilon / mu)
    theirs = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return max(0.0, -math.exp(ours) * math.expm1(min(0.0, theirs - ours)))


def gdp_mu(epsilon: float, delta: float) -> float:
    """Largest mu whose `gdp_delta` at `epsilon` is at most `delta`, rounded down.

    DP: arithmetic on public numbers. Raises InputError unless epsilon is positive and 0 < delta < 1.
    """
    _check("epsilon", epsilon)
    _check_delta(delta)
    return _largest(lambda mu: gdp_delta(mu, epsilon) <= delta * _MARGIN)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon at which mu-GDP has at most `delta`, rounded up; 0 where delta alone suffices.

    DP: arithmetic on public numbers. Raises InputError for a negative mu or a delta outside (0, 1).
    """
    return _converted(gdp_delta, mu, delta, _MARGIN)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Smallest delta of rho-zCDP at `epsilon`: min over a > 1 of e^{(a-1)(a rho - epsilon)} (1 - 1/a)^a / (a - 1).

    Canonne, Kamath and Steinke 2020, proposition 12. The minimum is where (2a - 1) rho - epsilon + ln(1 - 1/a) = 0, whose
    left side grows with a; every a gives a valid delta, so an inexact root is safe.
    DP: arithmetic on public numbers. Raises InputError for a negative argument.
    """
    _check("rho", rho, positive=False)
    _check("epsilon", epsilon, positive=False)
    if rho == 0:
        return 0.0

    def before_the_minimum(t: float) -> bool:
        return (2 * t + 1) * rho - epsilon + math.log(t) - math.log1p(t) <= 0

    t = _largest(before_the_minimum)
    if t == 0:
        return 1.0
    exponent = t * ((t + 1) * rho - epsilon) + (t + 1) * (math.log(t) - math.log1p(t)) - math.log(t)
    return math.exp(min(0.0, exponent))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Smallest epsilon at which rho-zCDP has at most `delta`, rounded up; 0 where delta alone suffices.

    DP: arithmetic on public numbers. Raises InputError for a negative rho or a delta outside (0, 1).
    """
    return _converted(zcdp_delta, rho, delta, _ZCDP_MARGIN)


def budget_mu2(epsilon: float, delta: float) -> float:
    """Return the budget that (epsilon, delta) allows in mu^2, which adds up. DP: arithmetic on public numbers."""
    return gdp_mu(epsilon, delta) ** 2


def gaussian_multiplier(mu2: float) -> float:
    """Return the noise multiplier at the price `mu2`, rounded up: 1/sqrt(mu2). DP: arithmetic on public numbers."""
    _check("mu2", mu2)
    return math.nextafter(1 / math.sqrt(mu2), math.inf)


def _converted(
    curve: Callable[[float, float], float], price: float, delta: float, margin: float
) -> float:
    """Return the smallest epsilon at which the `curve` of a mu or rho, `price`, is at most `delta`; 0 if it always is."""
    _check_delta(delta)
    if curve(price, 0.0) <= delta * margin:
        return 0.0
    return 1 / _largest(lambda inverse: curve(price, 1 / inverse) <= delta * margin)


def _largest(holds: Callable[[float], bool]) -> float:
    """Return the largest positive float at which `holds` is true, found by bisection; 0 if there is none.

    `holds` is true near 0 and false from some point on.
    """
    low = 1.0
    high = 1.0
    while holds(high):
        low = high
        high = high * 2
    while not holds(low):
        high = low
        low = low / 2
        if low == 0.0:
            return 0.0
    return bisect(holds, low, high)[0]


def bisect(
    holds: Callable[[float], bool], low: float, high: float, halvings: float = math.inf
) -> tuple[float, float]:
    """Return `low`, at which `holds` is true, and `high`, at which it is false, after at most `halvings` of the interval.

    Without a limit they end as neighboring floats.
    """
    while halvings > 0:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
        halvings -= 1
    return low, high


def _check(name: str, value: float, *, positive: bool = True) -> None:
    """Refuse a `value` that is infinite, NaN or negative, or 0 where it must be positive."""
    if not (0 <= value < math.inf) or (positive and value == 0):
        raise InputError(
            f"{name} ({value}) must be {'positive' if positive else 'finite and not negative'}"
        )


def _check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not 0 < delta < 1:
        raise InputError(f"delta ({delta}) must lie strictly between 0 and 1")
