"""The task of the releasable evaluation: synthetic records against the released counts; it cannot open a private file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from marginweave.base.parallel import LocalEngine
from marginweave.checkpoints.codecs import Unpacked, unpack_codes, unpack_table
from marginweave.configuration.release import Configuration
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
from marginweave.observations.tables import Marginals
from marginweave.released.evaluation import BrokenRule, DistanceBounds, Evaluation
from marginweave.runs.capabilities import DerivedReference, StageResult

from .normalize import load_counts, released_counts
from .stage import stage

_DISTANCE = (
    "sum of |count - synthetic count| over {cells} of these attributes, in records, the synthetic counts weighted to the "
    "noisy number of records: distance of the counts as drawn, bound of {counts} without noise, each at this level by itself"
)
_RELEASED = (
    _DISTANCE.format(cells="the released combinations", counts="the bounded counts")
    + "; what was suppressed is not known and no part of it"
)
_MEASURED = _DISTANCE.format(cells="all cells, missing as a value,", counts="those of the rows as prepared")


_INPUTS = ("synthesize", "normalize", "decode", "collect", "fit")


@stage("evaluate")
def evaluate(reference: DerivedReference, parts: dict[str, StageResult]) -> StageResult:
    """How well the synthetic records keep the released counts and the rules, and how far from the sensitive ones they can be.

    `parts` has the results of `collect`, `normalize`, `synthesize` and `decode`; and of `fit`, where there is a model: its
    error is listed apart from that of the records.
    DP: post-processing.
    """
    synthesized = parts["synthesize"]

    def compute() -> bytes:
        whole = load_counts(reference, parts["normalize"])
        configuration = reference.estimated(whole.domain)
        counts = released_counts(whole, configuration)
        blocks = Unpacked(unpack_codes, reference.load_blocks(synthesized))
        records = Records(blocks, counts.domain, configuration.memory)
        rules, tallies = _rules_and_numbers(reference, parts["decode"], configuration)
        more: dict[str, Any] = {"counted": configuration.counted_with(counts.bounds)}
        drawn = _as_drawn(load_counts(reference, parts["collect"]))
        marginals_drawn = drawn if isinstance(drawn, Marginals) else None
        pooled = whole if isinstance(whole, Marginals) else None
        compression = None if pooled is None else compression_of(pooled, configuration)[1]
        numbers = number_summaries(configuration, counts, marginals_drawn, tallies.statistics())
        if numbers:
            more["numbers"] = numbers
        if (fitted := parts.get("fit")) is not None:
            model = unpack_mixture(reference.load(fitted)).conditioned()
            spread = None if compression is None else Spread.of(compression)
            more["model"] = error_parts(records, counts, model, spread)
        bounds = _bounds(drawn, records, configuration)
        # The verdict is on what is known, earlier releases included; bounds are of the counts as drawn.
        together = marginal_bounds(pooled, records, configuration) if pooled and pooled.pooled else bounds.marginals
        dependent = None if pooled is None else dependent_pairs(estimated_marginals(pooled, configuration))
        agreement = evaluate_release(records, counts, ordered=configuration.ordered, rules=rules, dependent=dependent)
        related, of_model = agreement.association.cramers_v, more.get("model", ())
        facts = DrawFacts(
            lone=_lone(pooled, reference.configuration),
            misfit=None if marginals_drawn is None else marginals_drawn.misfit,
            unreleased=_unreleased(marginals_drawn),
        )
        judged = release_verdict(together, counts, configuration, compression, related, model=of_model, facts=facts)
        return Evaluation(**dict(agreement) | more, verdict=judged, bounds=bounds).to_json()

    inputs = [parts[name] for name in _INPUTS if name in parts]
    return reference.checkpoint("evaluate", inputs, compute)


def _as_drawn(collected: Aggregates | Marginals) -> Aggregates | Marginals:
    """The counts of this release alone, without what earlier ones measured."""
    return replace(collected, pooled=()) if isinstance(collected, Marginals) else collected


def _lone(pooled: Marginals | None, configuration: Configuration) -> float | None:
    """The deviation of the noise of a selected pair that is measured alone; None where one was measured."""
    settings = configuration.marginals
    if settings is None or settings.cliques != "selected" or not settings.selects(len(configuration.attributes)):
        return None
    is_alone = pooled is not None and len(pooled.drawn) == len(pooled.one_way)
    return plan_budget(configuration).draw(LargerMarginals).sigma_alone(configuration) if is_alone else None


def _unreleased(drawn: Marginals | None) -> dict[str, tuple[float, float]]:
    """By attribute the count behind those of its values, as drawn, and the deviation of its noise."""
    if drawn is None:
        return {}
    named = zip(drawn.domain.names, drawn.domain.labels, drawn.one_way, strict=False)
    return {
        name: (float(one.counts[len(labels)]), one.deviation)
        for name, labels, one in named
        if len(one.counts) > len(labels)
    }


def _rules_and_numbers(
    reference: DerivedReference, decoded: StageResult, configuration: Configuration
) -> tuple[tuple[BrokenRule, ...], NumberTallies]:
    """Synthetic records that break what is declared, and tallies of their numbers, block by block."""
    blocks = reference.load_blocks(decoded)

    def of_block(block: int) -> tuple[tuple[tuple[BrokenRule, ...], int], NumberTallies]:
        table, tallies = unpack_table(blocks[block]), NumberTallies(configuration)
        tallies.add(table)
        return (broken_rules(table, configuration), table.num_rows), tallies

    rules, whole = [], NumberTallies(configuration)
    for broken, tallies in LocalEngine().map(of_block, range(len(blocks))):
        rules.append(broken)
        whole.join(tallies)
    return add_rules(rules), whole


def _bounds(drawn: Aggregates | Marginals, records: Records, configuration: Configuration) -> DistanceBounds:
    """Bounds of the L1 distance, in records, by the attributes of each marginal; None where one is not known."""
    if isinstance(drawn, Marginals):
        about, found = _MEASURED, marginal_bounds(drawn, records, configuration)
    else:
        about, found = _RELEASED, combination_bounds(drawn, records, configuration)
    return DistanceBounds(level=LEVEL, about=about, marginals=found)
