"""All that was drawn in a release, as one set of counts."""

from __future__ import annotations

from dataclasses import replace

from marginweave.checkpoints.codecs import unpack_number
from marginweave.domain.labels import Domain
from marginweave.estimate.earlier import Read, with_earlier
from marginweave.evaluate.bounds import most_cut_records
from marginweave.measurements.base import Drawn
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.larger_marginals import LargerMarginals
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
    """One set of aggregates from all lengths. DP: post-processing."""
    configuration = drawn.resolved
    levels = levels_below(drawn, configuration.reporting_length + 1)
    attributes, (count, sigma) = configuration.attributes, _record_count(drawn)
    labels = tuple(levels[0].released.get(j, attribute.labels) for j, attribute in enumerate(attributes))
    collected = Aggregates(
        domain=Domain(names=tuple(attribute.name for attribute in attributes), labels=labels),
        record_count=max(0, count),
        record_deviation=sigma,
        levels=tuple(one.level for one in levels),
        noise=tuple(one.noise for one in levels),
    )
    found = counted_undeclared(configuration, collected, _most_cut(drawn, collected))
    return replace(collected, domain=replace(collected.domain, undeclared=found, uncounted=observed_uncounted(drawn)))


def _record_count(drawn: Drawn) -> tuple[int, float]:
    """The number of records and the sigma of its noise: a resized table has its public number, without any."""
    resize = drawn.configuration.resize
    if resize is not None:
        return resize.records, 0.0
    measurement = drawn.plan.draw(RecordCount)
    return unpack_number(drawn.payload(measurement)), float(measurement.sigma(drawn.configuration))


def _most_cut(drawn: Drawn, collected: Aggregates) -> int:
    """So many records at most have values that length 1 lacks, as bounding contributions took them."""
    configuration, bound = drawn.configuration, collected.noise[0].contribution_bound
    if configuration.percentile is None or bound >= configuration.contribution_cap(1):
        return 0
    return most_cut_records(configuration, drawn.plan.draw(ContributionBound, 1).epsilon, collected, 1)


def collected_marginals(drawn: Drawn, read_kept: Read) -> Marginals:
    """All marginals, with those of earlier releases: together they decide whether cells are not as declared.

    `read_kept` reads the released files of an earlier release. DP: post-processing.
    """
    single, (larger, misfit) = drawn_one_way(drawn), _larger(drawn)
    finest, coarse = by_level(larger, single.levels, len(single.measured))
    whole = Marginals(domain=single.domain, one_way=single.measured, larger=finest, coarse=coarse, misfit=misfit)
    whole = with_earlier(whole, drawn.configuration, drawn.resolved, read_kept)
    alone, beyond = whole.measured
    undeclared = measured_undeclared(drawn.resolved, (*alone, *single.of_sets), beyond)
    return replace(whole, domain=replace(whole.domain, undeclared=undeclared, uncounted=observed_uncounted(drawn)))


def _larger(drawn: Drawn) -> tuple[tuple[Observation, ...], ChosenMisfit | None]:
    """The larger marginals, and of rounds the misfit of the sets that they chose."""
    if drawn.configuration.rounds is not None:
        rounds = Rounds(drawn)
        return rounds.observed(), rounds.misfit()
    larger = drawn.plan.of(LargerMarginals)
    return (unpack_observations(drawn.payload(larger[0])) if larger else ()), None
