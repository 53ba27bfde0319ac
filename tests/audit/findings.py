"""What an audit says of one mechanism: scores of trials, exact bounds of mu, epsilon and delta, and the verdict on a claim.

A test that tells two neighboring tables apart says "present" in a share TPR of the trials with one and FPR of those with the
other. mu-GDP with an additive delta has TPR <= Phi(PhiInv(FPR) + mu) + delta (Dong, Roth and Su 2022, definition 4;
Kairouz, Oh and Viswanath 2015 for delta), epsilon-DP has TPR <= e^epsilon FPR: a test that does better refutes the claim.
Nasr et al. 2023 (arXiv 2302.07956) audit mu in this way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from marginweave.base.arrays import Counts, Floats
from marginweave.base.budget import Stability
from marginweave.mechanisms.percentile import percentile_fraction, rank_scores, score_sensitivity

# How often a finding may be wrong: any of the ends that it looks at.
FALSE_ALARM = 1e-6
# More candidates reach more of the bound, which one of them, the best, cannot do; and each draw takes longer.
_CANDIDATES = 40


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
    # half a second of imports, that a release would wait for to draw its report
    from scipy.stats import binomtest

    found = binomtest(hits, trials).proportion_ci(1 - error, method="exact")
    return Interval(low=float(found.low), high=float(found.high))


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
    return clopper_pearson(hits.present, hits.trials, error / 2), clopper_pearson(
        hits.absent, hits.trials, error / 2
    )


@dataclass(frozen=True, kw_only=True)
class TrialScores:
    """A score of every trial, with and without the canary, and the `cut` above which the test says "present".

    The cut is set before the trials are looked at, or from trials that are not among them.
    """

    present: Floats
    absent: Floats
    cut: float

    @property
    def hits(self) -> Hits:
        """How often the test says "present"."""
        above = (int((scores > self.cut).sum()) for scores in (self.present, self.absent))
        return Hits(present=next(above), absent=next(above), trials=len(self.present))


def joint_scores(parts: Sequence[TrialScores]) -> TrialScores:
    """Scores of mechanisms that are run beside each other: log-likelihood ratios of independent noise add up."""
    trials = min(len(part.present) for part in parts)
    return TrialScores(
        present=np.sum([part.present[:trials] for part in parts], axis=0),
        absent=np.sum([part.absent[:trials] for part in parts], axis=0),
        cut=sum(part.cut for part in parts),
    )


def shift_score(noisy: Counts, exact: Counts, shift: Counts, sigma: float | Fraction) -> Floats:
    """Logarithm of the likelihood ratio of counts `exact + shift` to `exact` under Gaussian noise, but for its constant.

    sum over cells of shift (noisy - exact) / sigma^2, by Neyman and Pearson the best test there is; with
    lambda = |shift| / sigma it is N(0, lambda^2) without the canary and N(lambda^2, lambda^2) with it.

    Args:
        noisy: shape (trials, *cells).
        exact: shape (*cells), without the canary.
        shift: shape (*cells), what the canary adds.
        sigma: of the noise.
    """
    moved = np.flatnonzero(shift)
    difference = noisy.reshape(len(noisy), -1)[:, moved] - exact.ravel()[moved]
    return difference @ shift.ravel()[moved].astype(np.float64) / float(sigma) ** 2


def separation(shifts: Iterable[tuple[Counts, float | Fraction]]) -> float:
    """lambda^2, the sum over vectors of |shift|^2 / sigma^2; half of it is the cut of least error."""
    return sum(
        float((shift.astype(np.float64) ** 2).sum()) / float(sigma) ** 2 for shift, sigma in shifts
    )


def noise_scores(
    noisy: Callable[[Counts], Counts], present: Counts, absent: Counts, sigma: float | Fraction
) -> TrialScores:
    """The log-likelihood ratios of Gaussian noise on the exact counts of both tables; `noisy` draws (trials, *cells)."""
    shift = present - absent
    scores = [shift_score(noisy(exact), absent, shift, sigma) for exact in (present, absent)]
    return TrialScores(present=scores[0], absent=scores[1], cut=separation([(shift, sigma)]) / 2)


def event_scores(present: NDArray[np.bool_], absent: NDArray[np.bool_]) -> TrialScores:
    """Scores of an event: 1 in the trials in which it was seen."""
    return TrialScores(
        present=present.astype(np.float64), absent=absent.astype(np.float64), cut=0.5
    )


def split_cut(present: Floats, absent: Floats, share: float = 0.2) -> TrialScores:
    """Scores whose cut is half-way between the medians of the first `share` of the trials, and the trials that remain."""
    first = max(1, int(share * len(present)))
    cut = float(np.median(present[:first]) + np.median(absent[:first])) / 2
    return TrialScores(present=present[first:], absent=absent[first:], cut=cut)


Quantity = Literal["mu", "epsilon", "delta"]
Verdict = Literal["holds", "exceeded", "over-noised"]
# A test that is optimal must reach this share of the claim: what stays below has more noise than was paid for.
REACHED = 0.95


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim about `quantity` and the interval that was measured by `trials` with the canary and as many without.

    `tight`: the tables and the test are the worst there are, so that the claim must be reached, too.
    """

    name: str
    quantity: Quantity
    claim: float
    measured: Interval
    trials: int
    tight: bool = False

    @property
    def verdict(self) -> Verdict:
        """`exceeded` where the lower bound is above the claim: the privacy statement is refuted."""
        if self.measured.low > self.claim:
            return "exceeded"
        if self.tight and self.measured.high < REACHED * self.claim:
            return "over-noised"
        return "holds"


def mu_finding(
    name: str, scores: TrialScores, claim: float, *, tight: bool, delta: float = 0.0
) -> Finding:
    """What scores say of mu, beside an additive `delta`."""
    measured = mu_interval(scores.hits, delta)
    return Finding(
        name=name,
        quantity="mu",
        claim=claim,
        measured=measured,
        trials=len(scores.present),
        tight=tight,
    )


def epsilon_finding(name: str, hits: Hits, claim: float) -> Finding:
    """What hits of an event say of a pure epsilon, where the event is the likeliest one to tell."""
    measured = epsilon_interval(hits)
    return Finding(
        name=name,
        quantity="epsilon",
        claim=claim,
        measured=measured,
        trials=hits.trials,
        tight=True,
    )


def delta_finding(name: str, events: int, trials: int, claim: float) -> Finding:
    """What the number of events says of the delta that pays for them."""
    return Finding(
        name=name,
        quantity="delta",
        claim=claim,
        measured=clopper_pearson(events, trials),
        trials=trials,
    )


def refuted(findings: Sequence[Finding]) -> bool:
    """Whether any lower bound exceeds its claim."""
    return any(finding.verdict == "exceeded" for finding in findings)


@dataclass(frozen=True, kw_only=True)
class WorstPair:
    """Histograms of two neighboring tables; a chosen candidate of at most `at_most` speaks for `present`."""

    present: Counts
    absent: Counts
    at_most: int


def worst_pair(
    percentile: float, epsilon: float, stability: Stability, candidates: int = _CANDIDATES
) -> WorstPair:
    """Neighbors whose log odds of the lower candidates against the upper ones differ by almost epsilon.

    All records but one unit hold 1 or L combinations. The wanted rank is among those with L, but for the unit just: each
    score below L falls by the whole sensitivity, each above rises by as much. Of all L the one of largest mu, by the exact
    distribution.
    DP: arithmetic on public numbers and made-up data.
    """
    found = [_pair(percentile, stability, candidates, middle) for middle in range(2, candidates)]
    return max(found, key=lambda pair: _mu(pair, percentile, epsilon, stability))


def _pair(percentile: float, stability: Stability, candidates: int, middle: int) -> WorstPair:
    """With q = a/b: enough records that the unit is part of the distance of every score but that of `middle`."""
    fraction, moved = percentile_fraction(percentile), stability.records
    a, b = fraction.numerator, fraction.denominator
    unit, other = np.zeros(candidates + 1, np.int64), np.zeros(candidates + 1, np.int64)
    replaces = stability.neighbors == "replace-one"
    if replaces:
        total, needed = -(-b * moved // min(a, b - a)), 0
        unit[1], other[-1] = moved, moved
    elif 2 * a >= b:
        total, needed = -(-a * moved // (b - a)), 0
        other[-1] = moved
    else:
        total, needed = -(-(b - a) * moved // a), (b - a) * moved
        unit[1] = moved
    base = np.zeros(candidates + 1, np.int64)
    base[1] = (a * total - needed) // b
    base[middle] = total - base[1]
    if replaces:  # the unit is among the records that hold 1
        base[1] -= moved
    return WorstPair(present=base + unit, absent=base + other, at_most=middle - 1)


def _mu(pair: WorstPair, percentile: float, epsilon: float, stability: Stability) -> float:
    """The mu of the event, from the exact probabilities of both histograms."""
    chances = []
    for histogram in (pair.present, pair.absent):
        scores = rank_scores(histogram, percentile) * (
            epsilon / 2 / score_sensitivity(percentile, stability)
        )
        weights = np.exp(scores - scores.max())
        chances.append(weights[: pair.at_most].sum() / weights.sum())
    if (np.array([pair.present, pair.absent]) < 0).any():
        return -np.inf
    return float(ndtri(chances[0]) - ndtri(chances[1]))
