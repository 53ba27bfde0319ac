"""What earlier releases of the same rows measured, beside what this one has drawn: each count with its noise.

DP: post-processing of released counts, after every draw; nothing that is drawn depends on it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError, StageError
from marginweave.configuration.earlier import EARLIER_FILES, earlier_name
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique
from marginweave.estimate.marginals import Spread, drawn_compression_of
from marginweave.observations.compression import Compression
from marginweave.observations.tables import Marginals, Observation
from marginweave.released.earlier import usable_marginals
from marginweave.released.statement import MarginalStatement, PrivacyStatement

Read = Callable[[str], bytes | None]


def earlier_files(configuration: Configuration, read: Read) -> Iterator[tuple[str, bytes]]:
    """The kept files of earlier releases, by the names they are kept under; raises StageError for one that is another."""
    for number, known in enumerate(configuration.earlier, 1):
        for name in EARLIER_FILES:
            kept = earlier_name(number, name)
            content = read(kept)
            if content is None or hashlib.sha256(content).hexdigest() != known.release.files[name]:
                raise StageError(f"{kept} is missing, or is not the file of run {known.release.run} that is declared")
            yield kept, content


def with_earlier(marginals: Marginals, declared: Configuration, resolved: Configuration, read: Read) -> Marginals:
    """The marginals with what the earlier releases of a configuration tell of them; as they are without any.

    Args:
        marginals: as they were drawn.
        declared: the configuration.
        resolved: the same with bounds that were bought.
        read: gives the kept files by name.

    Raises:
        StageError: a file is missing or was changed.
    """
    tables = earlier_tables(declared, read)
    if not tables:
        return marginals
    single, larger = ([m for m in tables if (len(m.attributes) == 1) == alone] for alone in (True, False))
    one_way = pool(marginals.one_way, single)
    compression = drawn_compression_of(replace(marginals, pooled=one_way), resolved)  # shares by pooled counts
    return replace(marginals, pooled=(*one_way, *pool(marginals.larger, larger, compression)))


def earlier_tables(configuration: Configuration, read: Read) -> list[Observation]:
    """The marginals of the earlier releases of a configuration, as they were drawn; `read` gives the kept files by name.

    They are over attributes of this one, with the values that were merged then as levels.

    Raises:
        StageError: a file is missing or was changed.
    """
    files, tables = dict(earlier_files(configuration, read)), list[Observation]()
    for number, _ in enumerate(configuration.earlier, 1):
        stated, cells = (files[earlier_name(number, name)] for name in EARLIER_FILES)
        tables += _tables(configuration, PrivacyStatement.from_json(stated), pq.read_table(io.BytesIO(cells)))
    return tables


def pool(
    drawn: Sequence[Observation], earlier: Sequence[Observation], compression: Compression | None = None
) -> tuple[Observation, ...]:
    """Drawn and earlier measurements over merged codes, one of each set of attributes, the drawn ones first.

    Without a compression no value was merged, then or now, as in the marginals of one attribute.

    Cells that were measured more than once are the means of their counts by precision (1 / variance); the deviation of a
    table is the root of the mean variance of its cells. DP: post-processing.
    """
    measured = [(m, np.asarray(m.counts, np.float64), np.full(m.counts.shape, m.deviation**2)) for m in drawn]
    alike: dict[Clique, list[tuple[Observation, Floats, Floats]]] = {}
    for one in (*measured, *(_over(m, compression) for m in earlier)):
        alike.setdefault(one[0].attributes, []).append(one)
    found = []
    for tables in alike.values():
        precision = np.sum([1 / variances for _, _, variances in tables], axis=0)
        counts = np.sum([counts / variances for _, counts, variances in tables], axis=0) / precision
        found.append(replace(tables[0][0], counts=counts, deviation=float(np.sqrt((1 / precision).mean()))))
    return tuple(found)


def _over(m: Observation, compression: Compression | None) -> tuple[Observation, Floats, Floats]:
    """A table over the merged codes, and the variance of each cell, never below that of a measured one.

    What was measured together then is shared by its values in proportion to their counts here, as in the records.
    """
    counts, variances = np.asarray(m.counts, np.float64), np.full(m.counts.shape, m.deviation**2)
    if compression is None:
        return m, counts, variances
    merged = Compression(codes=m.codes, counts=tuple(compression.counts[a] for a in m.attributes))
    for axis, (a, then, shares) in enumerate(zip(m.attributes, m.codes, Spread.of(merged).shares, strict=True)):
        weights = np.zeros((compression.sizes[a], m.counts.shape[axis]))
        np.add.at(weights, (compression.codes[a], then), shares)
        counts, variances = (
            np.moveaxis(np.tensordot(by, of, (1, axis)), 0, axis)
            for by, of in ((weights, counts), (weights**2, variances))
        )
    return replace(m, counts=counts, levels=()), counts, np.maximum(variances, m.deviation**2)


def _tables(configuration: Configuration, statement: PrivacyStatement, cells: pa.Table) -> Iterator[Observation]:
    usable = {m.attributes for m in usable_marginals(configuration, statement)}
    declared = Configuration.from_canonical(statement.configuration)
    theirs = declared.with_bounds(statement.bounds)
    domain = statement.released_domain
    marginals = read_measurements(cells, statement.marginals or (), domain, theirs)
    merged = drawn_compression_of(marginals, theirs).codes
    place = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    for m in (*marginals.one_way, *marginals.larger):
        names = tuple(domain.names[a] for a in m.attributes)
        if names not in usable:
            continue
        own = m if len(names) == 1 else m.unmerged(merged)
        yield replace(own, counts=np.asarray(m.counts, np.float64)).renumbered([place[name] for name in names])


def read_measurements(
    table: pa.Table, facts: Sequence[MarginalStatement], domain: Domain, configuration: Configuration
) -> Marginals:
    """The marginals that `measurements_table` wrote, but those in coarser bins; `facts` are the `marginals` of privacy.json.

    Raises:
        InputError: cells that are not those of the marginals.
    """
    numbers, counts = table.column("marginal").to_numpy(), table.column("count").to_numpy()
    place, single = {name: j for j, name in enumerate(domain.names)}, len(domain.names)

    def measured(i: int, sizes: Sequence[int] | None) -> Observation:
        fact, cells = facts[i], counts[numbers == i + 1]
        attributes = tuple(place[name] for name in fact.attributes)
        shape = (len(cells),) if sizes is None else tuple(sizes[a] for a in attributes)
        if len(cells) != np.prod(shape):
            raise InputError("measurements must have every cell of every marginal that privacy.json names")
        counted = cells.reshape(shape)
        return Observation(attributes=attributes, counts=counted, deviation=fact.deviation, noise=fact.noise)

    one_way = tuple(measured(i, None) for i in range(len(facts))[:single])
    sizes = drawn_compression_of(Marginals(domain=domain, one_way=one_way, larger=()), configuration).sizes
    larger = tuple(measured(i, sizes) for i in range(len(facts))[single:] if not facts[i].joined)
    return Marginals(domain=domain, one_way=one_way, larger=larger)
