"""Tasks of the stage: the record count, one length at a time, and the collection of what was drawn.

Each draw goes through `draw_once`: charged, then drawn, then committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from marginweave.accounting.records import State
from marginweave.base.digests import counts_digest
from marginweave.base.parallel import Engine
from marginweave.checkpoints.codecs import pack_number, unpack_number
from marginweave.checkpoints.spill import scratch_folder
from marginweave.configuration.attributes import combinations_of
from marginweave.counts.bounded_counts import bounded_counts, contribution_histogram
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.count_runs import MemoryBudget
from marginweave.counts.discovery import ReleasedBlocks, released_level
from marginweave.counts.engine import open_engine
from marginweave.counts.level import LevelMechanism, draw_level, level_noise, plan_level, prepare_level
from marginweave.counts.marginal_rows import open_encoded
from marginweave.counts.overflow import Expectation, keep_most, raise_threshold
from marginweave.counts.payloads import DrawnLevel, level_digest, pack_aggregates, pack_level, unpack_level
from marginweave.counts.undeclared import counted_undeclared
from marginweave.domain.zeros import excluded_codes
from marginweave.draws.draw import draw_once, draw_unless_returned, is_committed, standing
from marginweave.draws.protocol import PreparedDraw
from marginweave.draws.references import RunReference, StageResult
from marginweave.evaluate.bounds import most_cut_records
from marginweave.measurements.combinations import Aggregates, Domain, Level
from marginweave.measurements.plan import DrawKind
from marginweave.mechanisms.gaussian import add_noise, gaussian_terms, query_sigma, select_percentile
from marginweave.mechanisms.percentile import score_sensitivity
from marginweave.mechanisms.randomness import DrawBits, KeyedBits

from ...schemas.contracts import check_aggregates
from ..stage import stage


@stage("count records")
def count_records(reference: RunReference, encoded: StageResult) -> StageResult:
    """The protected number of records: n plus rounded Gaussian noise.

    DP: mu-GDP with mu = 1 / sigma, sigma the noise multiplier; the sensitivity is theta, the most rows of one unit.
    """

    def prepare() -> PreparedDraw:
        records, sigma = np.array([open_encoded(reference, encoded).records], np.int64), _count_sigma(reference)
        return PreparedDraw(
            inputs=counts_digest([records]),
            used=gaussian_terms(sigma),
            make=lambda bits, _: pack_number(int(add_noise(records, sigma, bits)[0])),
        )

    return draw_once(reference, reference.plan.draw(DrawKind.COUNT), prepare)[1]


@stage("aggregate", run_name="aggregate k={length}")
def aggregate_level(reference: RunReference, encoded: StageResult, length: int) -> StageResult:
    """Bounded noisy counts of all combinations of `length`, from the survivors of the length below.

    Where no survivors are left to combine, nothing is drawn and the length's share goes
    back to the account; the guarantee that is stated stays the planned one.
    DP: the percentile's and the level's planned costs, one ledger event each.
    """
    draw = reference.plan.draw(DrawKind.LEVEL, length)
    if is_committed(reference, draw):
        return draw_once(reference, draw)[1]
    below = [unpack_level(_level(reference, k)[0]) for k in range(1, length)]
    blocks = ReleasedBlocks(open_encoded(reference, encoded), below[0].released if below else {})
    if below:
        candidates = _candidates_above(reference, below)
        if not candidates.any():
            draws = [standing(reference, draw) for draw in reference.plan.draws if draw.length == length]
            names = [draw.name for draw in draws if draw.state == State.RESERVED]
            reference.ledger.draws.return_unused(reference.manifest.release, names)
            return _level(reference, length)[1]
    else:
        candidates = CandidateSet(length=1, sizes=blocks.sizes)
    with scratch_folder(reference.folder.private) as scratch:
        memory = MemoryBudget(reference.configuration.memory, scratch)
        return _counted_and_drawn(reference, blocks, candidates, [drawn.level for drawn in below], memory)


def _counted_and_drawn(
    reference: RunReference, blocks: ReleasedBlocks, candidates: CandidateSet, below: list[Level], memory: MemoryBudget
) -> StageResult:
    """The draw of a level over these candidates, from counts that memory or its folder hold."""
    planned = reference.plan.draw(DrawKind.LEVEL, candidates.length)
    with open_engine(reference) as engine:
        bound, charged = _contribution_bound(reference, blocks, candidates, engine, memory)
        words = KeyedBits(key=reference.key_file.read_bytes(), purpose=str(planned))
        bounded = bounded_counts(blocks, candidates, bound, words, engine, memory)
    mechanism = _mechanism(reference, candidates, bound, below)
    most = reference.configuration.tuples.max_combinations
    if candidates.length > 1:
        mechanism = raise_threshold(mechanism, Expectation.of(below[-1], candidates), most)

    # All that can fail without noise is done before the charge; what was set aside on disk is read once, for its digest.
    noise = level_noise(mechanism, candidates)
    prepare_level(candidates, mechanism)

    def make(bits: DrawBits, _: bytes) -> bytes:
        level = draw_level(bounded, candidates, mechanism, bits)
        kept, kept_noise = keep_most(level, noise, most) if candidates.length > 1 else (level, noise)
        # names of private values leave only if they reached their threshold
        released = released_level(kept, blocks.labels, sorted(mechanism.private_columns))
        return pack_level(DrawnLevel(level=released[0], noise=kept_noise, released=released[1]))

    used = {**gaussian_terms(mechanism.sigma), "contribution_bound": bound, "threshold": mechanism.threshold}
    if mechanism.private_threshold:
        used["private_threshold"] = mechanism.private_threshold
    inputs = level_digest(bounded, candidates, mechanism, blocks.labels)
    result = draw_once(reference, planned, lambda: PreparedDraw(inputs=inputs, used=used, make=make))[1]
    return replace(result, charged=(*charged, str(planned)))


@stage("collect")
def collect_draws(reference: RunReference) -> StageResult:
    """One set of aggregates from the committed draws; from here on no stage is given a private file.

    DP: post-processing.
    """
    configuration = reference.resolved
    levels = [_level(reference, k) for k in range(1, configuration.reporting_length + 1)]

    def compute() -> bytes:
        drawn = [unpack_level(payload) for payload, _ in levels]
        attributes, (count, sigma) = configuration.attributes, _record_count(reference)
        labels = tuple(drawn[0].released.get(j, attribute.labels) for j, attribute in enumerate(attributes))
        collected = Aggregates(
            domain=Domain(names=tuple(attribute.name for attribute in attributes), labels=labels),
            record_count=max(0, count),
            record_deviation=sigma,
            levels=tuple(one.level for one in drawn),
            noise=tuple(one.noise for one in drawn),
        )
        found = counted_undeclared(configuration, collected, _most_cut(reference, collected))
        collected = replace(collected, domain=replace(collected.domain, undeclared=found))
        check_aggregates(collected, "collect")
        return pack_aggregates(collected)

    inputs = [result for _, result in levels]
    if configuration.resize is None:
        inputs.insert(0, draw_once(reference, reference.plan.draw(DrawKind.COUNT))[1])
    return reference.derived.checkpoint("collect", inputs, compute)


def _most_cut(reference: RunReference, collected: Aggregates) -> int:
    """So many records at most have values that length 1 lacks, as bounding contributions took them."""
    configuration, bound = reference.configuration, collected.noise[0].contribution_bound
    if configuration.percentile is None or bound >= configuration.contribution_cap(1):
        return 0
    epsilon = reference.plan.draw(DrawKind.PERCENTILE, 1).epsilon
    return most_cut_records(configuration, epsilon, collected, 1)


def _level(reference: RunReference, length: int) -> tuple[bytes, StageResult]:
    """A length that was drawn, or given back because it had no candidates (`aggregate_level` lets no other pass)."""
    draw = reference.plan.draw(DrawKind.LEVEL, length)
    return draw_unless_returned(reference, draw, lambda: pack_level(_unreached(reference, length)))


def _unreached(reference: RunReference, length: int) -> DrawnLevel:
    """A length without candidates, with the noise it was planned with at the public cap of its contributions."""
    configuration = reference.configuration
    none = CandidateSet(length=length, sizes=tuple(len(attribute.labels) for attribute in configuration.attributes))
    mechanism = _mechanism(reference, none, configuration.contribution_cap(length), ())
    return DrawnLevel(level=Level.empty(length), noise=level_noise(mechanism, none), released={})


def _candidates_above(reference: RunReference, below: Sequence[DrawnLevel]) -> CandidateSet:
    """The candidates of the next length. DP: post-processing of the released ones."""
    attributes = reference.resolved.attributes
    labels = [below[0].released.get(j, attribute.labels) for j, attribute in enumerate(attributes)]
    excluded = combinations_of(excluded_codes(reference.resolved, labels))
    return CandidateSet.above(below[-1].level, [len(values) for values in labels], excluded)


def _mechanism(reference: RunReference, candidates: CandidateSet, bound: int, below: Sequence[Level]) -> LevelMechanism:
    """The mechanism of a length with this contribution bound, its threshold as asked for."""
    configuration = reference.configuration
    draw = reference.plan.draw(DrawKind.LEVEL, candidates.length)
    return plan_level(
        configuration,
        candidates=candidates,
        survivors_before=len(below[-1]) if below else 0,
        contribution_bound=bound,
        sigma=query_sigma(draw, configuration.stability, bound),
        delta_threshold=reference.plan.delta_threshold,
    )


def _contribution_bound(
    reference: RunReference, blocks: ReleasedBlocks, candidates: CandidateSet, engine: Engine, memory: MemoryBudget
) -> tuple[int, tuple[str, ...]]:
    """Delta_k: its public cap, or a percentile bought from the budget; and the draws that were charged."""
    configuration = reference.configuration
    cap = configuration.contribution_cap(candidates.length)
    percentile = configuration.percentile
    if percentile is None:
        return cap, ()
    draw = reference.plan.draw(DrawKind.PERCENTILE, candidates.length)

    def prepare() -> PreparedDraw:
        histogram, unit = contribution_histogram(blocks, candidates, cap, engine, memory), configuration.stability
        return PreparedDraw(
            inputs=counts_digest([histogram]),
            used={"percentile": str(percentile), "cap": cap, "sensitivity": score_sensitivity(percentile, unit)},
            make=lambda bits, _: pack_number(select_percentile(histogram, percentile, draw.epsilon, unit, bits)),
        )

    return unpack_number(draw_once(reference, draw, prepare)[0]), (str(draw),)


def _record_count(reference: RunReference) -> tuple[int, float]:
    """The number of records and the sigma of its noise: a resized table has its public number, without any."""
    resize = reference.configuration.resize
    if resize is not None:
        return resize.records, 0.0
    return unpack_number(draw_once(reference, reference.plan.draw(DrawKind.COUNT))[0]), float(_count_sigma(reference))


def _count_sigma(reference: RunReference) -> Fraction:
    return query_sigma(reference.plan.draw(DrawKind.COUNT), reference.configuration.stability)
