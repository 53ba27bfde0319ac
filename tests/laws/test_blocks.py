"""Blocks are a matter of memory alone: whatever their size, and the number of partitions, the encoded table is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.checkpoints.codecs import compact_table, in_blocks
from marginweave.checkpoints.spill import Spill
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.prepare.clean import CleanBlocks, pack_clean
from marginweave.prepare.codes import EncodedBlocks, pack_blocks
from marginweave.prepare.encode import encode_blocks
from marginweave.prepare.rows import prepare_blocks
from tests.support.configurations import configuration

KEY = bytes(range(32))
UNIFORM = {"distribution": "uniform"}
COLUMNS: dict[str, Any] = {
    "sex": {"type": "category", "values": ["f", "m"], "impute": UNIFORM},
    "town": {
        "type": "category",
        "domain": "private",
        "impute": {"weights": {"unknown": 1, "b": 2}},
    },
    "age": {"type": "number", "bounds": [0, 100], "bins": 5, "impute": UNIFORM},
    "seen": {
        "type": "date",
        "bounds": ["2020-01-01", "2020-12-31"],
        "bins": "month",
        "impute": UNIFORM,
    },
    "signs": {"type": "set", "values": ["c", "f", "r"], "max_values": 1},
    "more": {"type": "set", "domain": "private", "max_values": 2},
}
UNITS: dict[str, Any] = {
    "row": "row",
    "bounded": {"column": "id", "max_records": 2},
    "own": {"column": "id", "max_records": 1, "missing_subject": "own"},
    "joined": {"column": "id", "join": True, "missing_subject": "own"},
}
cells = st.tuples(
    st.sampled_from(["f", "m", "x", ""]),
    st.sampled_from(["a", "b", " c", ""]),
    st.sampled_from(["7", "99", "no", ""]),
    st.sampled_from(["2020-02-01", "2020-11-30", ""]),
    st.sampled_from(["c;f;r", "r;f", "c", ""]),
    st.sampled_from(["z;y;x", "w;y;x;v", ""]),
    st.sampled_from(["1", " 1", "2", "3", ""]),
)


def raw_table(rows: list[tuple[str, ...]]) -> pa.Table:
    return pa.table(
        {n: pa.array([row[j] for row in rows], pa.string()) for j, n in enumerate([*COLUMNS, "id"])}
    )


def run(raw: pa.Table, config: Configuration, rows: int, folder: Path) -> EncodedBlocks:
    """The stages as a run has them, with so many rows a block."""
    blocks = [compact_table(block) for block in in_blocks([raw], rows)]
    assert [b.num_rows for b in blocks[:-1]] == [rows] * (len(blocks) - 1)
    with pytest.MonkeyPatch.context() as patch:
        # so many rows of small partitions are together, too
        patch.setattr(Configuration, "block_rows", rows)
        clean = CleanBlocks(list(pack_clean(prepare_blocks(blocks, config, KEY, folder))))
    return EncodedBlocks(list(pack_blocks(encode_blocks(clean, config, KEY))))


@pytest.mark.parametrize(
    "resize", [None, {"records": 9, "proportion": 1.5}], ids=["as it is", "resized"]
)
@pytest.mark.parametrize("unit", UNITS)
@given(st.lists(cells, max_size=20), st.sampled_from([1, 2, 5]))
@settings(deadline=None, max_examples=8)
def test_blocks_and_partitions_change_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    unit: str,
    resize: dict[str, Any] | None,
    rows: list[tuple[str, ...]],
    partitions: int,
) -> None:
    """Blocks of 1, 7, 1000 rows and one of all: the same records in the same order, and the same counts of all pairs."""
    folder = tmp_path_factory.getbasetemp()
    config = configuration(columns=COLUMNS, privacy__unit=UNITS[unit], resize=resize)
    whole = run(raw_table(rows), config, max(1, len(rows)), folder).whole()
    pairs = all_cliques(whole.sizes[:4], 2)
    radices = [size + 1 for size in whole.sizes]
    for size in (1, 7, 1000):
        other = configuration(
            columns=COLUMNS, privacy__unit=UNITS[unit], resize=resize, partitions=partitions
        )
        blocks = run(raw_table(rows), other, size, folder)
        table = blocks.whole()
        assert table.labels == whole.labels
        assert all(
            np.array_equal(a, b) and a.dtype == b.dtype
            for a, b in zip(table.codes, whole.codes, strict=True)
        )
        counted = count_marginals((part.codes for part in blocks), radices, pairs)
        expected = count_marginals([whole.codes], radices, pairs)
        assert all(np.array_equal(a, b) for a, b in zip(counted, expected, strict=True))


def test_choices_are_made(tmp_path: Path) -> None:
    """The law above would hold of stages that chose nothing: rows are dropped, sets cut, gaps filled, by the key."""
    rows = [("", "a", "7", "", "c;f;r", "z;y;x", "1")] * 40
    config = configuration(columns=COLUMNS, privacy__unit={"column": "id", "max_records": 30})
    table = run(raw_table(rows), config, 7, tmp_path).whole()
    assert table.records == 30
    assert [len(set(table.codes[j].ravel().tolist())) for j in (0, 3, 4)] == [2, 12, 3]
    assert table.codes[5].shape == (30, 2)


def test_entries_of_a_dictionary_that_no_row_has_are_no_values(tmp_path: Path) -> None:
    """A file may carry values in its dictionary that a slice of it does not have: they are nobody's."""
    towns = pa.DictionaryArray.from_arrays(
        pa.array([0, 2], pa.int32()), pa.array(["a", "gone", "c"])
    )
    columns = {"town": {"type": "category", "domain": "private"}, "sex": COLUMNS["sex"]}
    raw = pa.table({"town": towns, "sex": ["f", "m"]})
    assert run(raw, configuration(columns=columns), 2, tmp_path).labels[0] == ("a", "c")
    assert compact_table(raw).column("town").chunk(0).dictionary.to_pylist() == ["a", "c"]


@pytest.mark.parametrize("unit", UNITS)
def test_nothing_is_set_aside_for_a_partition_without_rows(
    unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many partitions of few rows cost no more than the rows."""
    sizes: list[int] = []
    put = Spill.put
    monkeypatch.setattr(
        Spill,
        "put",
        lambda self, shelf, payload: (sizes.append(shelf), put(self, shelf, payload))[1],
    )
    rows = [("", "a", "7", "", "c;f;r", "z;y;x", str(i % 5)) for i in range(20)]
    config = configuration(columns=COLUMNS, privacy__unit=UNITS[unit], partitions=4096)
    run(raw_table(rows), config, 7, tmp_path)
    assert len(sizes) <= 2 * len(rows)
