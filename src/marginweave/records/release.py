"""Makes synthetic codes of every attribute from released counts, by the method that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

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
from marginweave.domain.zeros import (
    broken_records,
    domain_sizes,
    released_attributes,
    structural_masks,
)
from marginweave.estimate.consistency import make_consistent
from marginweave.estimate.known import known_marginals, total_of_rows, with_known
from marginweave.estimate.marginals import (
    all_pairs,
    compression_of,
    estimated_marginals,
    measured_marginals,
    record_total,
)
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
from marginweave.records.sets import SetLayout, cap_values, expand_sets, join_sets, spread_values
from marginweave.records.shards import RecordSampler, stream
from marginweave.records.synthesize import SeededSynthesis


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimationInput:
    """Facts of a table for a model: marginals over attributes of `sizes` codes, number of records, structural zeros.

    `measured` gives the marginals as they were drawn, each with its noise, and how far a model should be from them
    (`fit_mixture`); `consistent` gives them in agreement. Both are computed only when called: sampling from a fitted model
    needs neither.
    """

    measured: Callable[[], tuple[Sequence[Observation], float]]
    consistent: Callable[[], Sequence[Observation]]
    sizes: Sequence[int]
    total: float
    masks: Sequence[StructuralZeros]


def sampler(
    inputs: EstimationInput,
    settings: DenseSynthesis,
    model: Mixture | None = None,
    conditions: Mapping[int, Floats] = MappingProxyType({}),
) -> RecordSampler:
    """Return a sampler of records by the method of the settings, of a mixture under `conditions` (`Mixture.conditioned`).

    GUM takes consistent counts, a mixture those that were drawn. `model` is the result of `fit_inputs` on the same input,
    if there is one. DP: post-processing. Raises InputError as `Gum`, `fit_inputs` and `Mixture.conditioned`.
    """
    if isinstance(settings, GumSynthesis):
        sample = Gum(inputs.consistent(), inputs.sizes, settings, inputs.masks).sample
    else:
        mixture = model or fit_inputs(inputs, settings)
        sample = partial(sample_mixture, mixture.conditioned(conditions))
    return RecordSampler(sample=sample, number=settings.number(inputs.total), seed=settings.seed)


def fit_inputs(inputs: EstimationInput, settings: MixtureSynthesis) -> Mixture:
    """Return the mixture fitted to the drawn counts; it does not depend on the number of records sampled from it.

    DP: post-processing. Raises InputError as `fit_mixture`.
    """
    total = max(inputs.total, 1.0)
    measurements, noise = inputs.measured()
    return fit_mixture(measurements, inputs.sizes, total, inputs.masks, settings, noise=noise)


def expand_records(
    records: Records, compression: Compression, generator: np.random.Generator
) -> Records:
    """Return records in the codes before merging: a merged value becomes one of its values, in proportion to noisy counts.

    Counts below 0 count as 0; where none is positive, the values are equally likely. Shape (rows, attributes).
    DP: post-processing.
    """
    expanded = np.empty_like(records)
    attributes = zip(compression.codes, compression.counts, strict=True)
    for attribute, (merged_codes, counts) in enumerate(attributes):
        column = expanded[:, attribute]
        _, first_values = np.unique(merged_codes, return_index=True)
        column[:] = first_values[records[:, attribute]]
        for merged in np.flatnonzero(np.bincount(merged_codes) > 1).tolist():
            values = np.flatnonzero(merged_codes == merged)
            rows = np.flatnonzero(records[:, attribute] == merged)
            weights = np.maximum(counts[values], 0.0)
            weights = weights if weights.any() else np.ones(len(values))
            column[rows] = generator.choice(values, len(rows), p=weights / weights.sum())
    return expanded


class _Shards(NamedTuple):
    """The number of shards, and the function that makes the codes of each attribute of one."""

    number: int
    make: Callable[[int], Sequence[Codes]]


# The part of the noise of k-tuples that is left: no combination is more frequent than its parts. Fits that continue until they
# are this close gave records 3 to 8 % closer to affairs (epsilon 0.3, 1) and ma2019_cat (1) than at 1. At 0.7 they were no
# closer on ma2019_cat. On drug_deaths_cat it makes no difference.
_CLIPPED = 0.8
_SETS = 1  # key of the random stream that cuts sets
_KNOWN = 2  # key of the random streams of known tables


def synthesize_blocks(
    counts: Aggregates | Marginals,
    configuration: Configuration,
    settings: AnySynthesis,
    model: Mixture | None = None,
    where: Mapping[int, Flags] = MappingProxyType({}),
) -> Iterator[tuple[Codes, ...]]:
    """Yield synthetic codes of each attribute, shape (n,), or (n, width) for a set; the size of an attribute is missing.

    Each block is a shard of the records (`ShardPlan`), in the smallest unsigned integers; there is at least one. The blocks are
    made on all cores, and do not depend on the number of cores. `SeededSynthesis` makes them of combinations: from k-tuples as
    they are, and from marginals as `all_pairs` has them. It makes sets value by value (`expand_sets`) and joins them again. The
    others (`sampler`) make them of marginals; k-tuples are turned into marginals for them. An empty cell does not say why it is
    empty (`Sections.as_recorded`). Where each value of a set is an attribute, a record has at most `max_values` of them. No
    record holds a forbidden combination, and exact known tables hold in all records together (`ExactCounts`).
    DP: post-processing.

    Args:
        counts: Normalized counts.
        configuration: What is declared, bounds resolved.
        settings: What to make.
        model: The result of `fit_inputs` on the same input; fitted here if it is not given.
        where: By attribute, the codes of which each record must have one; for a mixture only. Exact known tables, which are
            of all records, do not hold then.

    Raises:
        InputError, StageError: as `SeededSynthesis` and `sampler`.
    """
    recorded = configuration.as_recorded
    labels = counts.domain.labels
    exact_totals = [known_total for known_total in configuration.totals if known_total.exact]
    if exact_totals:
        settings = _of_exact_total(settings, exact_totals[0].total)
    if isinstance(settings, SynthesisSettings):
        combinations = all_pairs(counts, configuration) if isinstance(counts, Marginals) else counts
        shards = _from_combinations(combinations, recorded, settings)
    else:
        shards = _from_marginals(counts, configuration, settings, model, where)
    exact_counts: list[ExactCounts] = []
    if not where:
        exact_counts, shards = _exact_counts(recorded, labels, settings, shards)
    masks = [mask for mask in structural_masks(recorded, labels) if len(mask.attributes) > 1]
    types = [code_type(size) for size in counts.domain.sizes]
    report = listener()

    def is_allowed(codes: Sequence[Codes]) -> Flags:
        return ~broken_records(codes, masks)

    def make_block(shard: int) -> tuple[Codes, ...]:
        report(f"part {shard + 1} of {shards.number}")
        columns = zip(shards.make(shard), types, strict=True)
        codes = tuple(np.ascontiguousarray(column, type_) for column, type_ in columns)
        for i, exact in enumerate(exact_counts):
            generator = stream([settings.seed, _KNOWN, i], shard)  # post-processing
            exact.hold(codes, exact.in_shard(shard, shards.number), is_allowed, generator)
        if not is_allowed(codes).all():
            raise StageError("synthesize: a record breaks the rule 'no forbidden combination'")
        return codes

    return LocalEngine().map(make_block, range(shards.number))


def _of_exact_total(settings: AnySynthesis, total: float) -> AnySynthesis:
    """Return the settings with the number of records that they make where exact known tables add up to `total`."""
    if isinstance(settings, SynthesisSettings):
        number = round(total) if settings.records == "count" else settings.records
    else:
        number = settings.number(total)
    return settings.model_copy(update={"records": number})


def _exact_counts(
    configuration: Configuration,
    labels: Sequence[Sequence[str]],
    settings: AnySynthesis,
    shards: _Shards,
) -> tuple[list[ExactCounts], _Shards]:
    """Return the number of records of each known combination, close to those of the first shard, and the shards.

    The first shard is made here, and not a second time.
    """
    parts = exact_parts(configuration, labels)
    if not parts:
        return [], shards
    assert isinstance(settings.records, int)
    records = min(settings.records, settings.max_records or settings.records)
    first = shards.make(0)
    exact_counts = [ExactCounts.of(part, first, records) for part in parts]

    def make(shard: int) -> Sequence[Codes]:
        return first if shard == 0 else shards.make(shard)

    return exact_counts, _Shards(shards.number, make)


def _from_combinations(
    aggregates: Aggregates, configuration: Configuration, settings: SynthesisSettings
) -> _Shards:
    """Return the shards of records that grow from released combinations."""
    attributes = released_attributes(configuration, aggregates.domain.labels)
    layout = SetLayout(attributes, aggregates.domain.sizes)
    forbidden = []
    for rule in combinations_of(forbidden_codes(configuration.forbidden, aggregates.domain.labels)):
        pairs = [layout.place(attribute, value) for attribute, value in rule]
        forbidden.append(pairs)
    maker = SeededSynthesis(
        expand_sets(aggregates, layout), settings, layout.optional, forbidden, layout.sets
    )

    def make(shard: int) -> Sequence[Codes]:
        records = maker.records(shard)
        cap_values(records, configuration, stream([settings.seed, _SETS], shard))  # post-processing
        return join_sets(records, layout, stream([settings.seed, _SETS], shard))  # post-processing

    return _Shards(maker.plan.shards, make)


def _from_marginals(
    counts: Aggregates | Marginals,
    configuration: Configuration,
    settings: DenseSynthesis,
    model: Mixture | None,
    where: Mapping[int, Flags],
) -> _Shards:
    """Return the shards of records that are made from marginals, by GUM or from a mixture."""
    inputs, compression = estimation_input(counts, configuration)
    conditions, compression = _conditions(where, compression)
    maker = sampler(inputs, settings, model, conditions)
    masks = structural_masks(configuration, counts.domain.labels)

    def make(shard: int) -> Sequence[Codes]:
        records = maker.records(shard)
        if compression is not None:
            # post-processing
            records = expand_records(records, compression, stream(settings.seed, shard))
        generator = stream([settings.seed, _SETS], shard)
        spread_values(records, configuration, masks, generator)  # post-processing
        cap_values(records, configuration, generator)  # post-processing
        most = (
            None
            if settings.max_records is None
            else maker.plan.records(settings.max_records, shard)
        )
        columns = zip(records[:most].T, counts.domain.sizes, strict=True)
        return [np.minimum(codes, size) for codes, size in columns]

    return _Shards(maker.plan.shards, make)


def _conditions(
    where: Mapping[int, Flags],
    compression: Compression | None,
) -> tuple[dict[int, Floats], Compression | None]:
    """Return conditions on released codes as conditions on the codes of a model, and what splits merged codes under them.

    The first is the share of the records with each code of the model that meets the condition. A merged code becomes one of its
    values as `expand_records` has it: a condition leaves it the part of its records that its values that meet the condition
    have, and only these values.
    """
    if compression is None:
        return {a: flags.astype(np.float64) for a, flags in where.items()}, None
    shares = dict[int, Floats]()
    counts = list(compression.counts)
    for a, flags in where.items():
        merged_codes = compression.codes[a]
        weights = np.maximum(counts[a], 0.0)
        is_positive = np.bincount(merged_codes, weights)[merged_codes] > 0
        weights = np.where(is_positive, weights, 1.0)
        counts[a] = weights * flags
        shares[a] = np.bincount(merged_codes, counts[a]) / np.bincount(merged_codes, weights)
    return shares, replace(compression, counts=tuple(counts))


def estimation_input(
    counts: Aggregates | Marginals, configuration: Configuration
) -> tuple[EstimationInput, Compression | None]:
    """Return the input of a model, and how values were merged for it (of marginals only). DP: post-processing."""
    if isinstance(counts, Marginals):
        return _input_of_marginals(counts, configuration)
    return _input_of_tuples(counts, configuration), None


def _input_of_marginals(
    counts: Marginals, configuration: Configuration
) -> tuple[EstimationInput, Compression]:
    """Return the input of a model of marginals, over merged codes, and how values were merged.

    What is read back as it was drawn has no consistent marginals: a fitted model needs their total alone.
    """
    masks, compression = compression_of(counts, configuration)
    has_consistent = bool(counts.consistent)
    total = counts.consistent[0].total if has_consistent else record_total(counts, configuration)

    def measured() -> tuple[Sequence[Observation], float]:
        marginals = estimated_marginals(counts, configuration)
        drawn = [*measured_marginals(marginals, compression), *marginals.coarse]
        return with_known(drawn, configuration, total, compression)

    inputs = EstimationInput(
        measured=measured,
        consistent=lambda: counts.consistent,
        sizes=compression.sizes,
        total=total,
        masks=[compress_mask(mask, compression) for mask in masks],
    )
    return inputs, compression


def _input_of_tuples(counts: Aggregates, configuration: Configuration) -> EstimationInput:
    """Return the input of a model of k-tuples."""
    labels = counts.domain.labels
    sizes = domain_sizes(configuration.attributes, labels)
    zeros = structural_masks(configuration, labels)
    total = total_of_rows(configuration) or float(counts.record_count)

    def measured() -> tuple[Sequence[Observation], float]:
        tables, noise = with_known(tuple_observations(counts, sizes), configuration, total)
        return tables, _CLIPPED * noise

    def consistent() -> Sequence[Observation]:
        marginals = tuple_marginals(counts, sizes, zeros)
        known_tables = known_marginals(configuration, marginals, total)
        if not known_tables:
            return marginals
        return make_consistent([*marginals, *known_tables], zeros, total=total)

    return EstimationInput(
        measured=measured, consistent=consistent, sizes=sizes, total=total, masks=zeros
    )
