"""A table is read from the midst of its file by declared numbers of lines, and its columns are called as declared."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.header_rows import HeaderRows
from marginweave.configuration.load import parse_configuration
from marginweave.runs.frames import as_parquet
from marginweave.sources.cut_lines import cut_lines
from marginweave.sources.header import names_of
from marginweave.sources.kinds import check_kind
from marginweave.sources.parts import parts_of
from marginweave.sources.sheet import sheet_names, workbooks_in_memory
from marginweave.sources.source import TableSource, check_header, check_rows, source_columns
from tests.support.configurations import configuration, raw

MARKER = "xq7marker"
CELLS = st.text("aé,\"'; 1", min_size=1, max_size=4).filter(str.strip)
NOTES = st.text("aé;1 ", max_size=6)


def sheet(path: Path, rows: Sequence[Sequence[Any]], **others: Sequence[Sequence[Any]]) -> str:
    """A workbook with the rows in a sheet `Sheet`, and other sheets by name."""
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in rows:
        book.active.append(list(row))
    for name, cells in others.items():
        added = book.create_sheet(name)
        for row in cells:
            added.append(list(row))
    book.save(path)
    return str(path)


def text(path: Path, rows: Sequence[Sequence[Any]], encoding: str = "utf-8") -> str:
    """A CSV file with the rows; one without a cell is an empty line."""
    content = io.StringIO(newline="")
    csv.writer(content, lineterminator="\r\n").writerows(rows)
    packed = content.getvalue().encode(encoding)
    path.write_bytes(gzip.compress(packed) if path.suffix == ".gz" else packed)
    return str(path)


def declared_encoding(encoding: str) -> Any:
    """The encoding as it is declared: UTF-8 may have a byte order mark."""
    return encoding.removesuffix("-sig")


@st.composite
def files(draw: Any) -> tuple[list[list[str]], dict[str, Any], list[list[str]]]:
    """The rows of a file, how its layout is declared, and the rows of its table, whose columns are a and b."""
    above = draw(st.lists(NOTES, max_size=3))
    below = draw(st.lists(NOTES.filter(str.strip), max_size=3))
    header: list[list[str]] = [["a", "b"]]
    declared: dict[str, Any] = {"skip": len(above), "footer": len(below)}
    if draw(st.booleans()):
        header = [["a", "b"], ["how old?", "how much, in €?"], ["q1", "q2"]]
        declared["header"] = {"rows": 3, "names": 1}
    table = draw(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=5))
    titles = [[note] if note.strip() else [] for note in above]
    notes = [[note] for note in below]
    return [*titles, *header, *table, *notes], declared, table


@settings(max_examples=60, deadline=None)
@given(
    files(),
    st.sampled_from(["t.csv", "t.csv.gz", "t.xlsx"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_a_table_comes_back_from_the_midst_of_its_file(
    tmp_path_factory: pytest.TempPathFactory, file: Any, name: str, encoding: str
) -> None:
    """In texts and sheets alike, whatever the lines above and below it hold."""
    rows, declared, table = file
    path = tmp_path_factory.mktemp("layout") / name
    place = sheet(path, rows) if name == "t.xlsx" else text(path, rows, encoding)
    form = SourceFile(file=name, encoding=declared_encoding(encoding), **declared)
    assert source_columns(place, form) == ("a", "b")
    check_header(place, ["b", "a"], form)
    check_rows(place, ["b", "a"], form)
    assert TableSource(place, form).table(["b", "a"]).to_pydict() == {
        "b": [row[1] for row in table],
        "a": [row[0] for row in table],
    }


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab", max_size=3), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(1, 5),
)
def test_lines_are_cut_by_their_numbers(
    lines: list[str], end: str, is_ended: bool, skip: int, footer: int, size: int
) -> None:
    """However the bytes arrive; of the footer's lines those count that are not empty."""
    content = end.join(lines) + (end if is_ended else "")
    expected = io.StringIO(content, newline="").readlines()[skip:]
    for _ in range(footer):
        while expected and not expected[-1].strip("\r\n"):
            expected.pop()
        if expected:
            expected.pop()
    stream = io.BytesIO(content.encode())

    class Slow:
        """A stream that returns a few bytes at a time."""

        def read(self, _: int) -> bytes:
            """Return the next bytes."""
            return stream.read(size)

    assert cut_lines(Slow(), skip, footer).read() == "".join(expected).encode()


def test_a_large_file_is_read_in_its_middle(tmp_path: Path) -> None:
    """Many blocks of pyarrow, quotes in the rows, and a footer that is cut whole."""
    rows = [[str(i), f"{i}, or\nmore"] for i in range(300_000)]
    path = text(
        tmp_path / "t.csv", [["title, of 2024"], [], ["n", "t"], *rows, ["Total", "7"], ["*"]]
    )
    source = TableSource(path, SourceFile(file="t.csv", skip=2, footer=2))
    table = source.table(["t", "n"])
    assert table.column("n").to_pylist() == [row[0] for row in rows]
    assert table.column("t").to_pylist() == [row[1] for row in rows]


def test_a_workbook_is_parsed_once_for_a_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside, all looks at a sheet share its rows, whichever sheet, and however far the first of them reads."""
    path = sheet(tmp_path / "t.xlsx", [["a", "b"], ["1", "2"], ["3", "4"]], wards=[["c"], ["5"]])
    opened: list[str] = []
    load = openpyxl.load_workbook
    monkeypatch.setattr(
        openpyxl,
        "load_workbook",
        lambda *given, **keys: (opened.append("x"), load(*given, **keys))[1],
    )
    forms = [SourceFile(file="t.xlsx", sheet=name) for name in sheet_names(path, parts_of(path)[0])]
    opened.clear()
    with workbooks_in_memory():
        for form, names, columns in (
            (forms[0], ("a", "b"), {"b": ["2", "4"]}),
            (forms[1], ("c",), {"c": ["5"]}),
        ):
            for _ in range(2):
                assert source_columns(path, form) == names
                assert TableSource(path, form).table([*columns]).to_pydict() == columns
        assert len(opened) == 1
    source_columns(path, forms[0])
    assert len(opened) == 2


def test_a_frame_that_is_not_there_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"does not exist: write the frame there in Python, frame\.to_parquet"
    ):
        source_columns(str(tmp_path / "frame.parquet"), SourceFile(file="frame.parquet"))


@pytest.mark.parametrize(
    ("rows", "header", "names"),
    [
        ([["a ", " b"]], 1, ("a", "b")),
        ([["visit", "", "home"], ["day", "cost", "size"]], 2, ("visit day", "visit cost", "home size")),
        ([["id", "", "visit", ""], ["", "sex", "day", "cost"]], 2, ("id", "sex", "visit day", "visit cost")),
        ([["", "visit"], ["id", ""]], 2, ("id", "visit")),
        ([["a", ""], ["b", "c"], ["d", "e"]], 3, ("a b d", "a c e")),
        ([["a", "b"], ["how?", "why?"]], {"rows": 2, "names": 1}, ("a", "b")),
        ([["how?", "why?"], ["a", "b"]], {"rows": 2, "names": 2}, ("a", "b")),
    ],
)  # fmt: skip
def test_names_of_several_rows(rows: list, header: Any, names: tuple[str, ...]) -> None:
    """A text above others belongs to the empty cells on its right, as in a merged cell, unless it has nothing below it."""
    form = SourceFile(file="t.csv", header=header)
    assert names_of(rows, form.header) == names


@pytest.mark.parametrize("name", ["t.csv", "t.xlsx", "t.parquet", "t.feather"])
def test_columns_are_renamed(tmp_path: Path, name: str) -> None:
    """By name or place, also where names are swapped; of a file without places in common, by name."""
    rows = [["a", "b", "c"], ["1", "2", "3"], ["4", "5", "6"]]
    path = tmp_path / name
    columns = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    if name == "t.csv":
        text(path, rows)
    elif name == "t.xlsx":
        sheet(path, rows)
    elif name == "t.parquet":
        pq.write_table(pa.table(columns), path)
    else:
        feather.write_feather(pa.table(columns), path)
    form = SourceFile(file=name, rename={"a": "b", "b": "a", "column 3": "ward"})
    assert source_columns(str(path), form) == ("b", "a", "ward")
    check_header(str(path), ["ward", "a"], form, ["a"])
    source = TableSource(str(path), form)
    expected = {"ward": ["3", "6"], "a": ["2", "5"], "b": ["1", "4"]}
    assert source.table(["ward", "a", "b"]).to_pydict() == expected
    assert set(source.types(["ward", "c"])) <= {"ward"}
    for lacking in ("c", "column 3"):
        with pytest.raises(InputError, match=f"lacks the declared column '{lacking}'"):
            source.table([lacking])


def test_parts_order_their_columns_as_they_like(tmp_path: Path) -> None:
    """A place is one of the first part; the column with that name there has the new name in all parts."""
    pq.write_table(pa.table({"a": ["1"], "b": [2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [4], "a": ["3"]}), tmp_path / "2.parquet")
    form = SourceFile(file="parts", rename={"column 1": "b", "b": "a"})
    source = TableSource(str(tmp_path), form)
    assert source.table(["a", "b"]).to_pydict() == {"a": [2, 4], "b": ["1", "3"]}
    assert source.types(["a", "b", "absent"]) == {"a": "int64", "b": "string"}


def test_a_column_without_a_usable_name_gets_one_by_its_place(tmp_path: Path) -> None:
    """One of two of the same name, too, and one beyond the last name of a sheet."""
    rows = [["a", "", "a", None], ["1", "2", "3", "4"]]
    path = sheet(tmp_path / "t.xlsx", rows)
    changes = {"column 2": "b", "column 3": "c", "column 4": "d"}
    source = TableSource(path, SourceFile(file="t.xlsx", rename=changes))
    assert source.table(["a", "b", "c", "d"]).to_pydict() == {
        "a": ["1"],
        "b": ["2"],
        "c": ["3"],
        "d": ["4"],
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": "b"}, "lacks the column 'x' of rename"),
        ({"column 4": "b"}, "lacks the column 'column 4' of rename"),
        (
            {"a": "b"},
            "has the column 'a' of rename more than once: write its place, such as column 1",
        ),
    ],
)
def test_a_new_name_of_no_column_is_refused(tmp_path: Path, changes: dict, words: str) -> None:
    """What the header has instead is not repeated."""
    path = text(tmp_path / "t.csv", [["a", MARKER, "a"], ["1", "2", "3"]])
    with pytest.raises(InputError, match=words) as by_header:
        check_header(path, ["b"], SourceFile(file="t.csv", rename=changes))
    assert MARKER not in str(by_header.value)


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "example:affairs", "folder"])
@pytest.mark.parametrize("key", ["skip", "header", "footer", "sheet"])
def test_a_key_without_a_meaning_for_the_kind_is_refused(name: str, key: str) -> None:
    form = SourceFile.model_validate({"file": name, key: "S" if key == "sheet" else 2})
    with pytest.raises(InputError, match=rf"source.{key} has no meaning for {name}.*Delete {key}$"):
        check_kind(name, form)


def test_a_text_has_no_sheets_and_a_frame_no_lines() -> None:
    """The refusal says what to delete."""
    with pytest.raises(InputError, match="only a workbook"):
        check_kind("t.csv", SourceFile(file="t.csv", sheet="S"))
    declared = configuration(source={"file": "t.csv", "skip": 2, "rename": {"x": "y"}})
    with pytest.raises(InputError, match="source has skip, rename, and a frame has only columns"):
        as_parquet(pa.table({"a": [1]}), declared)


@pytest.mark.parametrize(
    ("form", "content", "words"),
    [
        ({"skip": 2}, f"t\n\na,b\n1,2\n{MARKER}\n", "line 5 has 1 field, the header has 2$"),
        ({"header": 2}, f"a,b\nc,d\n1,2\n{MARKER}\n", "line 4 has 1 field, the header has 2$"),
        ({"skip": 1}, f't\na,b\n1,2\n"{MARKER},2\n', "quote that is never closed, in the row that begins in line 4"),
        ({}, f"a,b\n1,{MARKER},\n", "line 2 has 3 fields, the header has 2. The line ends with a delimiter"),
        ({"header": 2}, "a,b\nc\n1,2\n", "a header whose rows have different numbers of fields; `skip` is"),
        ({"header": 2}, "a,b\n\n1,2\n", "has no header"),
        ({"skip": 3}, "a,b\n1,2\n", "has no header: the line after those of skip"),
        ({"footer": 3}, "a,b\n1,2\n", "has no header"),
        ({"skip": 1}, f"{MARKER},b\nx,y\n1,2\n", "lacks the declared column 'b'; the line after those of skip"),
    ],
)  # fmt: skip
def test_a_fault_has_its_line_in_the_file(
    tmp_path: Path, form: dict[str, Any], content: str, words: str
) -> None:
    """Not in the part that is read."""
    path = tmp_path / "t.csv"
    path.write_text(content)
    source = SourceFile(file="t.csv", **form)

    def read() -> None:
        columns = source_columns(str(path), source)
        check_header(str(path), [columns[0]], source)
        check_rows(str(path), [columns[0]], source)
        check_header(str(path), [columns[0], "b"], source)

    with pytest.raises(InputError, match=words) as refusal_of_rows:
        read()
    assert MARKER not in str(refusal_of_rows.value)


def test_a_sheet_is_named_where_there_are_several(tmp_path: Path) -> None:
    """A row beyond the last name is named by its number in the sheet, unless it is below the table."""
    rows = [["note"], [], ["a"], ["1"], ["2", MARKER], ["Total", "9"]]
    path = sheet(tmp_path / "t.xlsx", [["x"]], wards=rows)
    form = SourceFile(file="t.xlsx", sheet="wards", skip=2, footer=2)
    assert TableSource(path, form).table(["a"]).to_pydict() == {"a": ["1"]}
    shorter = form.model_copy(update={"footer": 1})
    with pytest.raises(InputError, match="has a value in row 5 beyond") as by_row:
        TableSource(path, shorter).table(["a"])
    assert MARKER not in str(by_row.value)
    with pytest.raises(InputError, match="lacks the declared column 'a'; its first row must hold"):
        check_header(path, ["a"], form.model_copy(update={"skip": 0}))
    with pytest.raises(InputError, match="has no visible sheet 'ward'"):
        source_columns(path, form.model_copy(update={"sheet": "ward"}))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"skip": -1}, r"source.skip \(-1\) must be at least 0"),
        ({"footer": 1.5}, r"source.footer \(1.5\) must be a whole number"),
        ({"header": 0}, r"source.header.rows \(0\) must be at least 1"),
        ({"header": {"rows": 2, "names": 3}}, "source.header has names in row 3, and only 2 rows"),
        ({"rename": {"a": "c", "b": "c"}}, "source has two columns of the same name in rename"),
        ({"rename": ["a"]}, r"source.rename .* must be a mapping, such as"),
        ({"confirm": True}, "source was guessed from the file and waits for confirmation"),
        ({"skips": 2}, "unknown key source.skips; did you mean skip"),
    ],
)
def test_what_cannot_be_declared(source: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_configuration(raw(source={"file": "t.csv", **source}))


def test_what_is_not_declared_is_not_written() -> None:
    """A configuration without these keys has the canonical form that it had before there were any."""
    usual = SourceFile(file="t.csv", skip=0, header=HeaderRows(), footer=0, rename=None)
    assert usual.model_dump() == "t.csv"
    form = SourceFile(file="t.csv", skip=2, header={"rows": 3, "names": 1}, rename={"a": "b"})  # pyright: ignore[reportArgumentType]
    assert form.model_dump() == {
        "file": "t.csv",
        "encoding": "utf-8",
        "skip": 2,
        "header": {"rows": 3, "names": 1},
        "rename": {"a": "b"},
    }
    assert SourceFile.model_validate(form.model_dump()) == form
