"""Computes the joint cost of draws with only Python's standard library: a part of verify.py, which every handover carries.

The formulas and their proofs are in `src/marginweave/accounting/` (`accountants`, `selection_composition`) and in
`src/marginweave/mechanisms/exponential.py`; these are the same sums, one number at a time.
`tests/laws/test_verifier_accounting.py` compares the two.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

Content = dict[str, Any]  # an object of JSON: a row, a draw, a plan, a statement
AMOUNTS = ("mu2", "rho", "delta", "plain_epsilon", "plain_delta")
# Prices, and epsilons, are rounded to doubles.
SLACK = 1e-9
# a sigma, or a scale of Laplace noise, is rounded up to a multiple of one part of these
ROUNDED = 1024
# As in `src/marginweave/accounting/selection_composition.py`: steps of a selection's losses, and its largest epsilon.
_STEPS = 64
_FEWEST_STEPS = 8
_ALL_STEPS = 1024
_MARGIN = 1 + 1e-8
_MOST_EPSILON = 200.0


class Fault(Exception):
    """A difference between a bundle and the rows of the ledger; its message names the first one."""


def require(fits: bool, fault: str) -> None:
    """Raise Fault with the message `fault` unless `fits`."""
    if not fits:
        raise Fault(fault)


def totals(draws: list[Content]) -> dict[str, Decimal]:
    """Return the sum of each amount over all draws."""
    sums = {}
    for name in AMOUNTS:
        sums[name] = sum((draw[name] for draw in draws), Decimal(0))
    return sums


def draws_hold(draws: list[Content], epsilon: float, delta: Decimal) -> bool:
    """Return whether draws at these costs are (epsilon, delta)-differentially private together, by one of the sums.

    Each draw has its name, mechanism, parameter, and costs as decimals. The sums are mu^2 or rho, plus the deltas and the plain
    (epsilon, delta) costs; or, where there are selections, their exact curves with mu^2 of the other draws.
    """
    total = totals(draws)
    allowed = float(delta) * (1 + SLACK)
    delta_left = delta - total["delta"] - total["plain_delta"]
    epsilon_left = epsilon * (1 + 1e-15) - float(total["plain_epsilon"])
    if delta_left < 0 or epsilon_left < -SLACK * epsilon:
        return False
    mu = math.sqrt(total["mu2"])
    rho = float(total["rho"])
    if not (mu or rho):
        return True
    if epsilon_left > 0:
        smallest = min(gaussian_delta(mu, epsilon_left), concentrated_delta(rho, epsilon_left))
        if smallest <= float(delta_left) * (1 + SLACK):
            return True
    return mixed_total_delta(draws, epsilon) <= allowed


def check_epsilon(guarantee: Content, draws: list[Content], body: Content) -> None:
    """Refuse draws that cost less than their mechanisms do, or together more than the `guarantee` of privacy.json.

    `body` is that of the row that reserved the release.
    """
    sampled = guarantee["on_the_sampled_table"]
    if sampled is None:
        for draw in draws:
            _check_price(draw)
    # all is charged on the first draw; the privacy towards the sample follows from their parameters
    else:
        delta_left = Decimal(repr(sampled["delta"])) - Decimal(repr(guarantee["delta_threshold"]))
        by_parameter = [_priced_by_parameter(draw) for draw in draws]
        private = draws_hold(by_parameter, sampled["epsilon"], delta_left)
        require(
            private,
            "the draws are not (epsilon, delta)-private to the sample as guarantee.on_the_sampled_table says",
        )
    spent = guarantee["epsilon_of_the_draws"]
    within_epsilon = spent <= guarantee["epsilon"] * (1 + SLACK)
    paid = within_epsilon and draws_hold(draws, spent, Decimal(body["delta"]))
    require(
        paid,
        "the draws cost more than guarantee.epsilon_of_the_draws in privacy.json, or that more than epsilon",
    )


def _priced_by_parameter(draw: Content) -> Content:
    """Return the draw with the costs that follow from its mechanism and parameter instead of those in its row."""
    parameter = float(draw["parameter"])
    mechanism = draw["mechanism"]
    free = {**draw, **dict.fromkeys(AMOUNTS, Decimal(0))}
    if mechanism == "discrete-laplace":
        return {**free, "plain_epsilon": Decimal(repr(draw["parameter"]))}
    require(
        mechanism in {"rounded-gaussian", "exponential"},
        f"draw {draw['name']} has a mechanism without a price",
    )
    if mechanism == "rounded-gaussian":
        mu2 = 1 / parameter**2
        rho = 1 / parameter**2 / 2
    else:
        mu2 = parameter**2 * math.pi / 8  # the bound of `selection_mu`
        rho = parameter**2 / 8
    return {**free, "mu2": Decimal(mu2), "rho": Decimal(rho)}


def _check_price(draw: Content) -> None:
    """Refuse a draw whose row has a lower cost than its mechanism."""
    parameter = draw["parameter"]
    if draw["mechanism"] == "rounded-gaussian":
        least = (1 - SLACK) / float(parameter) ** 2
        enough = float(draw["mu2"]) >= least and float(draw["rho"]) >= least / 2
    elif draw["mechanism"] == "discrete-laplace":
        enough = draw["plain_epsilon"] >= Decimal(repr(parameter))
    elif draw["mechanism"] == "exponential":
        enough = selection_covered(float(parameter), draw["mu2"], draw["rho"])
    else:
        enough = False
    require(enough, f"draw {draw['name']} costs less than its mechanism does")


def share_of_marginals(draw: Content, sigmas: list[float]) -> tuple[float, float]:
    """Return the cost of marginals with these sigmas as a share of what the draw paid for.

    The first number takes the sigmas as they are, the second as the largest that they were before they were rounded up.
    """
    parameter = float(draw["parameter"])
    records = draw["terms"]["records"]
    replaced = 2 if draw["terms"]["neighbors"] == "replace-one" else 1
    if draw["mechanism"] == "discrete-laplace":
        # Laplace noise of scale b costs sensitivity / b.
        moved = records * replaced / parameter
        scales = [_laplace_scale(sigma) for sigma in sigmas]
        least = math.fsum(moved / scale for scale in scales)
        # One part undoes the rounding up; the other is room for the scale, which is computed from sigma in doubles.
        most = math.fsum(moved / (scale - 2 / ROUNDED) for scale in scales)
        return least, most
    # Gaussian noise costs (sensitivity / sigma)^2.
    moved = (records * parameter) ** 2 * replaced
    least = math.fsum(moved / sigma**2 for sigma in sigmas)
    most = math.fsum(moved / (sigma - 1 / ROUNDED) ** 2 for sigma in sigmas)
    return least, most


def _laplace_scale(sigma: float) -> float:
    """Return the scale b of discrete Laplace noise whose standard deviation is `sigma`: 1 / (2 asinh(1 / (sqrt(2) sigma)))."""
    inverse = 1 / (math.sqrt(2) * sigma)
    return 1 / (2 * math.asinh(inverse))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) (Balle and Wang 2018, theorem 8)."""
    return _gaussian_curve(mu, epsilon) if mu else 0.0


def concentrated_delta(rho: float, epsilon: float) -> float:
    """Delta of rho-zCDP (Canonne, Kamath and Steinke 2020, proposition 12): each order gives a valid one; here the best."""
    if not rho:
        return 0.0

    def before_the_minimum(t: float) -> bool:
        slope = (2 * t + 1) * rho - epsilon + math.log(t)
        return slope - math.log1p(t) <= 0

    low = 1e-12
    high = 1.0
    while before_the_minimum(high):
        low = high
        high = 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if before_the_minimum(middle):
            low = middle
        else:
            high = middle
    # ln delta = t ((t + 1) rho - epsilon) + (t + 1) ln(t / (t + 1)) - ln t, for the order t + 1
    privacy_loss = low * ((low + 1) * rho - epsilon)
    log_ratio = math.log(low) - math.log1p(low)
    exponent = privacy_loss + (low + 1) * log_ratio - math.log(low)
    return math.exp(min(0.0, exponent))


def exposure(threshold: int, sigma: float, values_each: int, records: int) -> float:
    """Return the probability that a value of a single unit is published where noisy counts of at least `threshold` are.

    A unit has `records` rows with `values_each` such values each at most: the worst are all counts of 1 and all counts of
    `records` (Gopi et al. 2020, for one row). Noise is a Gaussian rounded to integers: P(X >= m) = Phi(-(m - 1/2) / sigma).
    """
    worst = 0.0
    for count, values in ((1, records * values_each), (records, values_each)):
        distance = threshold - count - 0.5
        passes = _phi(-distance / sigma)
        # 1 - (1 - passes)^values: at least one of the values passes
        any_passes = -math.expm1(values * math.log1p(-passes)) if passes < 1 else 1.0
        worst = max(worst, any_passes)
    return worst


def selection_covered(epsilon: float, mu2: Decimal, rho: Decimal) -> bool:
    """Return whether an exponential mechanism of `epsilon` costs no more than `mu2` and `rho`.

    In rho it costs epsilon^2/8, in mu what a pair of two-point distributions does (proof: `selection_mu` in
    `src/marginweave/mechanisms/exponential.py`).
    """
    mu = math.sqrt(mu2)
    most_epsilon = 2 * (_log_phi(mu / 2) - _log_phi(-mu / 2))
    if mu < 1:
        # without the cancellation of the logarithms
        most_epsilon = 4 * math.atanh(math.erf(mu / math.sqrt(8)))
    in_mu = epsilon <= most_epsilon * (1 + SLACK)
    in_rho = epsilon * epsilon / 8 <= float(rho) * (1 + SLACK)
    return in_mu and in_rho


def mixed_total_delta(draws: list[Content], epsilon: float) -> float:
    """Delta of Gaussians and exponential mechanisms by the exact worst curves of the latter; 1 beside plain costs."""
    selections = sorted(draw["parameter"] for draw in draws if draw["mechanism"] == "exponential")
    mu2 = math.fsum(float(draw["mu2"]) for draw in draws if draw["mechanism"] != "exponential")
    if _any_plain(draws) or mu2 <= 0 or max(selections, default=0) > _MOST_EPSILON:
        return 1.0
    steps_each = _ALL_STEPS // max(1, len(selections))
    steps = min(_STEPS, max(_FEWEST_STEPS, steps_each))
    largest = selections[-1] if selections else 1.0
    step = largest / steps
    masses = [1.0]
    for selection_epsilon in selections:
        selection_steps = math.ceil(selection_epsilon / step * (1 - 1e-12))
        masses = _convolve(masses, _selection_loss_masses(selection_steps, step))
    mu = math.sqrt(mu2)
    half = len(masses) // 2
    # E[delta of the Gaussians at epsilon - X], for the loss X of all selections
    terms = []
    for j, mass in enumerate(masses):
        loss = step * (j - half)
        terms.append(mass * _gaussian_curve(mu, epsilon - loss))
    mean = math.fsum(terms)
    of_thresholds = math.fsum(float(draw["delta"]) for draw in draws)
    return min(1.0, min(1.0, mean * _MARGIN) + of_thresholds)


def _any_plain(draws: list[Content]) -> bool:
    """Return whether a part of the cost is a plain (epsilon, delta)."""
    return any(draw["plain_epsilon"] or draw["plain_delta"] for draw in draws)


def _gaussian_curve(mu: float, epsilon: float) -> float:
    """Delta of mu-GDP at `epsilon`, of either sign."""
    ours = _log_phi(mu / 2 - epsilon / mu)
    theirs = epsilon + _log_phi(-mu / 2 - epsilon / mu)
    return -math.exp(ours) * math.expm1(min(0.0, theirs - ours))


def _selection_loss_masses(steps: int, step: float) -> list[float]:
    """Return the masses of one selection's losses at -steps … steps."""
    epsilon = steps * step
    factor = math.tanh(step / 4) / math.expm1(epsilon)
    masses = []
    for j in range(-steps, steps + 1):
        loss = step * j
        masses.append(2 * math.exp((epsilon + loss) / 2) * factor)
    masses[0] /= 2
    masses[-1] /= 2
    return masses


def _convolve(values: list[float], masses: list[float]) -> list[float]:
    """Return the full convolution of two lists of numbers."""
    sums = [0.0] * (len(values) + len(masses) - 1)
    for shift, mass in enumerate(masses):
        for j, value in enumerate(values, shift):
            sums[j] += mass * value
    return sums


def _phi(x: float) -> float:
    """Return the standard normal distribution function at `x`."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _log_phi(x: float) -> float:
    """Return the logarithm of the standard normal distribution function; far out by the continued fraction of Mills' ratio."""
    if x > 0:
        return math.log1p(-math.erfc(x / math.sqrt(2)) / 2)
    if x > -12:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    ratio = -x
    for k in range(40, 0, -1):
        ratio = -x + k / ratio
    # ln phi(x) - ln ratio
    log_density = -x * x / 2 - math.log(2 * math.pi) / 2
    return log_density - math.log(ratio)
