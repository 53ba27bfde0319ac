"""Reading a source: exactly the declared columns, every fault named, and never a value of the file in a message."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.sources.source import TableSource, check_header, source_columns
from tests.support.configurations import configuration
from tests.support.source_tests import MARKER
from tests.support.tables import prepare_rows


def read_source(source: str, columns: list[str], **form: Any) -> pa.Table:
    """Read a source as a run does."""
    return TableSource(source, SourceFile(file=source, **form)).table(columns)


def opened(path: Path) -> TableSource:
    """A source at a path."""
    return TableSource(str(path), SourceFile(file=path.name))


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no header"),
        (b"\n1,2\n", "has no header"),
        (b"xq7marker,5\n1,2\n", "lacks the declared columns 'a', 'b'"),
        (b"a,b\n1,2\n3,xq7marker,4\n", r"line 3 has [13] fields?, the header has 2"),
        (b"a,b\n1,2\nxq7marker\n", r"line 3 has [13] fields?, the header has 2"),
        (b"a,b\n1,xq7marker\xff\n", "must be UTF-8"),
        (b"a,b\xff\n1,2\n", "must be UTF-8"),
        (b'a,b\n1,"xq7marker\n3,4\n5,6\n', "a quote that is never closed"),
        (b'a,b\n1,"xq7marker\n3,4\n5,6" tube\n', "a quote that is closed inside a field"),
    ],
)
def test_faults_of_a_csv_file(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        read_source(write(tmp_path / "t.csv", content), ["a", "b"])
    assert MARKER not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_faults_of_a_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_source(str(tmp_path / "absent.csv"), ["a"])
    with pytest.raises(InputError, match="without parquet files"):
        read_source(str(tmp_path), ["a"])
    with pytest.raises(InputError, match=r"cannot be read as an .xlsx workbook"):
        read_source(write(tmp_path / "t.xlsx", b"PK"), ["a"])
    with pytest.raises(InputError, match="must be one of example:affairs"):
        read_source("example:nothing", ["a"])


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("t.csv", b"a,b\n", []),
        ("t.csv", b"a,b", []),
        ("t.csv", b"\xef\xbb\xbfb,x,a\r\n1,2,3\r\n", [("3", "1")]),
        ("t.tsv", b"a\tb\n1,5\t\n", [("1,5", "")]),
        ("t.csv", b'a,b\n"x\ny","say ""hi"""\n', [("x\ny", 'say "hi"')]),
        ("t.csv", b'a,b\n5" pipe,1\n', [('5" pipe', "1")]),
        ("t.csv", b'\xef\xbb\xbf"b","a"\n"1",2\n', [("2", "1")]),
        ("t.csv", b"a,b\n , 7 \n", [(" ", " 7 ")]),
        ("t.csv", b"a,b,c,c\n1,2,3,4\n", [("1", "2")]),
    ],
)
def test_texts_come_as_they_stand(tmp_path: Path, name: str, content: bytes, rows: list) -> None:
    table = read_source(write(tmp_path / name, content), ["a", "b"])
    assert table.column_names == ["a", "b"]
    assert list(zip(*(c.to_pylist() for c in table.columns), strict=True)) == rows


def test_a_blank_line_of_a_single_column_is_a_record(tmp_path: Path) -> None:
    assert read_source(write(tmp_path / "t.csv", b"a\n1\n\n2\n"), ["a"]).column(
        "a"
    ).to_pylist() == ["1", "", "2"]


def test_parquet_parts_are_one_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": [1, 2], "a": ["x", None]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [3.5], "a": ["y"]}), tmp_path / "2.parquet")
    table = read_source(str(tmp_path), ["a", "b"])
    assert table.to_pydict() == {"a": ["x", None, "y"], "b": [1.0, 2.0, 3.5]}
    pq.write_table(pa.table({"c": [1]}), tmp_path / "3.parquet")
    with pytest.raises(InputError, match="parts with different columns"):
        read_source(str(tmp_path), ["a", "b"])


def test_parts_are_read_by_name(tmp_path: Path) -> None:
    """Another order, and columns that are not declared, whatever their types, are no matter."""
    pq.write_table(pa.table({"b": [1], "x": [1], "a": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["y"], "x": ["1"], "b": [2]}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"b": [3], "a": ["z"]}), tmp_path / "3.parquet")
    assert read_source(str(tmp_path), ["a", "b"]).to_pydict() == {
        "a": ["x", "y", "z"],
        "b": [1, 2, 3],
    }


@pytest.mark.parametrize("values", [[MARKER], [2**53 + 1]], ids=["type", "value"])
def test_a_part_that_does_not_fit_is_named(tmp_path: Path, values: list) -> None:
    """By the column and the part, without a value: types that clash, and a value that the common type cannot hold."""
    pq.write_table(pa.table({"a": [1.5], "b": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": values, "b": [1]}), tmp_path / "2.parquet")
    with pytest.raises(
        InputError, match=r"column 'a' with a type in part 2 \(2\.parquet\)"
    ) as refusal:
        read_source(str(tmp_path), ["b", "a"])
    assert MARKER not in str(refusal.value)


def test_a_row_of_8_mib_is_read_wherever_it_stands(tmp_path: Path) -> None:
    """One that is longer than two blocks is refused with the limit."""
    for before in (0, 1, 5_000_000):
        start = b"a,b\n" + b"1,2\n" * (before // 4)
        content = start + b"1," + b"x" * ((1 << 23) - 3) + b"\n3,4\n"
        assert read_source(write(tmp_path / "t.csv", content), ["a"]).column("a")[-1].as_py() == "3"
    with pytest.raises(InputError, match="a row of more than 8 MiB"):
        read_source(write(tmp_path / "t.csv", b"a,b\n1," + b"x" * (1 << 24) + b"\n3,4\n"), ["a"])


def test_moving_bytes_between_parts_changes_the_chunks(tmp_path: Path) -> None:
    first = tmp_path / "first"
    second = tmp_path / "second"
    for folder, parts in ((first, (b"ab", b"c")), (second, (b"a", b"bc"))):
        folder.mkdir()
        for number, part in enumerate(parts):
            (folder / f"{number}.parquet").write_bytes(part)
    assert b"".join(opened(first).chunks()) != b"".join(opened(second).chunks())


@pytest.mark.parametrize(
    "entry", ["1.csv", "1.feather", "below/", "_1.parquet", ".1.pq", "1.csv.gz"]
)
def test_what_would_be_left_out_of_a_folder_is_refused(tmp_path: Path, entry: str) -> None:
    """The rest would be called the table; notes and the marks of writers are let be, and no part is passed over."""
    for name in ("0.parquet", "1.pq", "part-00002"):
        pq.write_table(pa.table({"a": [name]}), tmp_path / name)
    for note in ("_SUCCESS", ".0.parquet.crc", "README.md"):
        (tmp_path / note).write_text("-")
    assert read_source(str(tmp_path), ["a"]).column("a").to_pylist() == [
        "0.parquet",
        "1.pq",
        "part-00002",
    ]
    (tmp_path / entry).mkdir() if entry.endswith("/") else (tmp_path / entry).write_bytes(b"a\nx\n")
    with pytest.raises(InputError, match=re.escape(entry.rstrip("/"))):
        read_source(str(tmp_path), ["a"])


def test_a_parquet_file_that_lacks_a_column_gets_no_advice_about_commas(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "t.parquet")
    source = opened(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"^source lacks the declared column 'b'$"):
        check_header(source.name, ["a", "b"], source.form)
    with pytest.raises(InputError, match=r"^source lacks the declared column 'b'$"):
        source.table(["a", "b"])


@pytest.mark.parametrize("name", ["t.arrow", "t.xlsx", "t.csv", "t.parquet"])
def test_a_folder_is_read_as_parquet_whatever_its_name_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    pq.write_table(pa.table({"a": ["x"]}), folder / "0.parquet")
    assert read_source(str(folder), ["a"]).column("a").to_pylist() == ["x"]
    assert source_columns(str(folder), SourceFile(file=name)) == ("a",)


def test_a_source_that_was_written_to_has_another_state(tmp_path: Path) -> None:
    """Even if it was written back to what it was, with the time of before: what is digested is what is parsed."""
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n")
    source, times = opened(path), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    before, content = source.state(), b"".join(source.chunks())
    for written in (b"a,b\n3,4\n", b"a,b\n1,2\n"):
        time.sleep(0.02)  # longer than a tick of the file system's clock
        path.write_bytes(written)
        os.utime(path, ns=times)
        assert source.state() != before
    assert b"".join(source.chunks()) == content


@pytest.mark.parametrize("values", [[[1], [2]], [b"x", b"\xff"], [{"k": 1}, None]])
def test_columns_that_are_neither_text_nor_number_are_refused(tmp_path: Path, values: list) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "t.parquet")
    with pytest.raises(
        InputError, match="the column 'a' with a type that is neither text nor number nor date"
    ):
        read_source(str(tmp_path / "t.parquet"), ["a"])


def test_a_pipe_is_no_source(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(InputError, match="must be a file or a folder"):
        read_source(str(tmp_path / "t.csv"), ["a"])


def test_the_example_is_the_survey_of_the_design() -> None:
    assert read_source("example:affairs", ["age", "affairs"]).num_rows == 6366
    assert len(source_columns("example:affairs", SourceFile(file="example:affairs"))) == 9


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=8)


@given(st.lists(st.tuples(cells, cells), max_size=8))
@settings(deadline=None, max_examples=25)
def test_a_written_csv_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    """Every text survives the way through a file that the standard library wrote."""
    import csv

    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["a", "b"])
        writer.writerows(rows)
    table = read_source(str(path), ["a", "b"])
    assert (
        list(zip(table.column("a").to_pylist(), table.column("b").to_pylist(), strict=True)) == rows
    )


@pytest.mark.parametrize(
    "unit", ["row", {"column": "x", "max_records": 1}, {"column": "x", "join": True}]
)
@pytest.mark.parametrize("kind", [pa.null(), pa.large_string(), pa.string_view()], ids=str)
def test_texts_of_any_layout_are_prepared(tmp_path: Path, kind: pa.DataType, unit: object) -> None:
    """A column without a single value is all missing; long and viewed texts are texts, for every unit."""
    texts = [None, None] if pa.types.is_null(kind) else ["a", "7"]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": pa.array(texts, kind)}), path)
    kinds = {
        "category": {"domain": "private"},
        "number": {"bins": [0, 9]},
        "boolean": {},
        "date": {"bounds": ["2019-01-01", "2019-12-31"], "bins": "year"},
        "set": {"domain": "private", "max_values": 2},
    }
    raw = read_source(str(path), ["x"])
    for name, keys in kinds.items():
        config = configuration(columns={"c": {"type": name, **keys}}, privacy__unit=unit)
        table = pa.table({"c": raw.column("x"), "x": raw.column("x")})
        clean = prepare_rows(table, config).column("c")
        rows = 0 if unit != "row" and texts[0] is None else 2
        assert len(clean) == rows
        assert clean.null_count == (
            rows if texts[0] is None else {"category": 0, "set": 0, "number": 1}.get(name, 2)
        )
