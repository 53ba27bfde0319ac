"""Rows as marginals are counted: over the released domain, rare values merged, at the levels of bins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.counts.released_rows import recode
from marginweave.domain.zeros import one_way_sizes
from marginweave.measurements.base import Drawn, PrivateRows
from marginweave.measurements.private_values import released_labels
from marginweave.observations.compression import Compression, compress_codes
from marginweave.observations.tables import Observation
from marginweave.prepare.codes import Codes, EncodedBlocks, code_type

Level = tuple[int, Integers]
"""An attribute, and the coarser code of each of its codes."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Encoded rows over the released domain, block by block; the missing value is the last code where there is one. Private.

    Behind the attributes are the indicators of sets. With a compression there are none: rare values are merged, and behind the
    attributes are their `levels`, each a function of the merged code of one. A pass over the blocks can be repeated.
    """

    encoded: EncodedBlocks
    private: Mapping[int, tuple[str, ...]]
    sizes: tuple[int, ...]
    compression: Compression | None = None
    levels: Sequence[Level] = ()

    def __iter__(self) -> Iterator[tuple[Codes, ...]]:
        for table in self.encoded:
            codes = recode(table, self.private).codes
            attributes = codes if self.compression is None else codes[: len(self.compression.codes)]
            merged = codes if self.compression is None else compress_codes(attributes, self.compression)
            yield (*merged, *(coarse.astype(code_type(len(coarse)))[merged[a]] for a, coarse in self.levels))


def released_rows(rows: PrivateRows, drawn: Drawn) -> Rows:
    """The rows over the released domain."""
    labels = released_labels(drawn)
    private = {j: labels[j] for j, attribute in enumerate(drawn.configuration.attributes) if attribute.private}
    return Rows(encoded=rows.encoded(), private=private, sizes=one_way_sizes(drawn.counted, labels))


def by_level(
    drawn: Sequence[Observation], levels: Sequence[Level], attributes: int
) -> tuple[tuple[Observation, ...], tuple[Observation, ...]]:
    """Drawn marginals of attributes alone, and those with levels, in the order and with the codes of their attributes."""
    coarse = []
    for m in (m for m in drawn if m.attributes[-1] >= attributes):
        of = [levels[a - attributes] if a >= attributes else (a, None) for a in m.attributes]
        own = replace(m, levels=tuple(level for _, level in of)).renumbered([a for a, _ in of])
        coarse.append(replace(own, counts=np.ascontiguousarray(own.counts, np.int64)))
    return tuple(m for m in drawn if m.attributes[-1] < attributes), tuple(coarse)
