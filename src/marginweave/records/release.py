"""Synthetic codes of every attribute of a configuration, from released counts, by the method that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from marginweave.base.arrays import Codes, Flags, Floats, Records
from marginweave.base.errors import StageError
from marginweave.base.parallel import LocalEngine
from marginweave.base.progress import listener
from marginweave.configuration.attributes import combinations_of, forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import (
    AnySynthesis,
    DenseSynthesis,
    GumSynthesis,
    MixtureSynthesis,
    SynthesisSettings,
)
from marginweave.domain.masks import StructuralZeros
from marginweave.domain.zeros import broken_records, domain_sizes, released_attributes, structural_masks
from marginweave.estimate.consistency import make_consistent
from marginweave.estimate.known import known_marginals, total_of_rows, with_known
from marginweave.estimate.marginals import all_pairs, compression_of, estimated_marginals, measured_marginals
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.totals import exact_parts
from marginweave.estimate.tuples import tuple_marginals, tuple_observations
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression, compress_mask
from marginweave.observations.tables import Marginals, Observation
from marginweave.prepare.codes import code_type
from marginweave.records.gum.synthesize import Gum
from marginweave.records.known import ExactCounts
from marginweave.records.mixture import sample_mixture
from marginweave.records.sets import SetLayout, cap_values, expand_sets, join_sets
from marginweave.records.shards import RecordSampler, stream
from marginweave.records.synthesize import SeededSynthesis


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimationInput:
    """What is known of a table: marginals over attributes of `sizes` codes, its number of records, and structural zeros.

    `measured` gives them as they were drawn, each with its noise, and how far a model should be from them (`fit_mixture`);
    `consistent` gives them in agreement. Both are made where they are asked for: sampling from a fitted model takes neither.
    """

    measured: Callable[[], tuple[Sequence[Observation], float]]
    consistent: Callable[[], Sequence[Observation]]
    sizes: Sequence[int]
    total: float
    masks: Sequence[StructuralZeros]


def sampler(
    known: EstimationInput,
    settings: DenseSynthesis,
    model: Mixture | None = None,
    given: Mapping[int, Floats] = MappingProxyType({}),
) -> RecordSampler:
    """What makes records by the method of the settings; of a mixture those `given` alone (`Mixture.conditioned`).

    GUM takes consistent counts, a mixture those that were drawn. `model` is the result of `fit_known` on the same input, if
    there is one. DP: post-processing. Raises InputError as `Gum`, `fit_known` and `Mixture.conditioned`.
    """
    if isinstance(settings, GumSynthesis):
        sample = Gum(known.consistent(), known.sizes, settings, known.masks).sample
    else:
        sample = partial(sample_mixture, (model or fit_known(known, settings)).conditioned(given))
    records = round(known.total) if settings.records == "count" else settings.records
    return RecordSampler(sample=sample, number=records, seed=settings.seed)


def fit_known(known: EstimationInput, settings: MixtureSynthesis) -> Mixture:
    """The mixture fitted to what was drawn, however many records are sampled from it.

    DP: post-processing. Raises InputError as `fit_mixture`.
    """
    total = max(known.total, 1.0)
    measurements, noise = known.measured()
    return fit_mixture(measurements, known.sizes, total, known.masks, settings, noise=noise)


def expand_records(records: Records, compression: Compression, generator: np.random.Generator) -> Records:
    """Synthetic records in the old codes: a merged value becomes one of its values, in proportion to their noisy counts.

    Counts below 0 stand for 0; where none is positive, the values are equally likely. Shape (rows, attributes).
    DP: post-processing.
    """
    expanded = np.empty_like(records)
    for attribute, (new, counts) in enumerate(zip(compression.codes, compression.counts, strict=True)):
        column = expanded[:, attribute]
        column[:] = np.unique(new, return_index=True)[1][records[:, attribute]]
        for merged in np.flatnonzero(np.bincount(new) > 1).tolist():
            values = np.flatnonzero(new == merged)
            rows = np.flatnonzero(records[:, attribute] == merged)
            weights = np.maximum(counts[values], 0.0)
            weights = weights if weights.any() else np.ones(len(values))
            column[rows] = generator.choice(values, len(rows), p=weights / weights.sum())
    return expanded


# How many shards there are, and what makes the codes of each attribute of one.
Making = tuple[int, Callable[[int], Sequence[Codes]]]
# Of the noise of k-tuples so much is left: none is more frequent than its parts. Records of fits that go on until they are so
# near were 3 to 8 % nearer to affairs (epsilon 0.3, 1) and ma2019_cat (1) than at 1, at 0.7 no nearer on ma2019_cat; on
# drug_deaths_cat it makes no difference.
_CLIPPED = 0.8
_SETS, _KNOWN = 1, 2  # cutting sets has a separate stream, and so have known tables


def synthesize_blocks(
    counts: Aggregates | Marginals,
    configuration: Configuration,
    settings: AnySynthesis,
    model: Mixture | None = None,
    where: Mapping[int, Flags] = MappingProxyType({}),
) -> Iterator[tuple[Codes, ...]]:
    """Synthetic codes of each attribute, shape (n,), or (n, width) for a set; the size of an attribute is missing.

    Block by block, each of a shard of the records (`ShardPlan`), in the smallest unsigned integers; at least one block. The
    blocks are made on all cores, and do not depend on how many there are. `SeededSynthesis` makes them of combinations, sets
    value by value (`expand_sets`) and joined again, from k-tuples as they are and from marginals as `all_pairs` has them. The
    others (`sampler`) make them of marginals, also of those that k-tuples stand for. An empty cell does not say why it is empty
    (`Sections.as_recorded`). Where each value of a set is an attribute, a record keeps at most `max_values` of them. No record
    holds a forbidden combination, and exact known tables hold in all records together (`ExactCounts`). DP: post-processing.

    Args:
        counts: Normalized counts.
        configuration: What is declared, bounds resolved.
        settings: What to make.
        model: What `fit_known` makes of the same; fitted here if it is not given.
        where: By attribute, the codes that each record must have one of; of a mixture alone. Exact known tables, which are
            of all records, do not hold then.

    Raises:
        InputError, StageError: as `SeededSynthesis` and `sampler`.
    """
    recorded = configuration.as_recorded
    exact = [known for known in configuration.totals if known.exact]
    if exact and settings.records == "count":
        settings = settings.model_copy(update={"records": round(exact[0].total)})
    if isinstance(settings, SynthesisSettings):
        combinations = all_pairs(counts, configuration) if isinstance(counts, Marginals) else counts
        shards, make = _from_combinations(combinations, recorded, settings)
    else:
        shards, make = _from_marginals(counts, configuration, settings, model, where)
    masks = [mask for mask in structural_masks(recorded, counts.domain.labels) if len(mask.attributes) > 1]
    totals: list[ExactCounts] = []
    if not where:
        totals, make = _exact_counts(recorded, counts.domain.labels, settings, make)
    types = [code_type(size) for size in counts.domain.sizes]

    say = listener()

    def allowed(codes: Sequence[Codes]) -> Flags:
        return ~broken_records(codes, masks)

    def block(shard: int) -> tuple[Codes, ...]:
        say(f"part {shard + 1} of {shards}")
        codes = tuple(np.ascontiguousarray(code, type_) for code, type_ in zip(make(shard), types, strict=True))
        for number, exact in enumerate(totals):
            wanted, generator = exact.in_shard(shard, shards), stream([settings.seed, _KNOWN, number], shard)
            exact.hold(codes, wanted, allowed, generator)  # post-processing
        if not allowed(codes).all():
            raise StageError("synthesize: a record breaks the rule 'no forbidden combination'")
        return codes

    return LocalEngine().map(block, range(shards))


def _exact_counts(
    configuration: Configuration,
    labels: Sequence[Sequence[str]],
    settings: AnySynthesis,
    make: Callable[[int], Sequence[Codes]],
) -> tuple[list[ExactCounts], Callable[[int], Sequence[Codes]]]:
    """How many records have each known combination, and what makes shards; the first one, which they are near to, once."""
    parts = exact_parts(configuration, labels)
    if not parts:
        return [], make
    assert isinstance(settings.records, int)
    records = min(settings.records, settings.max_records or settings.records)
    first = make(0)
    counts = [ExactCounts.of(part, first, records) for part in parts]
    return counts, lambda shard: first if shard == 0 else make(shard)


def _from_combinations(aggregates: Aggregates, configuration: Configuration, settings: SynthesisSettings) -> Making:
    attributes = released_attributes(configuration, aggregates.domain.labels)
    layout = SetLayout(attributes, aggregates.domain.sizes)
    rules = combinations_of(forbidden_codes(configuration.forbidden, aggregates.domain.labels))
    forbidden = [[layout.place(*part) for part in rule] for rule in rules]
    maker = SeededSynthesis(expand_sets(aggregates, layout), settings, layout.optional, forbidden, layout.sets)

    def make(shard: int) -> Sequence[Codes]:
        records = maker.records(shard)
        cap_values(records, configuration, stream([settings.seed, _SETS], shard))  # post-processing
        return join_sets(records, layout, stream([settings.seed, _SETS], shard))  # post-processing

    return maker.plan.shards, make


def _from_marginals(
    counts: Aggregates | Marginals,
    configuration: Configuration,
    settings: DenseSynthesis,
    model: Mixture | None,
    where: Mapping[int, Flags],
) -> Making:
    known, compression = estimation_input(counts, configuration)
    given, compression = _conditions(where, compression)
    maker = sampler(known, settings, model, given)

    def make(shard: int) -> Sequence[Codes]:
        records = maker.records(shard)
        if compression is not None:
            records = expand_records(records, compression, stream(settings.seed, shard))  # post-processing
        cap_values(records, configuration, stream([settings.seed, _SETS], shard))  # post-processing
        most = None if settings.max_records is None else maker.plan.records(settings.max_records, shard)
        return [np.minimum(codes, size) for codes, size in zip(records[:most].T, counts.domain.sizes, strict=True)]

    return maker.plan.shards, make


def _conditions(
    where: Mapping[int, Flags], compression: Compression | None
) -> tuple[dict[int, Floats], Compression | None]:
    """What share of the records with each code of a model meets conditions on released codes, and what splits merged codes.

    A merged code becomes one of its values as `expand_records` has it: a condition leaves it so much of its records as its
    values that meet the condition have, and these alone.
    """
    if compression is None:
        return {a: flags.astype(np.float64) for a, flags in where.items()}, None
    shares, counts = dict[int, Floats](), list(compression.counts)
    for a, flags in where.items():
        new, weights = compression.codes[a], np.maximum(counts[a], 0.0)
        weights = np.where(np.bincount(new, weights)[new] > 0, weights, 1.0)
        counts[a] = weights * flags
        shares[a] = np.bincount(new, counts[a]) / np.bincount(new, weights)
    return shares, replace(compression, counts=tuple(counts))


def estimation_input(
    counts: Aggregates | Marginals, configuration: Configuration
) -> tuple[EstimationInput, Compression | None]:
    """What a model is estimated from, and how values were merged for it (of marginals only). DP: post-processing."""
    if isinstance(counts, Marginals):
        masks, compression = compression_of(counts, configuration)
        total = counts.consistent[0].total

        def drawn_marginals() -> tuple[Sequence[Observation], float]:
            kept = estimated_marginals(counts, configuration)
            drawn = [*measured_marginals(kept, compression), *kept.coarse]
            return with_known(drawn, configuration, total, compression)

        return EstimationInput(
            measured=drawn_marginals,
            consistent=lambda: counts.consistent,
            sizes=compression.sizes,
            total=total,
            masks=[compress_mask(mask, compression) for mask in masks],
        ), compression
    labels = counts.domain.labels
    sizes, zeros = domain_sizes(configuration.attributes, labels), structural_masks(configuration, labels)
    total = total_of_rows(configuration) or float(counts.record_count)

    def drawn_tuples() -> tuple[Sequence[Observation], float]:
        tables, noisy = with_known(tuple_observations(counts, sizes), configuration, total)
        return tables, _CLIPPED * noisy

    def consistent() -> Sequence[Observation]:
        found = tuple_marginals(counts, sizes, zeros)
        known = known_marginals(configuration, found, total)
        return make_consistent([*found, *known], zeros, total=total) if known else found

    return EstimationInput(measured=drawn_tuples, consistent=consistent, sizes=sizes, total=total, masks=zeros), None
