"""Bytes of what rounds keep: chosen marginals, and exact marginals of candidates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.measurements import Clique
from marginweave.tasks.checkpoint.codecs import pack_arrays, unpack_arrays

Table = NDArray[np.int64]


def pack_pick(clique: Clique, pace: int) -> bytes:
    """A chosen marginal, and the pace of its round, by which the round goes on after a crash."""
    return pack_arrays({}, {"clique": clique, "pace": pace})


def unpack_pick(payload: bytes) -> tuple[Clique, int]:
    """What `pack_pick` packed."""
    meta = unpack_arrays(payload)[1]
    return tuple(meta["clique"]), int(meta["pace"])


def pack_tables(tables: Mapping[Clique, Table]) -> bytes:
    """Exact marginals. Private."""
    arrays = {f"{i:06d}": table for i, table in enumerate(tables.values())}
    return pack_arrays(arrays, {"cliques": list(tables)})


def unpack_tables(payload: bytes) -> Iterator[tuple[Clique, Table]]:
    """The exact marginals that `pack_tables` packed, in their order. Private."""
    arrays, meta = unpack_arrays(payload)
    yield from ((tuple(clique), arrays[f"{i:06d}"]) for i, clique in enumerate(meta["cliques"]))
