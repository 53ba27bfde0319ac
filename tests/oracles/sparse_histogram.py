"""The threshold's and the noise's part of delta, treated together: what a release with private domains really costs.

Adding `delta_threshold` to the delta of the noise counts a person twice. Whoever has values that nobody else has spends part of
a bounded contribution on them, and what is spent there moves no other count: less loss in the noise where there is more in the
threshold. Here is the theorem that says how much less; releases charge the sum, and `tests/laws/test_joint.py` holds it against
the theorem.

Setting. One draw (`level-1`, or `values`) adds Gaussian noise of mu_1^2 to the counts of all cells, but publishes a private
value only if it occurs and reaches T, where -ln P(none of values with counts c_i is published) <= s l for s = sum c_i, with
l such that the largest s gives delta_threshold (`thresholds.private_threshold`). H_e(P, Q) = sup_A P(A) - e^e Q(A).

Lemma (sparse pair). Let P = p P' + (1 - p) P* and Q = q Q' + (1 - q) Q*, where P* puts no mass where Q has any, and Q* none
where P has any. Then H_e(P, Q) = 1 - p + p H_{e + ln q - ln p}(P', Q'), which falls in p and in q.
  Proof. On the support of P* only P has mass: 1 - p. On that of Q* only Q has: nothing. Elsewhere the densities are p P'
  and q Q', and the integral of (p P' - e^e q Q')_+ is p H(P', Q') at e^e q / p. Its derivative in p is P'(A) <= 1 for the
  optimal A, so that 1 - p + … falls; in q it is -e^e Q'(A) <= 0.

Theorem. Let x be the share of s in the most that a unit can have, theta min(Delta_1, W), W private values a row, and
c = min(1, W / cap) with cap the largest Delta_1. Then (1 - d)^x, d = delta_threshold, bounds the chance p that no new value
of one side is published from below, and the rest of the release, given that none is, is mu_x-GDP with mu_x^2 = mu^2 - x c k
mu_1^2, k = 1 under add-remove and 1/2 under replace-one. So delta(e) <= max over x in [0, 1] of the lemma's value at
  add-remove:  (p, q) = ((1 - d)^x, 1) and (1, (1 - d)^x)           replace-one:  (p, q) = ((1 - d)^x, 1 - d).
  Proof. The unit's rows give theta Delta_1 to the counts at most, s of it to values of its own. Row r with n_r of them
  moves the other cells by a vector of length sqrt(Delta_1 - n_r) at most, all of them by theta sqrt(Delta_1 - s / theta)
  (triangle inequality, concavity of the root); divided by the noise theta sigma_1 sqrt(Delta_1) and squared that is
  mu_1^2 (1 - s / (theta Delta_1)), and s / (theta Delta_1) = x min(1, W / Delta_1) >= x c. Under replace-one the two
  versions of the unit move the other cells by u - v, u, v >= 0: |u - v|^2 <= |u|^2 + |v|^2, with noise sqrt 2 larger: shares
  x_1, x_2 save (x_1 + x_2)/2 each. Given the event that no new value is published (on both sides), both sides noise the
  same cells, and all later draws see the same candidates: adaptive composition of Gaussians and selections is mu_x-GDP
  (Dong, Roth and Su 2022, theorem 3.2). Outputs with a new value are impossible on the other side. That is the lemma, at p
  and q as small as they can be. Under replace-one q >= 1 - d whatever x_2 is, and x_2 = 0 saves least.

Adaptivity. Draws before it may choose Delta_1, and so x (a percentile; not a record count or a bound). What is left then is
the maximum over x, at epsilon - L where L is the loss so far: H_e = E[V(e - L)], V(e) = max_x …, the expectation under P.
V is convex in e^e, so that this is an f-divergence of what was drawn before, at most what it is for Gaussians of the same
mu_0^2 (data processing; Blackwell), L ~ N(mu_0^2/2, mu_0^2). The integral is bounded from above by chords in e^{e - L}, as
privacy loss distributions are (Doroshenko et al. 2022, connect the dots), and x by blocks: p and q at one end, mu_x at the
other. Without percentiles L is no part of the game, and the maximum is taken outside.

Source of the idea: Wilkins, Kifer, Zhang and Karrer 2024, "Exact Privacy Analysis of the Gaussian Sparse Histogram
Mechanism"; the lemma with the signs above is checked by enumeration in `tests/laws/test_joint.py`. DP: arithmetic on public
numbers, all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtr

from marginweave.base.arrays import Floats
from marginweave.base.budget import Neighbors
from marginweave.mechanisms import normal

# The loss so far in steps of its standard deviation, and where its tails are cut: Phi(-14) is 8e-45.
_STEPS = 320
_TAIL = 14.0
_BLOCKS = 128
# Rounding of the two tails, and of sums of chords.
_MARGIN = 1 + 1e-8


@dataclass(frozen=True, kw_only=True)
class JointLoss:
    """The loss of the draws of a release, apart.

    mu^2 of what is drawn before the discovery where its shape may depend on it, of the discovery, and of all others; `saved`
    is c k of the theorem.
    """

    before: float
    discovery: float
    others: float
    delta_threshold: float
    saved: float
    neighbors: Neighbors


def sparse_delta(
    mu: Floats | float, epsilon: Floats | float, log_p: Floats | float, log_q: Floats | float
) -> Floats:
    """The lemma's value for a mu-GDP pair: 1 - p + p H_{epsilon + ln q - ln p}, from ln p and ln q, by broadcasting.

    H_e = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu). Of p and q the logarithms, as 1 - p is less than a float beside 1 can hold.
    DP: arithmetic on public numbers.
    """
    shifted = np.asarray(epsilon + (log_q - log_p), np.float64)
    ours = log_ndtr(mu / 2 - shifted / mu)
    theirs = shifted + log_ndtr(-mu / 2 - shifted / mu)
    inside: Floats = -np.exp(ours) * np.expm1(np.minimum(0.0, theirs - ours))
    return np.asarray(-np.expm1(log_p) + np.exp(log_p) * inside, np.float64)


def joint_delta(loss: JointLoss, epsilon: float) -> float:
    """Smallest delta at `epsilon` that the theorem proves for `loss`, rounded up.

    Exponentials of losses hold for an epsilon in (0, 100].
    """
    delta = (
        _after_gaussian(loss, epsilon)
        if loss.before
        else float(_remaining(loss, np.array([epsilon]))[0])
    )
    return min(1.0, delta * _MARGIN)


def _remaining(loss: JointLoss, epsilon: Floats) -> Floats:
    """V(e) for each e: the worst over x of what the discovery and the draws beside `before` lose; shape of `epsilon`."""
    edges = np.linspace(0.0, 1.0, _BLOCKS + 1)
    least, most = np.concatenate([[0.0], edges[:-1]]), np.concatenate([[0.0], edges[1:]])
    whole = loss.discovery + loss.others
    left = np.maximum(whole - least * loss.saved * loss.discovery, 1e-12 * whole)
    log_all = math.log1p(-loss.delta_threshold)
    mu, hidden = np.sqrt(left)[:, None], (most * log_all)[:, None]
    if loss.neighbors == "replace-one":
        worst: Floats = sparse_delta(mu, epsilon, hidden, log_all).max(axis=0)
        return worst
    both = np.maximum(
        sparse_delta(mu, epsilon, hidden, 0.0), sparse_delta(mu, epsilon, 0.0, hidden)
    )
    return np.asarray(both.max(axis=0), np.float64)


def _after_gaussian(loss: JointLoss, epsilon: float) -> float:
    """E[V(epsilon - L)], L ~ N(mu_0^2/2, mu_0^2), by chords of V in t = e^{epsilon - L}, from above.

    On a cell [L_i, L_{i+1}] the chord is V_i + (V_{i+1} - V_i) (t_i - t)/(t_i - t_{i+1}); E[t; cell] is e^epsilon Q(cell), as
    e^{-L} dP = dQ. Beyond the cells V is at most 1, before them at most V_0.
    """
    mu = math.sqrt(loss.before)
    # (L - mu^2/2) / mu, standard normal under P, shifted by mu under Q
    scores = np.linspace(-_TAIL, _TAIL, _STEPS + 1)
    losses = mu * mu / 2 + mu * scores
    values = np.minimum(1.0, _remaining(loss, epsilon - losses))
    under_p, under_q = _masses(scores), _masses(scores + mu)
    # t / t_i - 1 at the right end, and on average over the cell times its mass
    right = np.expm1(-mu * np.diff(scores))
    mean = np.exp(losses[:-1]) * under_q - under_p
    along = np.clip(mean / right, 0.0, under_p)
    inside = values[:-1] * under_p + (values[1:] - values[:-1]) * along
    return float(inside.sum() + normal.ndtr(-_TAIL) * (1 + values[0]))


def _masses(edges: Floats) -> Floats:
    """Standard normal mass of each cell between `edges`, from the nearer tail."""
    low, high = edges[:-1], edges[1:]
    upper = low > 0
    return np.where(upper, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
