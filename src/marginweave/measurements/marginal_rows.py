"""Rows that marginals count: over the released domain, rare values merged, at the levels of bins."""

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
"""Number of an attribute, and the coarser code of each of its codes."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Encoded rows over the released domain, block by block; the missing value is the last code where there is one. Private.

    The indicators of sets follow the attributes. With a compression there are none: rare values are merged, and the `levels`
    of attributes follow, each a function of the merged code of one attribute. A pass over the blocks can be repeated.
    """

    encoded: EncodedBlocks
    private: Mapping[int, tuple[str, ...]]
    sizes: tuple[int, ...]
    compression: Compression | None = None
    levels: Sequence[Level] = ()

    def __iter__(self) -> Iterator[tuple[Codes, ...]]:
        for table in self.encoded:
            merged = recode(table, self.private).codes
            if self.compression is not None:
                merged = compress_codes(merged[: len(self.compression.codes)], self.compression)
            coarser = []
            for a, coarse in self.levels:
                kind = code_type(len(coarse))
                coarser.append(coarse.astype(kind)[merged[a]])
            yield (*merged, *coarser)


def released_rows(rows: PrivateRows, drawn: Drawn) -> Rows:
    """Return the rows over the released domain."""
    labels = released_labels(drawn)
    attributes = enumerate(drawn.configuration.attributes)
    private = {j: labels[j] for j, attribute in attributes if attribute.private}
    sizes = one_way_sizes(drawn.counted, labels)
    return Rows(encoded=rows.encoded(), private=private, sizes=sizes)


def by_level(
    drawn: Sequence[Observation], levels: Sequence[Level], attributes: int
) -> tuple[tuple[Observation, ...], tuple[Observation, ...]]:
    """Separate drawn marginals of attributes from those with levels, which get the order and numbers of their attributes."""
    finest = []
    coarse = []
    for marginal in drawn:
        if marginal.attributes[-1] < attributes:
            finest.append(marginal)
            continue
        numbers: list[int] = []
        coarser: list[Integers | None] = []
        for a in marginal.attributes:
            number, level = levels[a - attributes] if a >= attributes else (a, None)
            numbers.append(number)
            coarser.append(level)
        renumbered = replace(marginal, levels=tuple(coarser)).renumbered(numbers)
        coarse.append(replace(renumbered, counts=np.ascontiguousarray(renumbered.counts, np.int64)))
    return tuple(finest), tuple(coarse)
