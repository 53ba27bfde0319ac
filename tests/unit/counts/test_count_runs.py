"""Counts that are more than memory holds: runs, their sum, and the files they are in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.arrays import Integers
from marginweave.base.errors import StageError
from marginweave.checkpoints.store import BlockFile
from marginweave.counts import count_runs
from marginweave.counts.count_runs import (
    CountRun,
    MemoryBudget,
    SparseCounts,
    add_pieces,
    add_runs,
    make_run,
)

KEYS = st.lists(st.integers(0, 30), max_size=25)
STREAM = st.dictionaries(st.integers(0, 40), st.integers(1, 5), max_size=20)


def pieces(counts: dict[int, int], size: int) -> list[tuple[Integers, Integers]]:
    """By increasing keys, `size` at a time."""
    items = sorted(counts.items())
    parts = [items[i : i + size] for i in range(0, len(items), size)]
    keys, numbers = 0, 1
    return [(_column(part, keys), _column(part, numbers)) for part in parts]


def _column(part: list[tuple[int, int]], place: int) -> Integers:
    return np.array([item[place] for item in part], np.int64)


@given(st.lists(st.tuples(STREAM, st.integers(1, 7)), max_size=5))
def test_streams_are_added_up(streams: list[tuple[dict[int, int], int]]) -> None:
    """Ascending, every key once, with the sum of its counts."""
    total = sum((Counter(counts) for counts, _ in streams), Counter())
    added = list(add_pieces([iter(pieces(counts, size)) for counts, size in streams]))
    keys = [key for cells, _ in added for key in cells.tolist()]
    assert keys == sorted(set(keys))
    assert dict(
        zip(keys, [n for _, counts in added for n in counts.tolist()], strict=True)
    ) == dict(total)


def whole(run: CountRun) -> list[dict[int, int]]:
    """The counts of each set, keys ascending."""
    found = [[*run.of(index)] for index in range(run.sets)]
    assert all((np.diff(np.concatenate([c for c, _ in set_])) > 0).all() for set_ in found if set_)
    return [
        {k: n for c, m in set_ for k, n in zip(c.tolist(), m.tolist(), strict=True)}
        for set_ in found
    ]


@given(
    st.lists(st.lists(KEYS, min_size=3, max_size=3), max_size=6),
    st.integers(0, 40),
    st.integers(0, 12),
)
def test_whatever_is_set_aside_the_sum_is_the_counts(
    tmp_path_factory: pytest.TempPathFactory,
    added: list[list[list[int]]],
    most: int,
    in_memory: int,
) -> None:
    """With room for some keys only, on each core and for the sum: the counts of all, and no file but the one of the sum."""
    room = MemoryBudget(in_memory * 384, tmp_path_factory.mktemp("room"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_runs, "PIECE", 4)
        patch.setattr(count_runs, "_FAN_IN", 2)
        counts = SparseCounts(3, most, room)
        for sets in added:
            for index, keys in enumerate(sets):
                counts.add(index, np.array(keys, np.int64))
        run = add_runs(counts.runs(), room)
        assert whole(run) == [
            Counter(k for sets in added for k in sets[index]) for index in range(3)
        ]
    assert run.cells == sum(map(len, whole(run)))
    files = list(room.folder.iterdir())
    assert [run.pieces.path] == files if isinstance(run.pieces, BlockFile) else not files
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_what_is_counted_in_memory_is_bounded(tmp_path: Path) -> None:
    """A million keys with room for 10,000: never are more than twice as many, and those of one call, in memory."""
    rng, room = np.random.default_rng(1), MemoryBudget(10_000 * 384, tmp_path)
    counts, seen = SparseCounts(4, room.sparse_cells, room), []
    for index in range(200):
        counts.add(index % 4, rng.integers(0, 1 << 40, 5_000))
        seen.append(counts.waiting + counts.counted)
    assert max(seen) <= 2 * 10_000 + 5_000
    runs = counts.runs()
    assert len(runs) > 50
    assert [isinstance(run.pieces, BlockFile) for run in runs] == [True] * (len(runs) - 1) + [False]
    total = add_runs(runs, room)
    assert max(map(len, total.pieces)) <= 16 * count_runs.PIECE
    assert sum(int(counts.sum()) for i in range(4) for _, counts in total.of(i)) == 1_000_000


def test_what_was_not_written_here_is_not_read(tmp_path: Path) -> None:
    """A byte that was changed on the disk ends the count."""
    keys = np.arange(10)
    run = make_run([[(keys, keys)]], MemoryBudget(0, tmp_path))
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)
    with pytest.raises(StageError, match="damaged"):
        list(run.of(0))
