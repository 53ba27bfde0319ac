"""Advice of a verdict: which changes would make a release better. DP: post-processing of what was counted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from marginweave.configuration.marginals import MOST_PICKS, MOST_ROUNDS
from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.evaluate.distances import Names, sorted_names
from marginweave.observations.combinations import Aggregates
from marginweave.observations.means import expected_noise
from marginweave.released.evaluation import MarginalBound
from marginweave.released.verdict import GOOD, SetVerdict
from marginweave.texts.sentences import Sentence, Share, verdict_sentence

# The L1 norm of the noise of n cells with standard deviation s has the standard deviation sqrt(1 - 2/pi) sqrt(n) s. It
# is more than four of these above its mean in one of 30,000 releases.
_NORM_VARIANCE = 1 - 2 / math.pi
_DEVIATIONS = 4


@dataclass(frozen=True, kw_only=True)
class BeyondNoise:
    """Sets of columns that less noise would not make good.

    `large` are pairs with too many cells to be measured, `passed_over` pairs that rounds did not measure though they were
    farther from the model than noise. Both are tuples of sorted names. `known_columns` are columns with known counts that
    records follow and that differ from those of the table; `followed` are pairs in known tables that nothing drew.
    `more_rounds` is the line of YAML with twice the rounds, empty where a configuration has no more; `measures_named` is False
    for k-tuples, which measure no sets that are named.
    """

    large: Collection[Names] = frozenset()
    followed: Collection[Names] = frozenset()
    passed_over: Collection[Names] = frozenset()
    known_columns: Set[str] = frozenset()
    more_rounds: str = ""
    measures_named: bool = True


def rounds_line(configuration: Configuration) -> str:
    """Return the section `aggregate` with twice the rounds as a line of YAML.

    Fewer where that is more than a configuration may have; empty where there are no rounds, or no more of them.
    """
    settings = configuration.marginals
    if settings is None or settings.adaptive is None:
        return ""
    adaptive = settings.adaptive
    rounds = min(2 * adaptive.rounds, MOST_ROUNDS, MOST_PICKS // adaptive.batch)
    if rounds <= adaptive.rounds:
        return ""
    section = settings.model_dump(
        mode="json", exclude_defaults=True, exclude={"cliques", "method", "preset"}
    )
    cliques = adaptive.model_dump(mode="json", exclude_defaults=True)
    cliques |= {"adaptive": adaptive.adaptive, "rounds": rounds}
    return f"aggregate: {yaml_line({'method': 'marginals', 'cliques': cliques, **section})}"


def known_apart(
    bounds: Sequence[MarginalBound], counts: Aggregates, configuration: Configuration
) -> dict[Names, float]:
    """Return, for sets with known counts, the share of records that would have to change to agree with the noisy counts.

    Sets are left out where noise explains the distance (`_DEVIATIONS`).
    """
    columns_of_tables = [_names(table.attributes, configuration) for table in configuration.totals]
    shares: dict[Names, float] = {}
    for bound in bounds:
        if any(names.issuperset(bound.attributes) for names in columns_of_tables):
            share = _share_beyond_noise(bound, counts.record_count)
            if share:
                shares[bound.attributes] = share
    return shares


def _share_beyond_noise(bound: MarginalBound, records: float) -> float:
    """Return the share of records that would have to change to agree with noisy counts; 0 where noise explains the distance."""
    if not bound.noise or not bound.deviation:
        return 0.0
    # noise is the expected norm, sqrt(2/pi) n s: divided by that of a single cell it is n
    cells = bound.noise / expected_noise(bound.deviation, 1)
    explained = bound.noise + _DEVIATIONS * math.sqrt(_NORM_VARIANCE * cells) * bound.deviation
    if bound.distance <= explained:
        return 0.0
    apart = math.sqrt(bound.distance**2 - bound.noise**2)
    return min(1.0, apart / (2 * max(1.0, records)))


def missed_sentences(
    bounds: Iterable[MarginalBound],
    counts: Aggregates,
    apart: Collection[Names],
    titles: Mapping[str, str],
) -> Iterator[Sentence]:
    """Yield what the records have lost of measured tables of three columns and more, if they have: of the worst, and how many.

    A table is missed where the records are farther from its counts than twice its noise, and beyond noise farther than what is
    good. Columns and pairs have their grades. Those in `apart` have a sentence already.
    """
    missed = list[tuple[float, MarginalBound]]()
    for bound in bounds:
        if len(bound.attributes) < 3 or bound.attributes in apart:
            continue
        share = _share_beyond_noise(bound, counts.record_count)
        if share > GOOD and bound.distance > 2 * (bound.noise or 0.0):
            missed.append((share, bound))
    if missed:
        share, worst = max(missed, key=lambda one: one[0])
        names = " x ".join(titles.get(name, name) for name in worst.attributes)
        key = "one" if len(missed) == 1 else "more"
        yield verdict_sentence(f"missed.{key}", names=names, share=Share(share), tables=len(missed))


def _names(attributes: Iterable[int], configuration: Configuration) -> set[str]:
    return {configuration.attributes[a].name for a in attributes}


def apart_sentences(apart: Mapping[Names, float], titles: Mapping[str, str]) -> Iterator[Sentence]:
    """Yield a sentence of the verdict for each set of `known_apart`; `titles` has what it calls a column."""
    for names, share in apart.items():
        # the sentence of a column covers the sets that hold it
        if any(set(subset) < set(names) for subset in apart):
            continue
        titled = [titles.get(name, name) for name in names]
        yield verdict_sentence("known.apart", names=" x ".join(titled), share=Share(share))


def total_sentences(counts: Aggregates, configuration: Configuration) -> Iterator[Sentence]:
    """Yield a sentence for each known table of these rows whose sum noise does not explain beside the number of records.

    A table of another source may be of more rows: its shares count. A resized table has a declared number of records.
    """
    titles = configuration.titled_names
    for known in configuration.totals:
        if known.table.origin != "these-rows" or configuration.resize is not None:
            continue
        error = (known.table.sd or 0.0) * math.sqrt(len(known.counts))
        deviation = math.hypot(counts.record_deviation, error)
        apart = abs(known.total - counts.record_count)
        if deviation and apart > _DEVIATIONS * deviation:
            yield verdict_sentence(
                "known.total",
                names=" x ".join(titles.get(name, name) for name in known.table.columns),
                total=known.total,
                records=counts.record_count,
                apart=apart,
                deviations=apart / deviation,
            )


def advice(sets: Sequence[SetVerdict], epsilon: float, beyond: BeyondNoise) -> Iterator[Sentence]:
    """Yield what would make the sets better, a sentence each.

    The last one says how much more epsilon or rows would do, where less than half of the longest sets (pairs, or columns)
    are good. It offers no epsilon that protects weakly. Less noise makes no set good that was not measured, or that is in
    `beyond`.
    """
    longest_length = max((len(row.attributes) for row in sets), default=0)
    longest = [row for row in sets if len(row.attributes) == longest_length]
    large = len(beyond.large)
    if large:
        yield verdict_sentence(
            "advice.one-too-large" if large == 1 else "advice.too-large", pairs=large
        )
    unmeasured = 0
    for row in sets:
        names = sorted_names(row.attributes)
        if row.error is None and names not in beyond.large and names not in beyond.followed:
            unmeasured += 1
    if unmeasured:
        key = "not-measured" if beyond.measures_named else "not-released"
        number_key = f"one-{key}" if unmeasured == 1 else key
        yield verdict_sentence(f"advice.{number_key}", pairs=unmeasured)
    passed_over = [row for row in longest if sorted_names(row.attributes) in beyond.passed_over]
    if any((row.error or 0.0) > GOOD for row in passed_over):
        key = "advice.more-rounds" if beyond.more_rounds else "advice.no-more-rounds"
        yield verdict_sentence(key, line=beyond.more_rounds)
    median = _median_error(longest, beyond)
    if GOOD < median < math.inf:
        factor = median / GOOD
        is_weak = factor * epsilon > MOST_EPSILON
        key = "advice.more-rows" if is_weak else "advice.less-noise"
        # an error is at most 1, so that noise which is larger still needs a factor that nobody knows
        bound = verdict_sentence("factor.at-least" if median < 1 else "factor.more-than")
        yield verdict_sentence(key, bound=bound, factor=factor, most_epsilon=MOST_EPSILON)


def _median_error(sets: Sequence[SetVerdict], beyond: BeyondNoise) -> float:
    """Return the median error of some sets, infinite for those that less noise would not make good, and 0 for no sets."""
    errors: list[float] = []
    for row in sets:
        is_passed_over = sorted_names(row.attributes) in beyond.passed_over
        is_known = not beyond.known_columns.isdisjoint(row.attributes)
        if row.error is None or is_passed_over or is_known:
            errors.append(math.inf)
        else:
            errors.append(row.error)
    return statistics.median(errors) if errors else 0.0
