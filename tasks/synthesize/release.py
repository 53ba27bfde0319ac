"""From released counts to synthetic codes of every attribute of a configuration: sets and forbidden combinations included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Aggregates
from marginweave.schemas.columns import SetColumn
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.errors import StageError
from marginweave.schemas.measurements import Marginals
from marginweave.schemas.structure import forbidden_codes
from marginweave.schemas.synthesis import GumSynthesis, SynthesisSettings
from marginweave.tasks.aggregate.cliques import domain_sizes, structural_masks
from marginweave.tasks.aggregate.selection.compress import compress_mask
from marginweave.tasks.encode.codes import value_slots
from marginweave.tasks.normalize.marginals import compression_of
from marginweave.tasks.normalize.tuples import tuple_marginals
from marginweave.tasks.synthesize.gum.expand import expand_records
from marginweave.tasks.synthesize.gum.settings import GumSettings
from marginweave.tasks.synthesize.gum.synthesize import synthesize_gum
from marginweave.tasks.synthesize.sets import SetLayout, cap_values, expand_forbidden, expand_sets, join_sets
from marginweave.tasks.synthesize.synthesize import synthesize_records

Codes = tuple[NDArray[np.integer], ...]
_SETS = 1  # the cut of sets has a stream of its own


def synthesize_codes(
    counts: Aggregates | Marginals, configuration: Configuration, settings: SynthesisSettings | GumSynthesis
) -> Codes:
    """Synthetic codes of each attribute, shape (n,), or (n, width) for a set; the size of an attribute is missing.

    k-tuples are synthesized by `synthesize_records`, sets value by value (`expand_sets`) and joined again; consistent
    marginals by `synthesize_gum`, where each value of a set is an attribute and a record keeps at most `max_values` of them;
    and k-tuples as well where the settings say so, from the marginals that they stand for (`tuple_marginals`). No record
    holds a forbidden combination.
    DP: post-processing.

    Args:
        counts: Normalized counts.
        configuration: What is declared, bounds resolved.
        settings: What to make.

    Raises:
        InputError, StageError: as `synthesize_records` and `synthesize_gum`.
    """
    if isinstance(counts, Marginals):
        assert isinstance(settings, GumSynthesis)
        codes = _from_marginals(counts, configuration, settings)
    elif isinstance(settings, GumSynthesis):
        codes = _from_tuples(counts, configuration, settings)
    else:
        codes = _from_combinations(counts, configuration, settings)
    forbidden = forbidden_codes(configuration.forbidden, counts.domain.labels)
    if any(_holds(codes, combination).any() for combination in forbidden):
        raise StageError("synthesize: a record breaks the rule 'no forbidden combination'")
    return codes


def _from_combinations(aggregates: Aggregates, configuration: Configuration, settings: SynthesisSettings) -> Codes:
    layout = SetLayout(attributes=configuration.attributes, sizes=aggregates.domain.sizes)
    forbidden = forbidden_codes(configuration.forbidden, aggregates.domain.labels)
    records = synthesize_records(
        expand_sets(aggregates, layout), settings, layout.optional, expand_forbidden(forbidden, layout), layout.sets
    )
    rng = np.random.default_rng([settings.seed, _SETS])  # post-processing
    return join_sets(records, layout, rng)


def _from_marginals(marginals: Marginals, configuration: Configuration, settings: GumSynthesis) -> Codes:
    masks, compression = compression_of(marginals, configuration)
    count = round(marginals.consistent[0].total) if settings.records == "count" else settings.records
    small = [compress_mask(mask, compression) for mask in masks]
    records = expand_records(
        synthesize_gum(marginals.consistent, compression.sizes, count, _steering(settings), small),
        compression,
        settings.seed,
    )
    caps = {name: column.width for name, column in configuration.columns.items() if isinstance(column, SetColumn)}
    rng = np.random.default_rng([settings.seed, _SETS])  # post-processing
    cap_values(records, configuration.attributes, caps, rng)
    return _columns(records, settings)


def _from_tuples(aggregates: Aggregates, configuration: Configuration, settings: GumSynthesis) -> Codes:
    labels = aggregates.domain.labels
    sizes, masks = domain_sizes(configuration.attributes, labels), structural_masks(configuration, labels)
    count = aggregates.record_count if settings.records == "count" else settings.records
    marginals = tuple_marginals(aggregates, sizes, masks)
    return _columns(synthesize_gum(marginals, sizes, count, _steering(settings), masks), settings)


def _steering(settings: GumSynthesis) -> GumSettings:
    return GumSettings(
        start=settings.start,
        rounds=settings.rounds,
        schedule=settings.schedule,
        tolerance=settings.tolerance,
        duplicate=settings.duplicate,
        seed=settings.seed,
    )


def _columns(records: NDArray[np.int32], settings: GumSynthesis) -> Codes:
    """The records, at most as many as are kept, column by column."""
    return tuple(np.ascontiguousarray(column) for column in records[: settings.max_records].T)


def _holds(codes: Codes, combination: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Which records hold a combination of (attribute, code)."""
    held = [np.logical_or.reduce([slot == code for slot in value_slots(codes[j])]) for j, code in combination]
    together: NDArray[np.bool_] = np.logical_and.reduce(held)
    return together
