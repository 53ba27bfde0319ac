"""Composes Gaussians and selections of one release by the exact worst curve of an exponential mechanism, instead of its mu.

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

from marginweave.accounting.accountants import bisect, budget_mu2
from marginweave.accounting.composition import PricedDraw
from marginweave.base.arrays import Floats
from marginweave.mechanisms.exponential import selection_epsilon

# Steps of the largest selection's losses on each side of 0: the excess over the exact curve is below 1e-4 of sigma. Each of
# many selections adds less to it, and has fewer steps: together they have some thousand losses.
_STEPS = 64
_FEWEST_STEPS = 8
_ALL_STEPS = 1024
# The masses of selections with a larger epsilon are beyond the range of floats.
_MOST_EPSILON = 200.0
# Covers rounding errors of the closed form, and of sums of masses.
_MARGIN = 1 + 1e-8


def mixed_delta(mu2: float, selections: Sequence[float], epsilon: float) -> float:
    """Return the smallest delta at `epsilon` of Gaussians of `mu2` and exponential mechanisms of `selections`, rounded up.

    DP: arithmetic on public numbers. 1 where a selection is beyond the exponentials, or mu2 is not positive.
    """
    if max(selections, default=0.0) > _MOST_EPSILON or mu2 <= 0:
        return 1.0
    # delta(epsilon) = E[H_{epsilon - X}(G_mu)] for the loss X of all selections
    losses, masses = _selection_losses(tuple(sorted(selections)))
    deltas = gaussian_deltas(math.sqrt(mu2), epsilon - losses)
    return min(1.0, float(masses @ deltas) * _MARGIN)


def gaussian_deltas(mu: float, epsilon: Floats) -> Floats:
    """Delta of mu-GDP at each epsilon, of either sign: Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu).

    DP: arithmetic on public numbers.
    """
    from scipy.special import log_ndtr  # here: slow to import, and few plans have selections

    log_first = log_ndtr(mu / 2 - epsilon / mu)
    log_second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    # first - second, from their logarithms: -first (second / first - 1)
    log_ratio = np.minimum(0.0, log_second - log_first)
    delta = -np.exp(log_first) * np.expm1(log_ratio)
    return np.asarray(delta, np.float64)


def shared_budget(choices: Sequence[tuple[int, float]], epsilon: float, delta: float) -> float:
    """Return the budget in mu^2 that (epsilon, delta) allows Gaussians and selections whose exact curves compose; rounded down.

    `choices` are pairs of a number of selections and their joint share of the budget. The search begins at the budget that the
    sum of mu^2 allows. DP: arithmetic on public numbers.
    """
    sum_budget = budget_mu2(epsilon, delta)
    if not any(number for number, _ in choices):
        return sum_budget

    def fits(budget: float) -> bool:
        gaussian_share = 1.0
        selections: list[float] = []
        for number, share in choices:
            if number:
                gaussian_share -= share
                mu2_each = share * budget / number
                selections += [selection_epsilon(math.sqrt(mu2_each))] * number
        return mixed_delta(gaussian_share * budget, selections, epsilon) <= delta

    if not fits(sum_budget):
        return sum_budget
    # A selection costs at least 0.25 epsilon^2 by its exact curve, where the sum of mu^2 counts at most 0.393 epsilon^2.
    fitting, _ = bisect(fits, sum_budget, 2 * sum_budget, 40)
    return fitting


def release_delta(draws: Sequence[PricedDraw], epsilon: float) -> float:
    """Return the smallest delta at `epsilon` of planned draws, with the additive ones of thresholds; 1 with plain charges.

    DP: arithmetic on public numbers.
    """
    if any(draw.cost.plain for draw in draws):
        return 1.0
    selections = []
    mu2_of_noise = []
    for draw in draws:
        if draw.mechanism == "exponential":
            selections.append(draw.parameter or 0.0)
        else:
            mu2_of_noise.append(float(draw.cost.mu2))
    of_noise = mixed_delta(math.fsum(mu2_of_noise), selections, epsilon)
    of_thresholds = math.fsum(float(draw.cost.delta) for draw in draws)
    return min(1.0, of_noise + of_thresholds)


def release_epsilon(draws: Sequence[PricedDraw], delta: float, most: float) -> float:
    """Return the smallest epsilon at `delta` of planned draws, to 2^-40 of `most` and rounded up.

    It is infinite where `most` is too small. DP: arithmetic on public numbers.
    """

    def is_too_small(epsilon: float) -> bool:
        return release_delta(draws, epsilon) > delta

    if is_too_small(most):
        return math.inf
    _, large_enough = bisect(is_too_small, 0.0, most, 40)
    return large_enough


@lru_cache(maxsize=256)
def _selection_losses(selections: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Return the joint losses of all selections and their masses under P, on a common grid; without any, a loss of 0.

    An epsilon between two multiples of the step is replaced by the larger one, whose curve lies above.
    """
    steps_each = _ALL_STEPS // max(1, len(selections))
    steps = min(_STEPS, max(_FEWEST_STEPS, steps_each))
    step = max(selections, default=1.0) / steps
    masses = np.ones(1)
    for epsilon in selections:
        selection_steps = math.ceil(epsilon / step * (1 - 1e-12))
        selection_masses = _selection_masses(selection_steps, step)
        masses = np.convolve(masses, selection_masses)
    half = len(masses) // 2
    losses = step * np.arange(-half, half + 1, dtype=np.float64)
    return losses, masses


def _selection_masses(steps: int, step: float) -> Floats:
    """Return the masses of one selection of epsilon = steps * step at j * step, j = -steps … steps."""
    epsilon = steps * step
    losses = step * np.arange(-steps, steps + 1)
    weights = 2 * np.exp((epsilon + losses) / 2)
    weights[[0, -1]] /= 2
    factor = math.tanh(step / 4) / math.expm1(epsilon)
    return weights * factor
