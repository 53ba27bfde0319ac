"""What an audit says of one mechanism: claim, measured interval, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from marginweave.tasks.empirical.bounds import Hits, Interval, clopper_pearson, epsilon_interval, mu_interval
from marginweave.tasks.empirical.scores import Scores

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


def mu_finding(name: str, scores: Scores, claim: float, *, tight: bool, delta: float = 0.0) -> Finding:
    """What scores say of mu, beside an additive `delta`."""
    hits = scores.hits
    return Finding(
        name=name, quantity="mu", claim=claim, measured=mu_interval(hits, delta), trials=hits.trials, tight=tight
    )


def epsilon_finding(name: str, hits: Hits, claim: float) -> Finding:
    """What hits of an event say of a pure epsilon, where the event is the likeliest one to tell."""
    return Finding(
        name=name, quantity="epsilon", claim=claim, measured=epsilon_interval(hits), trials=hits.trials, tight=True
    )


def delta_finding(name: str, events: int, trials: int, claim: float) -> Finding:
    """What the number of events says of the delta that pays for them."""
    return Finding(name=name, quantity="delta", claim=claim, measured=clopper_pearson(events, trials), trials=trials)


def refuted(findings: Sequence[Finding]) -> bool:
    """Whether any lower bound exceeds its claim."""
    return any(finding.verdict == "exceeded" for finding in findings)
