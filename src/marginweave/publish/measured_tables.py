"""Prepares measured marginals for files and statements: every cell with its noise, and values that were measured together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Flags, Integers
from marginweave.base.formats import COMBINED_DRAWS
from marginweave.configuration.columns.base import MISSING
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import PossibleCells, domain_sizes
from marginweave.estimate.intervals import count_interval
from marginweave.estimate.marginals import drawn_compression_of
from marginweave.measurements.selection import declared_cliques
from marginweave.observations.tables import Marginals, Observation
from marginweave.publish.linked_tables import (
    linked_statements,
    uncounted_statements,
    undeclared_statements,
)
from marginweave.publish.tables import with_combinations
from marginweave.released.statement import MarginalsStatement, MarginalStatement

_SEPARATOR = " | "  # between values that were counted together


def measurements_table(marginals: Marginals, configuration: Configuration) -> pa.Table:
    """Return every cell of every marginal, one a row: the columns below, then `column_i` and `value_i` for each attribute.

    `marginal` numbers them from 1. Counts are signed; `deviation` is the standard deviation of their noise, `noise` its
    kind, `low` and `high` the ends of `count_interval`. A negative count is treated as 0 for the interval. Where a rule
    allows no record both ends are 0, as the count is noise. Cells are in C order over `merged_values`. A missing value is
    null. Where a column counts both missing cells and cells that are not as declared, both are texts. Values that were
    measured together, and bins that are one at the level of a marginal, are one text, with ` | ` between them (privacy.json
    says which). There are as many positions as `MarginalSettings.longest`, or more if merging made more; those beyond a
    marginal's length are null. DP: post-processing.
    """
    single = _single_texts(marginals, configuration)
    groups = measured_together(marginals, configuration)
    merged = [code_texts(labels_of_codes) for labels_of_codes in groups]
    longest = max(configuration.longest, *(len(m.attributes) for m in marginals.drawn))
    possible = PossibleCells.of(configuration, marginals.domain.labels)
    merged_codes = drawn_compression_of(marginals, configuration).codes
    parts = []
    for i, marginal in enumerate(marginals.drawn):
        is_one_way = i < len(marginals.one_way)  # `drawn` begins with `one_way`
        texts = single if is_one_way else merged
        before_merging = marginal if is_one_way else marginal.unmerged(merged_codes)
        cells = np.unravel_index(np.arange(marginal.counts.size), marginal.counts.shape)
        is_possible = possible.contain(marginal.attributes, cells, before_merging.coarser)
        numbers = _cell_numbers(marginal, i + 1, ~is_possible)
        pairs = []
        for a, codes in zip(marginal.attributes, cells, strict=True):
            axis_texts = texts[a]
            if a in marginal.coarser:  # only larger marginals are coarse
                axis_texts = _coarse_texts(groups[a], marginal.coarser[a])
            labels = pa.array(axis_texts, pa.string())
            values = labels.take(pa.array(codes))
            columns = pa.repeat(marginals.domain.names[a], marginal.counts.size)
            pairs.append((columns, values))
        parts.append(with_combinations(numbers, pairs, longest))
    table = pa.concat_tables(parts)
    return table.combine_chunks()


def _cell_numbers(marginal: Observation, number: int, impossible: Flags) -> dict[str, pa.Array]:
    """Return the columns of numbers of one marginal; `impossible` are cells where a rule allows no record, shape (cells,)."""
    size = marginal.counts.size
    counts = marginal.counts.ravel()
    intervals = count_interval(counts.astype(np.int64), marginal.deviation, noise=marginal.noise)
    intervals = intervals.without(impossible)
    return {
        "marginal": pa.array(np.full(size, number), pa.int32()),
        "count": pa.array(counts, pa.int64()),
        "deviation": pa.array(np.full(size, marginal.deviation), pa.float64()),
        "noise": pa.repeat(marginal.noise, size),
        "low": pa.array(intervals.low, pa.int64()),
        "high": pa.array(intervals.high, pa.int64()),
    }


def marginal_facts(marginals: Marginals, configuration: Configuration) -> MarginalsStatement:
    """Return the facts of privacy.json: attributes, cells and noise of every marginal, and values measured together.

    `draw` is `rounds` where marginals were chosen in rounds: `deviation` is the noise after combining all
    rounds' shares. It is `COMBINED_DRAWS` where both draws measured single attributes. `not_measured` are marginals that the
    configuration names and that had too many cells once private values were known.
    """
    names = marginals.domain.names
    joined = _joined_numbers(marginals, configuration)
    single = "one-way"
    larger = "marginals" if configuration.rounds is None else "rounds"
    if marginals.is_combined:
        single = larger = COMBINED_DRAWS
    statements = []
    for i, marginal in enumerate(marginals.drawn):
        is_one_way = i < len(marginals.one_way)
        numbers = {}
        for a, level in marginal.coarser.items():
            numbers[names[a]] = joined[a, level.tobytes()]
        statement = MarginalStatement(
            draw=single if is_one_way else larger,
            attributes=tuple(names[a] for a in marginal.attributes),
            cells=marginal.counts.size,
            deviation=marginal.deviation,
            noise=marginal.noise,
            joined=numbers or None,
        )
        statements.append(statement)
    merged_values = {}
    for name, groups in zip(names, measured_together(marginals, configuration), strict=True):
        merged = tuple(tuple(texts) for texts in groups if len(texts) > 1)
        if merged:
            merged_values[name] = merged
    return MarginalsStatement(
        marginals=tuple(statements),
        measured_together=merged_values,
        not_measured=tuple(_not_measured(marginals, configuration)),
        linked=linked_statements(marginals.linked, configuration) or None,
        linked_undeclared=undeclared_statements(marginals.linked, configuration) or None,
        linked_uncounted=uncounted_statements(marginals, configuration) or None,
    )


def _joined_numbers(
    marginals: Marginals, configuration: Configuration
) -> dict[tuple[int, bytes], int]:
    """Return how many bins each level of coarser bins joins, by its attribute and the bytes of its codes."""
    sizes = [table.counts.size for table in marginals.one_way]
    levels = configuration.marginal_settings.levels(sizes, configuration.attributes)
    compression = drawn_compression_of(marginals, configuration)
    codes_of_levels = levels.codes(compression.codes)
    joined = {}
    for level, (a, codes) in zip(levels.of, codes_of_levels, strict=True):
        joined[a, codes.tobytes()] = level.bins_joined
    return joined


def _not_measured(marginals: Marginals, configuration: Configuration) -> Iterator[tuple[str, ...]]:
    """Yield the names of the attributes of each marginal that the configuration names and that was not measured."""
    settings = configuration.marginals
    assert settings is not None
    attributes = configuration.with_undeclared(()).attributes
    is_chosen = marginals.is_combined or settings.selects(len(attributes))
    if is_chosen or not settings.has_larger(len(attributes)):
        return
    measured = {marginal.attributes for marginal in marginals.drawn}
    sizes = domain_sizes(attributes, marginals.domain.labels)
    columns_of = settings.levels(sizes, attributes).columns
    cliques = map(columns_of, declared_cliques(settings, attributes, sizes))
    for clique in cliques:
        if clique not in measured:
            yield tuple(marginals.domain.names[a] for a in clique)


def measured_together(
    marginals: Marginals, configuration: Configuration
) -> list[list[list[str | None]]]:
    """Return for each attribute the labels behind every merged code, in its order; None is a missing value."""
    groups = []
    single = _single_texts(marginals, configuration)
    compression = drawn_compression_of(marginals, configuration)
    for labels, codes in zip(single, compression.codes, strict=True):
        # Drops the label of a missing value, the last, where the attribute has no code for it.
        texts = np.array(labels, object)[: len(codes)]
        labels_of_codes = []
        for merged in range(int(codes.max()) + 1):
            is_of_code = codes == merged
            labels_of_codes.append(texts[is_of_code].tolist())
        groups.append(labels_of_codes)
    return groups


def _single_texts(marginals: Marginals, configuration: Configuration) -> list[list[str | None]]:
    """Return the text of each code of an attribute as it was counted.

    One label of missing values is None; several keep their labels (`Attribute.gaps`).
    """
    counted = configuration.with_undeclared(configuration.undeclared)
    texts = []
    for attribute, labels in zip(counted.attributes, marginals.domain.labels, strict=True):
        gaps = attribute.gaps if len(attribute.gaps) > 1 else (None,)
        texts.append([*labels, *gaps])
    return texts


def _coarse_texts(groups: Sequence[Sequence[str | None]], level: Integers) -> list[str | None]:
    """Return the text of each code of a level, over the merged codes that have these labels."""
    number = int(level.max()) + 1
    labels_of_codes: list[list[str | None]] = [[] for _ in range(number)]
    for labels, coarse in zip(groups, level.tolist(), strict=True):
        labels_of_codes[coarse] += labels
    return code_texts(labels_of_codes)


def code_texts(labels_of_codes: Sequence[Sequence[str | None]]) -> list[str | None]:
    """Return one text for each code, of the labels that it has."""
    return [one_text(labels) for labels in labels_of_codes]


def one_text(labels: Sequence[str | None]) -> str | None:
    """Return the label, or the labels of values that were measured together in one text."""
    if len(labels) == 1:
        return labels[0]
    return _SEPARATOR.join(MISSING if label is None else label for label in labels)
