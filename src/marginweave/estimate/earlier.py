"""Measurements of earlier releases of the same rows, pooled with those of this release: each count with its noise.

DP: post-processing of released counts, after every draw; nothing that is drawn depends on it.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError, StageError
from marginweave.base.formats import COMBINED_DRAWS
from marginweave.configuration.earlier import EARLIER_FILES, earlier_name
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique
from marginweave.estimate.marginals import Spread, drawn_compression_of
from marginweave.mechanisms.catalogue import count_noise
from marginweave.observations.compression import Compression
from marginweave.observations.tables import Marginals, Observation
from marginweave.released.earlier import usable_marginals
from marginweave.released.statement import MarginalStatement, PrivacyStatement

Read = Callable[[str], bytes | None]
CELL_COLUMNS = ("marginal", "count")
"""Columns of measurements.parquet that `read_measurements` reads."""
_CONTRADICTED = 1e-9
# Share of the variance below which nothing was pooled with what was drawn.
_SAME = 0.01


def earlier_files(configuration: Configuration, read: Read) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the copied files of earlier releases.

    Raises:
        StageError: a file is missing, or is not the declared one.
    """
    for number, earlier in enumerate(configuration.earlier, 1):
        for file in EARLIER_FILES:
            name = earlier_name(number, file)
            content = read(name)
            expected = earlier.release.files[file]
            if content is None or hashlib.sha256(content).hexdigest() != expected:
                raise StageError(
                    f"{name} is missing, or is not the file of run {earlier.release.run} that is declared"
                )
            yield name, content


def with_earlier(
    marginals: Marginals,
    declared: Configuration,
    resolved: Configuration,
    read: Read,
) -> Marginals:
    """Return the marginals pooled with those of the earlier releases of a configuration; unchanged if it has none.

    Args:
        marginals: as they were drawn.
        declared: the configuration.
        resolved: the same with bounds that were bought.
        read: returns the content of a copied file, by its name.

    Raises:
        StageError: a file is missing or was changed.
    """
    tables = earlier_tables(declared, read)
    if not tables:
        return marginals
    single = [m for m in tables if len(m.attributes) == 1]
    larger = [m for m in tables if len(m.attributes) != 1]
    one_way = pool(marginals.one_way, single)
    # shares by pooled counts
    compression = drawn_compression_of(replace(marginals, pooled=one_way), resolved)
    pooled_larger = pool(marginals.larger, larger, compression)
    return replace(marginals, pooled=(*one_way, *pooled_larger))


def earlier_tables(configuration: Configuration, read: Read) -> list[Observation]:
    """Return the marginals of the earlier releases of a configuration, as they were drawn.

    They are over attributes of this configuration, with the values that were merged then as levels. `read` returns the content
    of a copied file, by its name.

    Raises:
        StageError: a file is missing or was changed.
    """
    files = dict(earlier_files(configuration, read))
    tables: list[Observation] = []
    for number, _ in enumerate(configuration.earlier, 1):
        statement_json, measurements = (files[earlier_name(number, name)] for name in EARLIER_FILES)
        statement = PrivacyStatement.from_json(statement_json)
        cells = pq.read_table(io.BytesIO(measurements))
        tables += _tables(configuration, statement, cells)
    return tables


def contradicted_attributes(marginals: Marginals) -> tuple[int, ...]:
    """Return the attributes whose counts in earlier releases are other ones than those that were drawn, by more than noise.

    Let y be the n drawn counts of an attribute, of variance s^2 + 1/12 each, and p the pooled ones, of variance t^2. Where the
    rows are the same, p is the mean by precision, so that y - p has the variance v^2 = s^2 + 1/12 - t^2. Where all noise is
    normal, |y - p|^2 / v^2 is chi^2 of n degrees of freedom. Where some is Laplace noise, its tails are heavier: each cell is
    beyond h v with a probability of at most exp(-sqrt(2) h) for such large h. So an attribute of m is named where m times
    the chance of its distance, or n m times that of its farthest cell, is below `_CONTRADICTED`: in one of a billion releases
    at most. DP: post-processing.
    """
    from scipy.special import chdtrc  # a quarter of a second, which answers do without

    contradicted = []
    for place, drawn in enumerate(marginals.one_way):
        if place >= len(marginals.pooled):
            break
        pooled = marginals.pooled[place]
        variance = (
            drawn.deviation**2 + count_noise(drawn.noise).rounding_variance - pooled.deviation**2
        )
        if pooled.counts.shape != drawn.counts.shape or variance <= _SAME * drawn.deviation**2:
            continue
        deviations = (drawn.counts - pooled.counts) / math.sqrt(variance)
        if count_noise(pooled.noise).is_normal:
            chance = float(chdtrc(drawn.counts.size, (deviations**2).sum()))
        else:
            farthest = float(np.abs(deviations).max())
            chance = drawn.counts.size * math.exp(-math.sqrt(2) * farthest)
        if len(marginals.one_way) * chance < _CONTRADICTED:
            contradicted.append(place)
    return tuple(contradicted)


def pool(
    drawn: Sequence[Observation],
    earlier: Sequence[Observation],
    compression: Compression | None = None,
) -> tuple[Observation, ...]:
    """Pool drawn and earlier measurements over merged codes into one of each set of attributes, the drawn ones first.

    Without a compression no value was merged, then or now, as in the marginals of one attribute.

    Cells that were measured more than once are the means of their counts by precision (1 / variance); the deviation of a
    table is the root of the mean variance of its cells. Its noise is normal only where that of all is. DP: post-processing.
    """
    measured = [_MeasuredCells.of(m) for m in drawn]
    measured += [_over_merged_codes(m, compression) for m in earlier]
    alike: dict[Clique, list[_MeasuredCells]] = {}
    for cells in measured:
        alike.setdefault(cells.table.attributes, []).append(cells)
    pooled = []
    for tables in alike.values():
        precisions = [1 / cells.variances for cells in tables]
        precision = np.sum(precisions, axis=0)
        weighted = [cells.counts / cells.variances for cells in tables]
        counts = np.sum(weighted, axis=0) / precision
        deviation = float(np.sqrt((1 / precision).mean()))
        kinds = [cells.table.noise for cells in tables]
        heavy_tails = [kind for kind in kinds if not count_noise(kind).is_normal]
        noise = (heavy_tails or kinds)[0]
        pooled.append(replace(tables[0].table, counts=counts, deviation=deviation, noise=noise))
    return tuple(pooled)


class _MeasuredCells(NamedTuple):
    """A measured table, with the count and the variance of each cell."""

    table: Observation
    counts: Floats
    variances: Floats

    @classmethod
    def of(cls, table: Observation) -> _MeasuredCells:
        """Return the cells of a table as it was measured."""
        counts = np.asarray(table.counts, np.float64)
        variances = np.full(counts.shape, table.deviation**2)
        return cls(table, counts, variances)


def _over_merged_codes(table: Observation, compression: Compression | None) -> _MeasuredCells:
    """Return a table over the merged codes; no variance is below that of a measured cell.

    A count of values that were merged then is shared by its values in proportion to their counts in this release, as in the
    records.
    """
    measured = _MeasuredCells.of(table)
    if compression is None:
        return measured
    counts = measured.counts
    variances = measured.variances
    code_counts = tuple(compression.counts[a] for a in table.attributes)
    merged = Compression(codes=table.codes, counts=code_counts)
    shares_of_axes = Spread.of(merged).shares
    for axis, a in enumerate(table.attributes):
        shape = compression.sizes[a], table.counts.shape[axis]
        weights = np.zeros(shape)
        np.add.at(
            weights,
            (compression.codes[a], table.codes[axis]),
            shares_of_axes[axis],
        )
        counts = _along(weights, counts, axis)
        variances = _along(weights**2, variances, axis)
    variances = np.maximum(variances, table.deviation**2)
    return _MeasuredCells(
        replace(table, counts=counts, levels=()),
        counts,
        variances,
    )


def _along(
    matrix: Floats,
    table: Floats,
    axis: int,
) -> Floats:
    """Apply `matrix` along one axis of `table`."""
    product = np.tensordot(matrix, table, (1, axis))
    return np.moveaxis(product, 0, axis)


def _tables(
    configuration: Configuration,
    statement: PrivacyStatement,
    cells: pa.Table,
) -> Iterator[Observation]:
    """Yield the usable marginals of one earlier release over attributes of `configuration`, with merged values as levels."""
    usable = {m.attributes for m in usable_marginals(configuration, statement)}
    declared_then = Configuration.from_canonical(statement.configuration)
    resolved_then = declared_then.with_bounds(statement.bounds)
    domain = statement.released_domain
    marginals = read_measurements(cells, statement.marginals or (), domain, resolved_then)
    merged = drawn_compression_of(marginals, resolved_then).codes
    place = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    for m in (*marginals.one_way, *marginals.larger):
        names = tuple(domain.names[a] for a in m.attributes)
        if names not in usable:
            continue
        unmerged = m if len(names) == 1 else m.unmerged(merged)
        measured = replace(unmerged, counts=np.asarray(m.counts, np.float64))
        yield measured.renumbered([place[name] for name in names])


def read_measurements(
    table: pa.Table,
    facts: Sequence[MarginalStatement],
    domain: Domain,
    configuration: Configuration,
) -> Marginals:
    """Return the marginals that `measurements_table` wrote, except those in coarser bins.

    `facts` are the `marginals` of privacy.json.

    Raises:
        InputError: cells that are not those of the marginals.
    """
    # `to_numpy` would import pandas, which takes longer than most questions do
    numbers, unordered = (
        np.asarray(np.from_dlpack(table.column(name).combine_chunks()), np.int64)
        for name in CELL_COLUMNS
    )
    order = np.argsort(numbers, kind="stable")
    counts = unordered[order]
    begins = np.searchsorted(numbers[order], np.arange(1, len(facts) + 2))
    place = {name: j for j, name in enumerate(domain.names)}
    single = len(domain.names)
    is_combined = bool(facts) and facts[0].draw == COMBINED_DRAWS
    selects = is_combined or configuration.marginal_settings.selects(len(configuration.attributes))

    def measured(i: int, sizes: Sequence[int] | None) -> Observation:
        fact = facts[i]
        cells = counts[begins[i] : begins[i + 1]]
        attributes = tuple(place[name] for name in fact.attributes)
        shape = (len(cells),) if sizes is None else tuple(sizes[a] for a in attributes)
        if len(cells) != np.prod(shape):
            raise InputError(
                "measurements must have every cell of every marginal that privacy.json names"
            )
        return Observation(
            attributes=attributes,
            counts=cells.reshape(shape),
            deviation=fact.deviation,
            noise=fact.noise,
            chosen=selects and len(attributes) > 1,
        )

    rows = range(len(facts))
    one_way = tuple(measured(i, None) for i in rows[:single])
    unmerged = Marginals(domain=domain, one_way=one_way, larger=())
    sizes = drawn_compression_of(unmerged, configuration).sizes
    in_full_detail = [i for i in rows[single:] if not facts[i].joined]
    larger = tuple(measured(i, sizes) for i in in_full_detail)
    return Marginals(domain=domain, one_way=one_way, larger=larger, is_combined=is_combined)
