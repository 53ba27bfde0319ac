"""What (epsilon, delta) buys by zCDP alone, which prices no noise here: the laws compare it with what it does buy."""

from __future__ import annotations

from marginweave.accounting.accountants import bisect, zcdp_delta


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose `zcdp_delta` at `epsilon` is at most `delta`, rounded down."""
    return bisect(
        lambda rho: zcdp_delta(rho, epsilon) <= delta * (1 - 1e-12), 0.0, 10 * epsilon + 10
    )[0]
