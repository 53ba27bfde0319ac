"""An encoded table in blocks, over the released domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marginweave.tasks.aggregate.released import recode
from marginweave.tasks.encode.blocks import EncodedBlocks
from marginweave.tasks.encode.codes import EncodedTable


@dataclass(frozen=True)
class ReleasedBlocks:
    """Blocks in which values of private columns that were not released are missing. Private."""

    blocks: EncodedBlocks
    released: Mapping[int, tuple[str, ...]]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The number of the first record of each block, and the number of all records at the end."""
        return self.blocks.offsets

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The values of each attribute: public or released."""
        return tuple(self.released.get(j, labels) for j, labels in enumerate(self.blocks.labels))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(len(labels) for labels in self.labels)

    def table(self, block: int) -> EncodedTable:
        """The records of one block."""
        return recode(self.blocks.table(block), self.released)
