"""An encoded table in blocks of records, of which one at a time needs to be in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import cast

import numpy as np

from marginweave.tasks.checkpoint.codecs import pack_codes, unpack_codes
from marginweave.tasks.encode.codes import Codes, EncodedTable


@dataclass(frozen=True)
class EncodedBlocks:
    """Records block by block, in the order of the whole table; private. A pass over the blocks can be repeated.

    `payloads` holds the packed codes of each block and then what they share: the labels and the numbers of records.
    """

    payloads: Sequence[bytes]

    @cached_property
    def _shared(self) -> dict[str, list[list[str]] | list[int]]:
        shared: dict[str, list[list[str]] | list[int]] = json.loads(self.payloads[len(self.payloads) - 1])
        return shared

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The values of each attribute; of a private domain they are raw texts."""
        return tuple(tuple(values) for values in self._shared["labels"])  # type: ignore[arg-type]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(len(labels) for labels in self.labels)

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        return (0, *accumulate(self._shared["records"]))  # type: ignore[arg-type]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The number of the first record of each block, and the number of all records at the end."""
        return self._offsets

    @property
    def records(self) -> int:
        """Exact number of records: private."""
        return self.offsets[-1]

    def __len__(self) -> int:
        return len(self.payloads) - 1

    def table(self, block: int) -> EncodedTable:
        """The records of one block."""
        codes = cast("tuple[Codes, ...]", unpack_codes(self.payloads[block]))
        return EncodedTable(codes=codes, labels=self.labels)

    def __iter__(self) -> Iterator[EncodedTable]:
        return map(self.table, range(len(self)))

    def whole(self) -> EncodedTable:
        """All records at once, for what cannot be done block by block."""
        columns = zip(*(table.codes for table in self), strict=True)
        return EncodedTable(codes=tuple(np.concatenate(parts) for parts in columns), labels=self.labels)


def pack_blocks(tables: Iterable[EncodedTable]) -> Iterator[bytes]:
    """The payloads of `EncodedBlocks`, one block at a time; `tables` has at least one, all over the same labels. Private."""
    records = []
    labels: tuple[tuple[str, ...], ...] = ()
    for table in tables:
        records.append(table.records)
        labels = table.labels
        yield pack_codes(table.codes)
    yield json.dumps({"labels": labels, "records": records}).encode()
