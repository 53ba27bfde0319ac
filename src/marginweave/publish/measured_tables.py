"""The measured marginals as files and statements have them: every cell with its noise, and what was measured together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.configuration.columns.base import MISSING
from marginweave.configuration.release import Configuration
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import PossibleCells, domain_sizes
from marginweave.estimate.intervals import count_interval
from marginweave.estimate.marginals import drawn_compression_of
from marginweave.measurements.selection import declared_cliques
from marginweave.observations.tables import Marginals
from marginweave.publish.tables import with_combinations
from marginweave.released.statement import MarginalsStatement, MarginalStatement

_SEPARATOR = " | "  # between values that were counted together


def measurements_table(marginals: Marginals, configuration: Configuration) -> pa.Table:
    """Every cell of every marginal, one a row, with the columns below, and then `column_i` and `value_i` for each attribute.

    `marginal` numbers them from 1. Counts are signed; `deviation` is the standard deviation of their noise, `noise` its kind,
    `low` and `high` the ends of `count_interval`, those of 0 for a negative count; where a rule allows no record both are 0, as
    the count is noise. Cells stand in C order over `merged_values`. A missing value is null, but a text in a column that was
    counted with cells that are not as declared beside it; values that were measured together, and bins that are one at the
    level of a marginal, stand as one text, with ` | ` between them (privacy.json says which). There are as many positions as
    `MarginalSettings.longest`, or more if merging made more; those beyond its own are null. DP: post-processing.
    """
    names, drawn = marginals.domain.names, marginals.drawn
    single = _single_texts(marginals, configuration)
    groups = measured_together(marginals, configuration)
    merged = [list(map(one_text, texts)) for texts in groups]
    longest = max(configuration.longest, *(len(m.attributes) for m in drawn))
    possible = PossibleCells.of(configuration, marginals.domain.labels)
    merged_codes = drawn_compression_of(marginals, configuration).codes
    parts = []
    for i, m in enumerate(drawn):
        labels = single if i < len(marginals.one_way) else merged
        cells = np.unravel_index(np.arange(m.counts.size), m.counts.shape)
        blocks = (m if i < len(marginals.one_way) else m.unmerged(merged_codes)).coarser
        inside = count_interval(m.counts.ravel().astype(np.int64), m.deviation, noise=m.noise)
        inside = inside.without(~possible.contain(m.attributes, cells, blocks))
        numbers = {
            "marginal": pa.array(np.full(m.counts.size, i + 1), pa.int32()),
            "count": pa.array(m.counts.ravel(), pa.int64()),
            "deviation": pa.array(np.full(m.counts.size, m.deviation), pa.float64()),
            "noise": pa.repeat(m.noise, m.counts.size),
            "low": pa.array(inside.low, pa.int64()),
            "high": pa.array(inside.high, pa.int64()),
        }
        own = [_coarse_texts(groups[a], m.coarser[a]) if a in m.coarser else labels[a] for a in m.attributes]
        values = [pa.array(texts, pa.string()).take(pa.array(c)) for texts, c in zip(own, cells, strict=True)]
        columns = [pa.repeat(names[a], m.counts.size) for a in m.attributes]
        parts.append(with_combinations(numbers, list(zip(columns, values, strict=True)), longest))
    return pa.concat_tables(parts).combine_chunks()


def marginal_facts(marginals: Marginals, configuration: Configuration) -> MarginalsStatement:
    """For privacy.json: attributes, cells and noise of every marginal, and the values that were measured together.

    `draw` is `rounds` where marginals were chosen in rounds: `deviation` is what all of their shares leave. `not_measured` are
    marginals that the configuration names and that had too many cells once private values were known.
    """
    names, attributes = marginals.domain.names, configuration.attributes
    levels = configuration.marginal_settings.levels([m.counts.size for m in marginals.one_way], attributes)
    coarse = zip(levels.of, levels.codes(drawn_compression_of(marginals, configuration).codes), strict=True)
    joined = {(a, codes.tobytes()): number for (_, _, number), (a, codes) in coarse}
    larger = "marginals" if configuration.rounds is None else "rounds"
    groups = zip(names, measured_together(marginals, configuration), strict=True)
    together = {name: tuple(tuple(texts) for texts in found if len(texts) > 1) for name, found in groups}
    return MarginalsStatement(
        marginals=tuple(
            MarginalStatement(
                draw="one-way" if i < len(marginals.one_way) else larger,
                attributes=tuple(names[a] for a in m.attributes),
                cells=m.counts.size,
                deviation=m.deviation,
                noise=m.noise,
                joined={names[a]: joined[a, level.tobytes()] for a, level in m.coarser.items()} or None,
            )
            for i, m in enumerate(marginals.drawn)
        ),
        measured_together={name: merged for name, merged in together.items() if merged},
        not_measured=tuple(tuple(names[a] for a in clique) for clique in _not_measured(marginals, configuration)),
    )


def _not_measured(marginals: Marginals, configuration: Configuration) -> list[Clique]:
    settings, attributes, domain = (
        configuration.marginals,
        configuration.with_undeclared(()).attributes,
        marginals.domain,
    )
    assert settings is not None
    if settings.selects(len(attributes)) or not settings.has_larger(len(attributes)):
        return []
    measured, sizes = {m.attributes for m in marginals.drawn}, domain_sizes(attributes, domain.labels)
    declared = map(settings.levels(sizes, attributes).columns, declared_cliques(settings, attributes, sizes))
    return [clique for clique in declared if clique not in measured]


def measured_together(marginals: Marginals, configuration: Configuration) -> list[list[list[str | None]]]:
    """For each attribute the labels behind every merged code, in its order; None is a missing value."""
    found = []
    single = _single_texts(marginals, configuration)
    for labels, codes in zip(single, drawn_compression_of(marginals, configuration).codes, strict=True):
        texts = np.array(labels, object)[: len(codes)]
        found.append([texts[codes == merged].tolist() for merged in range(int(codes.max()) + 1)])
    return found


def _single_texts(marginals: Marginals, configuration: Configuration) -> list[list[str | None]]:
    """The text of each code of an attribute as it was counted: None, or of two gaps what each of them is."""
    counted = configuration.with_undeclared(configuration.undeclared)
    gaps = (a.gaps if len(a.gaps) > 1 else (None,) for a in counted.attributes)
    return [[*labels, *own] for labels, own in zip(marginals.domain.labels, gaps, strict=True)]


def _coarse_texts(groups: Sequence[Sequence[str | None]], level: Integers) -> list[str | None]:
    """The text of each code of a level, over the merged codes that have these labels."""
    inside: list[list[str | None]] = [[] for _ in range(int(level.max()) + 1)]
    for labels, coarse in zip(groups, level.tolist(), strict=True):
        inside[coarse] += labels
    return list(map(one_text, inside))


def one_text(labels: Sequence[str | None]) -> str | None:
    """The label, or the labels of values that were measured together in one text."""
    return labels[0] if len(labels) == 1 else _SEPARATOR.join(MISSING if x is None else x for x in labels)
