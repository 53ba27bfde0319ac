"""From hits among trials to bounds of mu, epsilon and delta, with a stated probability of being wrong.

A test that tells two neighboring tables apart says "present" in a share TPR of the trials with one and FPR of those with the
other. mu-GDP with an additive delta has TPR <= Phi(PhiInv(FPR) + mu) + delta (Dong, Roth and Su 2022, definition 4;
Kairouz, Oh and Viswanath 2015 for delta), epsilon-DP has TPR <= e^epsilon FPR: a test that does better refutes the claim.
Nasr et al. 2023 (arXiv 2302.07956) audit mu in this way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri
from scipy.stats import beta

# How often a finding may be wrong: any of the ends that it looks at.
FALSE_ALARM = 1e-6


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A lower and an upper bound of what was measured."""

    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Hits:
    """How often a test said "present", in `trials` with the canary and as many without it."""

    present: int
    absent: int
    trials: int


def clopper_pearson(hits: int, trials: int, error: float = FALSE_ALARM) -> Interval:
    """Exact bounds of a probability, each wrong with probability error/2 at most (Clopper and Pearson 1934).

    DP: arithmetic on counts of trials with made-up data.
    """
    low = 0.0 if hits == 0 else float(beta.ppf(error / 2, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.isf(error / 2, hits + 1, trials - hits))
    return Interval(low=low, high=high)


def mu_interval(hits: Hits, delta: float = 0.0, error: float = FALSE_ALARM) -> Interval:
    """Bounds of PhiInv(TPR - delta) - PhiInv(FPR): the low one is a lower bound of mu beside an additive `delta`.

    The high one is an upper bound of mu only where the test is an optimal one, such as the likelihood ratio of Gaussians.
    DP: arithmetic on counts of trials with made-up data.
    """
    true, false = _rates(hits, error)
    return Interval(
        low=float(ndtri(max(0.0, true.low - delta)) - ndtri(false.high)),
        high=float(ndtri(true.high) - ndtri(false.low)),
    )


def epsilon_interval(hits: Hits, error: float = FALSE_ALARM) -> Interval:
    """Bounds of ln(TPR / FPR): the low one is a lower bound of a pure epsilon.

    DP: arithmetic on counts of trials with made-up data.
    """
    true, false = _rates(hits, error)
    low = -math.inf if true.low == 0 else math.log(true.low / false.high)
    high = math.inf if false.low == 0 else math.log(true.high / false.low)
    return Interval(low=low, high=high)


def _rates(hits: Hits, error: float) -> tuple[Interval, Interval]:
    """Bounds of both rates, so that all four ends hold together but with probability `error`."""
    return clopper_pearson(hits.present, hits.trials, error / 2), clopper_pearson(hits.absent, hits.trials, error / 2)
