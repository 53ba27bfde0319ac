"""Stage `evaluate`: compare synthetic records with the released counts; it cannot open a private file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from marginweave.base.parallel import LocalEngine
from marginweave.checkpoints.codecs import Unpacked, unpack_codes, unpack_table
from marginweave.configuration.defaults import is_automatic
from marginweave.configuration.release import Configuration
from marginweave.estimate.earlier import contradicted_attributes
from marginweave.estimate.intervals import LEVEL
from marginweave.estimate.marginals import Spread, compression_of, estimated_marginals
from marginweave.estimate.mixture.model import unpack_mixture
from marginweave.evaluate.agreement import error_parts
from marginweave.evaluate.bounds import combination_bounds, dependent_pairs, marginal_bounds
from marginweave.evaluate.cells import Records
from marginweave.evaluate.metrics import evaluate_release
from marginweave.evaluate.numbers import NumberTallies, number_summaries
from marginweave.evaluate.rules import add_rules, broken_rules
from marginweave.evaluate.verdict import DrawFacts, release_verdict
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.split import plan_budget
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression
from marginweave.observations.linked_uncounted import linked_uncounted
from marginweave.observations.linked_undeclared import linked_undeclared
from marginweave.observations.tables import Marginals
from marginweave.released.evaluation import (
    BrokenRule,
    DistanceBounds,
    ErrorParts,
    Evaluation,
    MarginalBound,
)
from marginweave.runs.capabilities import DerivedReference, StageResult
from marginweave.texts.sentences import report_sentence

from .normalize import load_counts, released_counts
from .stage import stage

_INPUTS = ("synthesize", "normalize", "decode", "collect", "fit")


@stage("evaluate")
def evaluate(reference: DerivedReference, parts: dict[str, StageResult]) -> StageResult:
    """Measure how well the synthetic records keep the released counts and the rules, and bound their distance from the rows.

    `parts` has the results of `collect`, `normalize`, `synthesize` and `decode`; and of `fit`, where there is a model: its
    error is listed separately from the error of the records.
    DP: post-processing.
    """

    def compute() -> bytes:
        normalized = load_counts(reference, parts["normalize"])
        configuration = reference.estimated(normalized.domain)
        counts = released_counts(normalized, configuration)
        blocks = Unpacked(unpack_codes, reference.load_blocks(parts["synthesize"]))
        records = Records(blocks, counts.domain, configuration.memory)
        rules, tallies = _rules_and_numbers(reference, parts["decode"], configuration)
        collected = load_counts(reference, parts["collect"])
        drawn = _without_earlier(collected)
        marginals_drawn = drawn if isinstance(drawn, Marginals) else None
        pooled = normalized if isinstance(normalized, Marginals) else None
        compression = None if pooled is None else compression_of(pooled, configuration)[1]
        numbers = number_summaries(configuration, counts, marginals_drawn, tallies.statistics())
        model_error = _model_error(reference, parts.get("fit"), records, counts, compression)
        bounds = _bounds(drawn, records, configuration)
        dependent = (
            None if pooled is None else dependent_pairs(estimated_marginals(pooled, configuration))
        )
        agreement = evaluate_release(
            records, counts, ordered=configuration.ordered, rules=rules, dependent=dependent
        )
        verdict = release_verdict(
            _verdict_bounds(bounds, pooled, records, configuration),
            counts,
            configuration,
            compression,
            agreement.association,
            model=model_error or (),
            facts=_draw_facts(collected, pooled, reference.configuration, configuration),
            # as declared: bounds that were bought since were no reason of the choice
            is_automatic=is_automatic(reference.configuration),
        )
        evaluation = Evaluation(
            **dict(agreement),
            counted=configuration.counted_with(counts.bounds),
            numbers=numbers or None,
            model=model_error,
            verdict=verdict,
            bounds=bounds,
        )
        return evaluation.to_json()

    inputs = [parts[name] for name in _INPUTS if name in parts]
    return reference.checkpoint("evaluate", inputs, compute)


def _without_earlier(collected: Aggregates | Marginals) -> Aggregates | Marginals:
    """Return the counts of this release alone, without those that earlier releases measured."""
    return replace(collected, pooled=()) if isinstance(collected, Marginals) else collected


def _model_error(
    reference: DerivedReference,
    fitted: StageResult | None,
    records: Records,
    counts: Aggregates,
    compression: Compression | None,
) -> tuple[ErrorParts, ...] | None:
    """Return the distances of counts, model and records by length; None where no model was fitted."""
    if fitted is None:
        return None
    model = unpack_mixture(reference.load(fitted)).conditioned()
    spread = None if compression is None else Spread.of(compression)
    return error_parts(records, counts, model, spread)


def _draw_facts(
    collected: Aggregates | Marginals,
    pooled: Marginals | None,
    configuration: Configuration,
    estimated: Configuration,
) -> DrawFacts:
    """Return the facts about the draws of a release, with earlier ones pooled, that its verdict needs.

    `estimated` is the configuration with the bounds that were drawn.
    """
    lone = _sigma_of_single_pair(pooled, configuration)
    if not isinstance(collected, Marginals):
        return DrawFacts(lone=lone)
    names = collected.domain.names
    return DrawFacts(
        lone=lone,
        misfit=collected.misfit,
        unreleased=_unreleased(collected),
        contradicted=tuple(names[place] for place in contradicted_attributes(collected)),
        chose_pairs=collected.is_combined,
        linked=linked_undeclared(collected.linked),
        linked_rows=linked_uncounted(collected, estimated),
    )


def _sigma_of_single_pair(pooled: Marginals | None, configuration: Configuration) -> float | None:
    """Return the sigma that a single selected pair would have, if pairs are selected and none was; else None."""
    settings = configuration.marginals
    if settings is None or pooled is None or len(pooled.drawn) != len(pooled.one_way):
        return None
    selects = settings.cliques == "selected" and settings.selects(len(configuration.attributes))
    if not selects and not pooled.is_combined:
        return None
    return plan_budget(configuration).draw(LargerMarginals).sigma_alone(configuration)


def _verdict_bounds(
    bounds: DistanceBounds, pooled: Marginals | None, records: Records, configuration: Configuration
) -> Sequence[MarginalBound]:
    """Return distances by all counts, earlier releases included; the published bounds are of this release alone."""
    return (
        marginal_bounds(pooled, records, configuration)
        if pooled and pooled.pooled
        else bounds.marginals
    )


def _unreleased(drawn: Marginals) -> dict[str, tuple[float, float]]:
    """Return by attribute the noisy count of its unreleased values, after the counts of its labels, and the noise's sigma."""
    unreleased = {}
    for name, labels, marginal in zip(
        drawn.domain.names, drawn.domain.labels, drawn.one_way, strict=False
    ):
        if len(marginal.counts) > len(labels):
            unreleased[name] = (float(marginal.counts[len(labels)]), marginal.deviation)
    return unreleased


def _rules_and_numbers(
    reference: DerivedReference, decoded: StageResult, configuration: Configuration
) -> tuple[tuple[BrokenRule, ...], NumberTallies]:
    """Return how many synthetic records break each declared rule, and tallies of their numbers."""
    blocks = reference.load_blocks(decoded)

    def check_block(number: int) -> tuple[tuple[tuple[BrokenRule, ...], int], NumberTallies]:
        table = unpack_table(blocks[number])
        tallies = NumberTallies(configuration)
        tallies.add(table)
        return (broken_rules(table, configuration), table.num_rows), tallies

    rules = []
    all_tallies = NumberTallies(configuration)
    for broken, tallies in LocalEngine().map(check_block, range(len(blocks))):
        rules.append(broken)
        all_tallies.join(tallies)
    return add_rules(rules), all_tallies


def _bounds(
    drawn: Aggregates | Marginals, records: Records, configuration: Configuration
) -> DistanceBounds:
    """Return bounds of the L1 distance, in records, by the attributes of each marginal; None where there is no bound."""
    if isinstance(drawn, Marginals):
        bounds = marginal_bounds(drawn, records, configuration)
        return DistanceBounds(
            level=LEVEL, about=str(report_sentence("distance.measured")), marginals=bounds
        )
    bounds = combination_bounds(drawn, records, configuration)
    return DistanceBounds(
        level=LEVEL, about=str(report_sentence("distance.released")), marginals=bounds
    )
