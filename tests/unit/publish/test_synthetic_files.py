"""The synthetic files, written block by block: the same bytes as the whole table at once, canonical row groups."""

from __future__ import annotations

import hashlib
import io
from codecs import BOM_UTF8
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.durable import file_digest, streamed_file
from marginweave.base.errors import InputError, MachineError
from marginweave.prepare.clean import clean_table
from marginweave.publish import synthetic, tables
from marginweave.publish.synthetic import no_value_sentence, write_synthetic
from marginweave.publish.tables import csv_bytes, parquet_bytes
from tests.support.configurations import configuration


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
    number = {"type": "number", "bounds": [0, 9], "bins": 3}
    hidden = {"type": "category", "domain": "private"}
    config = configuration(
        columns={"text": hidden, "number": number, "whole": {**number, "decimals": 0}}
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (tables, synthetic):
            patch.setattr(module, "ROW_GROUP", 16)
        digests = write_synthetic(place, blocks, config, {})
        wanted = {"synthetic.parquet": parquet_bytes(table), "synthetic.csv": csv_bytes(table)}
    assert {name: (place / name).read_bytes() for name in wanted} == wanted
    assert digests == {
        name: hashlib.sha256(content).hexdigest() for name, content in wanted.items()
    }
    assert {name: file_digest(place / name) for name in digests} == digests
    groups = pq.ParquetFile(io.BytesIO(wanted["synthetic.parquet"])).metadata
    sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert [n for n in sizes if n] == [16] * (rows // 16) + [rows % 16] * (rows % 16 > 0)
    assert {entry.name for entry in place.iterdir()} == set(wanted)


@pytest.mark.parametrize("delimiter", ["semicolon", "tab"])
@pytest.mark.parametrize("decimal", ["comma", "dot", None])
@pytest.mark.parametrize("source", ["people.csv", {"file": "people.csv", "decimal": "comma"}])
def test_csv_files_are_written_for_the_spreadsheet_of_their_readers(
    tmp_path: Path, delimiter: str, decimal: str | None, source: Any
) -> None:
    """What a spreadsheet reads with these marks and this delimiter is what the Parquet file has."""
    number = {"type": "number", "bounds": [0, 9], "bins": 3}
    config = configuration(
        columns={"text": {"type": "category", "domain": "private"}, "number": number},
        source=source,
        publish={"csv": {"delimiter": delimiter, "decimal": decimal, "bom": True}},
    )
    table = table_of(40).select(["text", "number"])
    write_synthetic(tmp_path, [table], config, {})
    (tmp_path / "counts.csv").write_bytes(csv_bytes(table, config.publish.csv))
    written = {"synthetic.csv": decimal or config.source.decimal, "counts.csv": decimal or "dot"}
    for name, mark in written.items():
        assert (tmp_path / name).read_bytes().startswith(BOM_UTF8)
        read = pd.read_csv(
            tmp_path / name,
            sep={"semicolon": ";", "tab": "\t"}[delimiter],
            decimal={"comma": ",", "dot": "."}[mark],
            encoding="utf-8-sig",
            keep_default_na=False,
            na_values={"number": [""]},
        )
        pd.testing.assert_frame_equal(read, table.to_pandas(), check_dtype=False)


def test_a_comma_cannot_be_between_cells_and_before_decimals() -> None:
    with pytest.raises(InputError, match="another delimiter than decimal, such as semicolon"):
        configuration(publish={"csv": {"decimal": "comma"}})


def test_a_missing_number_is_an_empty_cell_and_a_missing_text_is_that_of_the_source(
    tmp_path: Path,
) -> None:
    """A code beside numbers, or in place of a date, would be averaged; of several texts nobody knows which was meant."""
    number = {"type": "number", "bounds": [0, 9], "bins": 3, "decimals": 0}
    columns: dict[str, Any] = {
        "n": {**number, "missing": ["N"]},
        "age": {**number, "missing": ["999"]},
        "sure": {**number, "missing": []},
        "grade": {"type": "category", "values": ["1", "2"], "missing": [" -9 "]},
        "text": {"type": "category", "values": ["a"], "missing": [" none "]},
        "both": {"type": "category", "values": ["a"], "missing": ["", "none"]},
        "flag": {"type": "boolean", "missing": ["?"]},
        "tags": {"type": "set", "values": ["1", "2"], "max_values": 2, "missing": ["9"]},
        "day": {
            "type": "date",
            "bounds": ["2020-01-01", "2020-12-31"],
            "bins": "month",
            "missing": ["1900-01-01"],
        },
    }
    config = configuration(columns=columns)
    whole, texts = pa.array([None, 5], pa.int64()), pa.array([None, "a"])
    numbers, held = pa.array([None, "1"]), pa.array([None, True])
    values = {
        "n": whole,
        "age": whole,
        "sure": [1, 2],
        "grade": numbers,
        "text": texts,
        "both": texts,
        "flag": held,
    }
    table = pa.table({**values, "tags": numbers, "day": pa.array([None, date(2020, 2, 3)])})
    write_synthetic(tmp_path, [table.slice(0, 1), table.slice(1)], config, {})
    head, *lines = (tmp_path / "synthetic.csv").read_text().splitlines()
    assert head == ",".join(f'"{name}"' for name in columns)
    assert lines == [',,1,,"none",,"?","9",', '5,5,2,"1","a","a","true","1",2020-02-03']
    assert pq.read_table(tmp_path / "synthetic.parquet") == table
    frame = pd.read_csv(tmp_path / "synthetic.csv")
    assert (frame["age"].mean(), frame["n"].mean(), frame["grade"].mean()) == (5, 5, 1)
    said = {
        name: str(no_value_sentence(config, name) or "").partition(" in ")[0] for name in columns
    }
    empty = "No value is an empty cell"
    quoted = {
        "text": "No value is the text “none”, whatever a cell without a value had instead,",
        "flag": "No value is the text “?”, whatever a cell without a value had instead,",
        "tags": "No value is the text “9”, whatever a cell without a value had instead,",
    }
    assert said == dict.fromkeys(columns, empty) | quoted | {"sure": ""}
    raw = pa_csv.read_csv(
        tmp_path / "synthetic.csv",
        convert_options=pa_csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string())),
    )
    assert clean_table(raw, config) == clean_table(table, config)


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
