"""Gaussians and selections of one release together: the exact worst curve of an exponential mechanism instead of its mu.

`selection_mu` is the least mu that covers an exponential mechanism by itself, mu^2 about 0.393 epsilon^2; among many draws
it behaves like a Gaussian of the variance of its loss, epsilon^2 / 4 at most. So the sum of mu^2 counts percentiles half
again too high, which is about 1 % of sigma with the default shares. Within one release, planned as a whole, that is not needed:

Curve. Of an exponential mechanism with `epsilon` every loss L lies in [t - epsilon, t] for some t (Durfee and Rogers 2019).
With y = e^{-L}, E_P[y] = 1 (at most), H_x = E_P[(1 - e^x y)_+] is the mean of a convex function of y, and so at most that of
the two ends with the same mean: p (1 - e^{x - t}), p = (e^epsilon - e^t)/(e^epsilon - 1). The largest over t is at
t = (epsilon + x)/2: H_x = (e^{epsilon/2} - e^{x/2})^2 / (e^epsilon - 1) for |x| <= epsilon. It is convex in e^x, meets 1 - e^x
at -epsilon and 0 at epsilon: a pair of distributions has it (Zhu, Dong and Wang 2022, proposition 8), and dominates the
mechanism in both directions; adaptive compositions are dominated by products of such pairs (theorem 10 there).

Masses. Joining the curve at x_j = j h, j = -K … K, h = epsilon / K, by lines in e^x lies above it (Doroshenko et al. 2022,
connect the dots): again a pair, with the losses x_j. Their masses under P are, exactly, (2 e^{(epsilon + x_j)/2}, half of it
at both ends) tanh(h/4) / (e^epsilon - 1), and add to 1. A loss X of all selections together is a convolution of those, and
with Gaussians of mu^2 in total, delta(epsilon) = E[H_{epsilon - X}(G_mu)].

An account adds mu^2 all the same: that is a filter, and these curves are not, as later releases may follow from noisy results
(docs/privacy.md, step 29). Within a release prices are fixed before its first draw, and only what is selected from may
follow from others.
DP: arithmetic on public numbers, all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from marginweave.accounting.accountants import bisected, budget_mu2
from marginweave.accounting.composition import PricedDraw
from marginweave.base.arrays import Floats
from marginweave.mechanisms.exponential import selection_epsilon

# Losses of the largest selection on each side of 0; what is left above the exact curve is below 1e-4 of sigma. Of many
# selections each has a smaller part in it, and fewer steps: together they have some thousand losses.
_STEPS, _FEWEST_STEPS = 64, 8
_ALL_STEPS = 1024
# Selections with more than this have masses of no floats.
_MOST_EPSILON = 200.0
# Of the closed form, and of sums of masses.
_MARGIN = 1 + 1e-8


def mixed_delta(mu2: float, selections: Sequence[float], epsilon: float) -> float:
    """Smallest delta at `epsilon` of Gaussians of `mu2` together and exponential mechanisms of `selections`, rounded up.

    DP: arithmetic on public numbers. 1 where a selection is beyond the exponentials, or mu2 is not positive.
    """
    if max(selections, default=0.0) > _MOST_EPSILON or mu2 <= 0:
        return 1.0
    losses, masses = _losses(tuple(sorted(selections)))
    inside = gaussian_deltas(math.sqrt(mu2), epsilon - losses)
    return min(1.0, float(masses @ inside) * _MARGIN)


def gaussian_deltas(mu: float, epsilon: Floats) -> Floats:
    """Delta of mu-GDP at each epsilon, of either sign: Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu).

    DP: arithmetic on public numbers.
    """
    from scipy.special import log_ndtr  # here: slow to import, and few plans have selections

    ours = log_ndtr(mu / 2 - epsilon / mu)
    theirs = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return np.asarray(-np.exp(ours) * np.expm1(np.minimum(0.0, theirs - ours)), np.float64)


def shared_budget(choices: Sequence[tuple[int, float]], epsilon: float, delta: float) -> float:
    """What (epsilon, delta) buys of Gaussians and of selections whose exact curves compose, in mu^2; rounded down.

    `choices` are numbers of selections, with the share of it that they have together. It is looked for from what mu^2 alone
    allows on. DP: arithmetic on public numbers.
    """
    whole = budget_mu2(epsilon, delta)
    if not any(number for number, _ in choices):
        return whole

    def fits(budget: float) -> bool:
        left, bought = 1.0, list[float]()
        for number, share in choices:
            if number:
                left -= share
                bought += [selection_epsilon(math.sqrt(share * budget / number))] * number
        return mixed_delta(left * budget, bought, epsilon) <= delta

    # a selection costs at least 0.25 epsilon^2, of which mu^2 has at most 0.393
    return bisected(fits, whole, 2 * whole, 40)[0] if fits(whole) else whole


def release_delta(draws: Sequence[PricedDraw], epsilon: float) -> float:
    """Smallest delta at `epsilon` of planned draws, the additive ones of thresholds included; 1 with charges in plain.

    DP: arithmetic on public numbers.
    """
    if any(draw.cost.plain for draw in draws):
        return 1.0
    selections = [draw.parameter or 0.0 for draw in draws if draw.mechanism == "exponential"]
    mu2 = math.fsum(float(draw.cost.mu2) for draw in draws if draw.mechanism != "exponential")
    return min(1.0, mixed_delta(mu2, selections, epsilon) + math.fsum(float(draw.cost.delta) for draw in draws))


def release_epsilon(draws: Sequence[PricedDraw], delta: float, most: float) -> float:
    """Smallest epsilon at `delta` of planned draws, to 2^-40 of `most` and rounded up; infinite where `most` is too small.

    DP: arithmetic on public numbers.
    """
    if release_delta(draws, most) > delta:
        return math.inf
    return bisected(lambda epsilon: release_delta(draws, epsilon) > delta, 0.0, most, 40)[1]


@lru_cache(maxsize=256)
def _losses(selections: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Losses of all selections together and their masses under P, on a common grid; one without is 0 with certainty.

    An epsilon between two multiples of the step is taken for the larger one, whose curve lies above.
    """
    steps = min(_STEPS, max(_FEWEST_STEPS, _ALL_STEPS // max(1, len(selections))))
    step = max(selections, default=1.0) / steps
    masses = np.ones(1)
    for epsilon in selections:
        masses = np.convolve(masses, _selection_masses(math.ceil(epsilon / step * (1 - 1e-12)), step))
    half = len(masses) // 2
    return step * np.arange(-half, half + 1, dtype=np.float64), masses


def _selection_masses(steps: int, step: float) -> Floats:
    """Masses of one selection of epsilon = steps * step at j * step, j = -steps … steps."""
    epsilon = steps * step
    weights = 2 * np.exp((epsilon + step * np.arange(-steps, steps + 1)) / 2)
    weights[[0, -1]] /= 2
    return weights * (math.tanh(step / 4) / math.expm1(epsilon))
