"""All that was drawn in a release, collected in one object."""

from __future__ import annotations

from dataclasses import replace

from marginweave.checkpoints.codecs import unpack_number
from marginweave.domain.labels import Domain
from marginweave.estimate.earlier import Read, with_earlier
from marginweave.evaluate.bounds import most_cut_records
from marginweave.measurements.base import Drawn
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.few_records import one_way_of_both
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.linked_counts import linked_observations
from marginweave.measurements.marginal_rows import by_level
from marginweave.measurements.one_way import drawn_one_way
from marginweave.measurements.record_count import RecordCount
from marginweave.measurements.round_draws import Rounds
from marginweave.measurements.rows_beyond_cap import observed_uncounted
from marginweave.measurements.survivors import levels_below
from marginweave.observations.combinations import Aggregates
from marginweave.observations.payloads import unpack_observations
from marginweave.observations.tables import ChosenMisfit, Marginals, Observation
from marginweave.observations.undeclared import counted_undeclared, measured_undeclared


def collected_combinations(drawn: Drawn) -> Aggregates:
    """Return one set of aggregates from all lengths. DP: post-processing."""
    configuration = drawn.resolved
    levels = levels_below(drawn, configuration.reporting_length + 1)
    attributes = configuration.attributes
    count, sigma = _record_count(drawn)
    released = levels[0].released
    labels = tuple(released.get(j, attribute.labels) for j, attribute in enumerate(attributes))
    collected = Aggregates(
        domain=Domain(names=tuple(attribute.name for attribute in attributes), labels=labels),
        record_count=max(0, count),
        record_deviation=sigma,
        levels=tuple(drawn_level.level for drawn_level in levels),
        noise=tuple(drawn_level.noise for drawn_level in levels),
    )
    undeclared = counted_undeclared(configuration, collected, _most_cut(drawn, collected))
    domain = replace(collected.domain, undeclared=undeclared, uncounted=observed_uncounted(drawn))
    return replace(collected, domain=domain)


def _record_count(drawn: Drawn) -> tuple[int, float]:
    """Return the number of records and the sigma of its noise: a resized table has its public number, without noise."""
    resize = drawn.configuration.resize
    if resize is not None:
        return resize.records, 0.0
    measurement = drawn.plan.draw(RecordCount)
    return unpack_number(drawn.payload(measurement)), float(measurement.sigma(drawn.configuration))


def _most_cut(drawn: Drawn, collected: Aggregates) -> int:
    """Return how many records, at most, lost values of length 1 when their contributions were bounded."""
    configuration = drawn.configuration
    bound = collected.noise[0].contribution_bound
    if configuration.percentile is None or bound >= configuration.contribution_cap(1):
        return 0
    epsilon = drawn.plan.draw(ContributionBound, 1).epsilon
    return most_cut_records(configuration, epsilon, collected, 1)


def collected_marginals(drawn: Drawn, read_kept: Read) -> Marginals:
    """Return all marginals, with those of earlier releases: all of them decide whether cells are not as declared.

    `read_kept` reads the released files of an earlier release. DP: post-processing.
    """
    single = drawn_one_way(drawn)
    larger, misfit = _larger(drawn)
    is_combined = any(len(table.attributes) == 1 for table in larger)
    if is_combined:
        again = [table for table in larger if len(table.attributes) == 1]
        larger = tuple(table for table in larger if len(table.attributes) > 1)
        single = one_way_of_both(drawn, again)
    finest, coarse = by_level(larger, single.levels, len(single.measured))
    marginals = Marginals(
        domain=single.domain,
        one_way=single.measured,
        larger=finest,
        coarse=coarse,
        misfit=misfit,
        is_combined=is_combined,
        linked=linked_observations(drawn),
    )
    marginals = with_earlier(marginals, drawn.configuration, drawn.resolved, read_kept)
    one_way, larger_measured = marginals.measured
    undeclared = measured_undeclared(drawn.resolved, (*one_way, *single.of_sets), larger_measured)
    domain = replace(marginals.domain, undeclared=undeclared, uncounted=observed_uncounted(drawn))
    return replace(marginals, domain=domain)


def _larger(drawn: Drawn) -> tuple[tuple[Observation, ...], ChosenMisfit | None]:
    """Return the larger marginals; if they were chosen in rounds, also the misfit of the chosen sets."""
    if drawn.configuration.rounds is not None:
        rounds = Rounds(drawn)
        return rounds.observed(), rounds.misfit()
    measurements = drawn.plan.of(LargerMarginals)
    if not measurements:
        return (), None
    return unpack_observations(drawn.payload(measurements[0])), None
