"""What would make a release better, and what would not. DP: post-processing of what was counted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.release import Configuration
from marginweave.evaluate.distances import sorted_names
from marginweave.observations.combinations import Aggregates
from marginweave.observations.means import expected_noise
from marginweave.released.evaluation import MarginalBound
from marginweave.released.verdict import GOOD, SetVerdict

_TOO_LARGE = (
    "{some} pairs have more cells than aggregate.cliques.max_cells, so that nothing could choose or measure them: coarser "
    "values or a larger max_cells would."
)
_MORE_ROUNDS = (
    "Rounds ended while pairs were farther from the model than noise: more of them (aggregate.cliques.rounds) would measure "
    "more pairs."
)
_KNOWN_APART = (
    "Records follow the known counts of {names}, and about {share} % of them would have to change to be what was counted: "
    "more than noise explains."
)
KNOWN_ADVICE = (
    "Where known counts differ from the table, more epsilon or rows bring records no closer to it: look whether the table or "
    "the known counts are wrong, unless records are meant to follow these."
)
_WEAK = "; an epsilon above 10, which would do as much, protects weakly"


@dataclass(frozen=True, kw_only=True)
class BeyondNoise:
    """What no noise that is less makes good.

    By their sorted names pairs with too many cells to be measured (`large`), and those that rounds `left` behind though they
    are farther than noise; columns whose `known` counts, which records follow, are others than those of the table.
    """

    large: Collection[tuple[str, ...]] = frozenset()
    left: Collection[tuple[str, ...]] = frozenset()
    known: Set[str] = frozenset()


def known_apart(
    bounds: Sequence[MarginalBound], counts: Aggregates, configuration: Configuration
) -> dict[tuple[str, ...], float]:
    """By what is known exactly of some attributes, the share of records that would have to change to be what was counted.

    Where noise does not explain the distance: the L1 norm of the noise of n cells of deviation s has one of
    sqrt(1 - 2/pi) sqrt(n) s about its mean, and is more than four of these above it in one of 30,000 releases.
    """
    exact = [{configuration.attributes[a].name for a in t.attributes} for t in configuration.totals if t.exact]
    found = dict[tuple[str, ...], float]()
    for bound in bounds:
        if not bound.noise or not bound.deviation or not any({*bound.attributes} <= names for names in exact):
            continue
        cells = bound.noise / expected_noise(bound.deviation, 1)
        if bound.distance > bound.noise + 4 * math.sqrt((1 - 2 / math.pi) * cells) * bound.deviation:
            apart = math.sqrt(bound.distance**2 - bound.noise**2)
            found[bound.attributes] = min(1.0, apart / (2 * max(1.0, counts.record_count)))
    return found


def apart_words(apart: Mapping[tuple[str, ...], float], called: Mapping[str, str]) -> Iterator[str]:
    """What a verdict says of `known_apart`, a sentence each; `called` has what it calls a column."""
    for names, share in apart.items():
        if not any({*others} < {*names} for others in apart):  # a column says it for sets that hold it
            yield _KNOWN_APART.format(
                names=" x ".join(called.get(name, name) for name in names), share=f"{100 * share:.0f}"
            )


def advice(sets: Sequence[SetVerdict], epsilon: float, beyond: BeyondNoise) -> Iterator[str]:
    """How much more would do, where less than half of the pairs (or columns) are good; no epsilon that protects weakly.

    No noise that is less makes a pair good that nothing measured, or that is `beyond`.
    """
    longest = max((len(row.attributes) for row in sets), default=0)
    found = [row for row in sets if len(row.attributes) == longest]
    left = {row.attributes for row in found if sorted_names(row.attributes) in beyond.left}
    lasting = left | {row.attributes for row in found if not beyond.known.isdisjoint(row.attributes)}
    errors = [math.inf if row.error is None or row.attributes in lasting else row.error for row in found]
    if beyond.large:
        yield _TOO_LARGE.format(some=f"{len(beyond.large):,}")
    if unknown := sum(row.error is None and sorted_names(row.attributes) not in beyond.large for row in sets):
        yield (
            f"{unknown:,} pairs were not measured, and are in the records only as far as others imply them: name what must be "
            "right in aggregate.cliques."
        )
    if any(row.attributes in left and (row.error or 0.0) > GOOD for row in found):
        yield _MORE_ROUNDS
    median = statistics.median(errors) if errors else 0.0
    if GOOD < median < math.inf:
        weak = _WEAK if median / GOOD * epsilon > MOST_EPSILON else ""
        yield (
            f"At least {median / GOOD:.1f} times the {'rows' if weak else 'epsilon, or the rows,'} would make half of them "
            f"good; so do fewer columns and coarser values{weak}."
        )
