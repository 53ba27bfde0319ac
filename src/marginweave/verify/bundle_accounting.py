"""What draws cost together, with nothing but Python's own library: a part of verify.py, which every handover carries.

The formulas and their proofs are in `src/marginweave/accounting/` (`accountants`, `selection_composition`);
these are the same sums, one number at a time. `tests/laws/test_verifier_accounting.py` holds both
against each other.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

Content = dict[str, Any]  # an object of JSON: a row, a draw, a plan, a statement
AMOUNTS = ("mu2", "rho", "delta", "plain_epsilon", "plain_delta")
# Prices, and epsilons, are rounded to doubles.
SLACK = 1e-9
ROUNDED = 1024  # a sigma, or a scale of Laplace noise, is rounded up to a multiple of one part of these
# As in `src/marginweave/accounting`: steps of a selection's losses.
_STEPS, _FEWEST_STEPS, _ALL_STEPS = 64, 8, 1024
_MARGIN = 1 + 1e-8
_LARGEST = 200.0


class Fault(Exception):
    """What does not fit."""


def require(fits: bool, fault: str) -> None:
    """Raise Fault, which says what does not fit, unless it does."""
    if not fits:
        raise Fault(fault)


def totals(draws: list[Content]) -> dict[str, Decimal]:
    """The costs of all draws, each amount by itself."""
    return {name: sum((draw[name] for draw in draws), Decimal(0)) for name in AMOUNTS}


def draws_hold(draws: list[Content], epsilon: float, delta: Decimal) -> bool:
    """Whether draws at these costs are (epsilon, delta)-differentially private together, by one of the sums.

    Each draw has its name, mechanism, parameter, and costs as decimals. Sums: mu^2,
    or rho, with deltas and what is plain beside it; or, where there are selections, their exact curves with mu^2 of the rest.
    """
    total = totals(draws)
    allowed = float(delta) * (1 + SLACK)
    left = delta - total["delta"] - total["plain_delta"]
    rest = epsilon * (1 + 1e-15) - float(total["plain_epsilon"])
    if left < 0 or rest < -SLACK * epsilon:
        return False
    mu, rho = math.sqrt(total["mu2"]), float(total["rho"])
    if not (mu or rho):
        return True
    if rest > 0 and min(gaussian_delta(mu, rest), concentrated_delta(rho, rest)) <= float(left) * (1 + SLACK):
        return True
    return mixed_total_delta(draws, epsilon) <= allowed


def check_epsilon(said: Content, draws: list[Content], body: Content) -> None:
    """That each draw costs what its mechanism does, and all of them no more than is said."""
    sampled, delta = said["on_the_sampled_table"], Decimal(body["delta"])
    if sampled is None:
        for draw in draws:
            _check_price(draw)
    else:  # all is charged on the first draw; what they are to the sample follows from their parameters
        left = Decimal(repr(sampled["delta"])) - Decimal(repr(said["delta_threshold"]))
        by_parameter = [_by_parameter(draw) for draw in draws]
        private = draws_hold(by_parameter, sampled["epsilon"], left)
        require(
            private, "the draws are not (epsilon, delta)-private to the sample as guarantee.on_the_sampled_table says"
        )
    spent = said["epsilon_of_the_draws"]
    paid = spent <= said["epsilon"] * (1 + SLACK) and draws_hold(draws, spent, delta)
    require(paid, "the draws cost more than guarantee.epsilon_of_the_draws in privacy.json, or that more than epsilon")


def _by_parameter(draw: Content) -> Content:
    one, mechanism = float(draw["parameter"]), draw["mechanism"]
    free = {**draw, **dict.fromkeys(AMOUNTS, Decimal(0))}
    if mechanism == "discrete-laplace":
        return {**free, "plain_epsilon": Decimal(repr(draw["parameter"]))}
    require(mechanism in {"rounded-gaussian", "exponential"}, f"draw {draw['name']} has a mechanism without a price")
    gaussian = mechanism == "rounded-gaussian"
    mu2 = 1 / one**2 if gaussian else one**2 * math.pi / 8  # of a selection, the bound of `selection_mu`
    rho = 1 / one**2 / 2 if gaussian else one**2 / 8
    return {**free, "mu2": Decimal(mu2), "rho": Decimal(rho)}


def _check_price(draw: Content) -> None:
    parameter, mu2, rho = draw["parameter"], draw["mu2"], draw["rho"]
    if draw["mechanism"] == "rounded-gaussian":
        least = (1 - SLACK) / float(parameter) ** 2
        enough = float(mu2) >= least and float(rho) >= least / 2
    elif draw["mechanism"] == "discrete-laplace":
        enough = draw["plain_epsilon"] >= Decimal(repr(parameter))
    else:
        enough = draw["mechanism"] == "exponential" and selection_covered(float(parameter), mu2, rho)
    require(enough, f"draw {draw['name']} costs less than its mechanism does")


def share_of_marginals(draw: Content, sigmas: list[float]) -> tuple[float, float]:
    """What marginals with these sigmas cost, as a share of what the draw paid for: the least and the most before rounding."""
    one, records = float(draw["parameter"]), draw["terms"]["records"]
    replaced = 2 if draw["terms"]["neighbors"] == "replace-one" else 1
    if draw["mechanism"] == "discrete-laplace":
        moved = records * replaced / one
        scales = [1 / (2 * math.asinh(1 / (math.sqrt(2) * sigma))) for sigma in sigmas]
        return math.fsum(moved / b for b in scales), math.fsum(moved / (b - 2 / ROUNDED) for b in scales)
    moved = (records * one) ** 2 * replaced
    return math.fsum(moved / s**2 for s in sigmas), math.fsum(moved / (s - 1 / ROUNDED) ** 2 for s in sigmas)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) (Balle and Wang 2018, theorem 8)."""
    return _gaussian_curve(mu, epsilon) if mu else 0.0


def concentrated_delta(rho: float, epsilon: float) -> float:
    """Delta of rho-zCDP (Canonne, Kamath and Steinke 2020, proposition 12): each order gives a valid one; here the best."""
    if not rho:
        return 0.0
    low, high = 1e-12, 1.0

    def before(t: float) -> bool:
        return (2 * t + 1) * rho - epsilon + math.log(t) - math.log1p(t) <= 0

    while before(high):
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if before(middle) else (low, middle)
    exponent = low * ((low + 1) * rho - epsilon) + (low + 1) * (math.log(low) - math.log1p(low)) - math.log(low)
    return math.exp(min(0.0, exponent))


def exposure(threshold: int, sigma: float, values_each: int, records: int) -> float:
    """The probability that a value which one unit alone has is published, where noisy counts from `threshold` on are.

    A unit has `records` rows with `held` such values each at most: the worst are all counts of 1 and all counts of `records`
    (Gopi et al. 2020, for one row). Noise is a Gaussian rounded to integers: P(X >= m) = Phi(-(m - 1/2) / sigma).
    """
    worst = 0.0
    for count, values in ((1, records * values_each), (records, values_each)):
        passes = _phi(-(threshold - count - 0.5) / sigma)
        worst = max(worst, -math.expm1(values * math.log1p(-passes)) if passes < 1 else 1.0)
    return worst


def selection_covered(epsilon: float, mu2: Decimal, rho: Decimal) -> bool:
    """Whether an exponential mechanism of `epsilon` costs no more: epsilon^2/8 in rho, and in mu what two points have."""
    mu = math.sqrt(mu2)
    most = 4 * math.atanh(math.erf(mu / math.sqrt(8))) if mu < 1 else 2 * (_log_phi(mu / 2) - _log_phi(-mu / 2))
    return epsilon <= most * (1 + SLACK) and epsilon * epsilon / 8 <= float(rho) * (1 + SLACK)


def mixed_total_delta(draws: list[Content], epsilon: float) -> float:
    """Delta of Gaussians and exponential mechanisms by the exact worst curves of the latter; 1 beside plain costs."""
    chosen = sorted(draw["parameter"] for draw in draws if draw["mechanism"] == "exponential")
    mu2 = math.fsum(float(draw["mu2"]) for draw in draws if draw["mechanism"] != "exponential")
    if _plain(draws) or mu2 <= 0 or max(chosen, default=0) > _LARGEST:
        return 1.0
    steps = min(_STEPS, max(_FEWEST_STEPS, _ALL_STEPS // max(1, len(chosen))))
    step, masses = (chosen[-1] if chosen else 1.0) / steps, [1.0]
    for one in chosen:
        masses = _convolved(masses, _selection_masses(math.ceil(one / step * (1 - 1e-12)), step))
    mu, half = math.sqrt(mu2), len(masses) // 2
    inside = math.fsum(mass * _gaussian_curve(mu, epsilon - step * (j - half)) for j, mass in enumerate(masses))
    return min(1.0, min(1.0, inside * _MARGIN) + math.fsum(float(draw["delta"]) for draw in draws))


def _plain(draws: list[Content]) -> bool:
    """Whether part of the cost is (epsilon, delta) alone."""
    return any(draw["plain_epsilon"] or draw["plain_delta"] for draw in draws)


def _gaussian_curve(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP at `epsilon`, of either sign."""
    ours = _log_phi(mu / 2 - epsilon / mu)
    theirs = epsilon + _log_phi(-mu / 2 - epsilon / mu)
    return -math.exp(ours) * math.expm1(min(0.0, theirs - ours))


def _selection_masses(steps: int, step: float) -> list[float]:
    """Masses of one selection's losses at -steps … steps."""
    epsilon = steps * step
    whole = math.tanh(step / 4) / math.expm1(epsilon)
    weights = [2 * math.exp((epsilon + step * j) / 2) * whole for j in range(-steps, steps + 1)]
    return [weights[0] / 2, *weights[1:-1], weights[-1] / 2]


def _convolved(one: list[float], other: list[float]) -> list[float]:
    found = [0.0] * (len(one) + len(other) - 1)
    for i, mass in enumerate(other):
        for j, value in enumerate(one, i):
            found[j] += mass * value
    return found


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _log_phi(x: float) -> float:
    """Logarithm of the standard normal distribution function; far out by the continued fraction of Mills' ratio."""
    if x > 0:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > -12:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    ratio = -x
    for k in range(40, 0, -1):
        ratio = -x + k / ratio
    return -x * x / 2 - math.log(2 * math.pi) / 2 - math.log(ratio)
