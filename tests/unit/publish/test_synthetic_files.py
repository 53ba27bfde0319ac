"""The synthetic files, written block by block: the same bytes as the whole table at once, canonical row groups."""

from __future__ import annotations

import hashlib
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.schemas.errors import MachineError
from marginweave.tasks.checkpoint.files import file_digest, streamed_file
from marginweave.tasks.publish import tables
from marginweave.tasks.publish.tables import csv_bytes, parquet_bytes, write_synthetic


def table_of(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    texts = pa.array(["a", "b,c", '"', "", "ü"]).take(pa.array(rng.integers(0, 5, rows)))
    numbers = pa.array(rng.random(rows), mask=rng.random(rows) < 0.2)
    return pa.table({"text": texts, "number": numbers, "whole": rng.integers(0, 9, rows)})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 60), st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_files_are_those_of_the_whole_table(tmp_path_factory, rows, cuts, single):
    """However it is cut, empty blocks included; row groups are full but for the last."""
    table = table_of(rows).select(["number"] if single else ["text", "number", "whole"])
    edges = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    blocks = [table.slice(low, high - low) for low, high in pairwise(edges)]
    place = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "ROW_GROUP", 16)
        digests = write_synthetic(place, blocks, {})
        wanted = {"synthetic.parquet": parquet_bytes(table), "synthetic.csv": csv_bytes(table)}
    assert {name: (place / name).read_bytes() for name in wanted} == wanted
    assert digests == {name: hashlib.sha256(content).hexdigest() for name, content in wanted.items()}
    assert {name: file_digest(place / name) for name in digests} == digests
    groups = pq.ParquetFile(io.BytesIO(wanted["synthetic.parquet"])).metadata
    sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert [n for n in sizes if n] == [16] * (rows // 16) + [rows % 16] * (rows % 16 > 0)
    assert {entry.name for entry in place.iterdir()} == set(wanted)


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    """A fault on the way leaves the old file, and no temporary one; of the disk, it is a MachineError."""
    place = tmp_path / "file"
    assert file_digest(place) is None
    place.write_bytes(b"old")
    for error, raised in ((ValueError(), ValueError), (OSError(28, "No space left"), MachineError)):
        with pytest.raises(raised), streamed_file(place) as stream:  # noqa: PT012 - the block is what fails
            stream.write(b"new")
            raise error
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
        assert place.read_bytes() == b"old"
