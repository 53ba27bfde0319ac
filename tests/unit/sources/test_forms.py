"""The same table comes out of every form that people have it in, and what is not meant is refused without its text."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.base.text_files import recognise_delimiter, recognise_encoding
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.number_texts import MARKS, USUAL, NumberForm
from marginweave.configuration.values import number
from marginweave.drafts.recognise import recognise
from marginweave.prepare.clean import clean_table
from marginweave.runs.frames import as_parquet
from marginweave.sources.kinds import check_kind
from marginweave.sources.number_cells import NumberTexts, plain_numbers
from marginweave.sources.source import TableSource, check_header, check_rows, source_columns
from tests.support.configurations import configuration
from tests.support.source_tests import MARKER, Row, SourceTests, Write, table_of

FORMS = [
    NumberForm(decimal, thousands)
    for decimal in ("dot", "comma")
    for thousands in (None, "dot", "comma", "space", "apostrophe")
    if decimal != thousands
]
BLANK_ROWS: list[Row] = [("Köln", "1.234,5"), ("Bonn", "-0,25"), ("Köln", "77"), ("", "")]


def _check(source: str, columns: list[str], form: SourceFile) -> None:
    check_header(source, columns, form)
    check_rows(source, columns, form)


@st.composite
def spelled(draw: Callable[..., Any]) -> tuple[NumberForm, str, Decimal]:
    """A form, a number in it, with or without its marks between thousands, and the number."""
    form = draw(st.sampled_from(FORMS))
    integer = draw(st.integers(0, 10**15))
    digits = draw(st.text("0123456789", max_size=6))
    mark = draw(st.sampled_from(["", *(MARKS[form.thousands] if form.thousands else "")]))
    text = draw(st.sampled_from(["", "-", "+"])) + f"{integer:,}".replace(",", mark)
    plain = text.replace(mark, "") if mark else text
    tail = f".{digits}" if digits else ""
    return form, text + tail.replace(".", MARKS[form.decimal]), Decimal(plain + tail)


def read(form: NumberForm, texts: Sequence[str], missing: Sequence[str] = ()) -> list[str]:
    """The cells of a column of these texts, as a release reads them."""
    table = pa.table({"x": pa.array(texts, pa.string()).dictionary_encode()})
    cells: list[str] = (
        plain_numbers(table, {"x": NumberTexts(form, missing)}).column("x").to_pylist()
    )
    return cells


@settings(max_examples=300, deadline=None)
@given(spelled())
def test_a_number_in_any_form_is_the_number(spelling: tuple[NumberForm, str, Decimal]) -> None:
    """One at a time and many at once alike."""
    form, text, value = spelling
    plain = form.plain(f" {text} ")
    assert plain is not None
    assert number(plain) == value
    assert read(form, [text]) == [plain]


UNITS = ["kg", "%", "$", "€", "CHF", "Rs.", "m2", "kg/m²", "µg", "e", "E-Mark", "x'y"]


@settings(max_examples=500, deadline=None)
@given(spelled(), st.sampled_from(UNITS), st.sampled_from(["", *MARKS["space"]]), st.data())
def test_a_number_with_a_unit_or_in_brackets_is_the_number(
    spelling: tuple[NumberForm, str, Decimal], unit: str, space: str, data: st.DataObject
) -> None:
    """Behind the digits or before them, in brackets or not; without the unit, or with another one, it is none."""
    marks, text, value = spelling
    form = replace(marks, unit=unit, brackets=True)
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    ways = [(f"{text}{space}{unit}", value), (f"({digits}{space}{unit})", -abs(value))]
    ways.append((f"({digits}){space}{unit}", -abs(value)))
    if not unit[-1].isdigit():
        ways += [
            (f"{unit}{space}{text}", value),
            (f"{sign}{unit}{space}{digits}", value),
            (f"({unit}{space}{digits})", -abs(value)),
            (f"{unit}{space}({digits})", -abs(value)),
        ]
    written, meant = data.draw(st.sampled_from(ways))
    plain = form.plain(written)
    assert plain is not None
    assert number(plain) == meant
    assert read(form, [written]) == [plain]
    other = replace(form, unit="lb")
    without_brackets = replace(form, brackets=False)
    for unread in (text, f"({digits})", f"{written} lb", f"{unit}{written}{unit}"):
        assert form.plain(unread) is None
        (cell,) = read(form, [unread])
        assert number(cell) is None
    assert other.plain(written) is None
    assert (without_brackets.plain(written) is None) == ("(" in written)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(FORMS), st.decimals(-(10**12), 10**12, places=2), st.sampled_from(UNITS))
def test_what_is_spelled_is_read_again(marks: NumberForm, value: Decimal, unit: str) -> None:
    form = replace(marks, unit=unit)
    assert number(form.plain(f"{form.spelled(format(value, 'f'))} {unit}") or "") == value


OF_MARKS = st.text("0123456789.,' \u00a0+-eE()$kg%", max_size=9)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(FORMS),
    st.sampled_from(["", "kg", "$", "%", "e"]),
    st.booleans(),
    st.lists(OF_MARKS, max_size=5),
    OF_MARKS,
)
def test_a_cell_is_read_whatever_other_rows_hold(
    marks: NumberForm, unit: str, brackets: bool, rows: list[str], row: str
) -> None:
    """read(R + r) is read(R) and the cell of r: preparation is 1-stable."""
    form = replace(marks, unit=unit, brackets=brackets)
    assert read(form, [*rows, row]) == [*read(form, rows), *read(form, [row])]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*FORMS, NumberForm(unit="kg", brackets=True), NumberForm(unit="e")]), OF_MARKS
)
@example(NumberForm("comma", "dot"), "1.23")
@example(NumberForm("comma", "dot"), "0.123")
@example(NumberForm("comma"), "3.5")
@example(NumberForm("dot", "comma"), "1,2345")
@example(NumberForm(unit="Rs"), "Rs.500")
@example(NumberForm(unit="m2"), "m25")
@example(NumberForm(unit="e"), "1e5")
def test_what_is_no_number_in_the_form_is_read_as_none(form: NumberForm, text: str) -> None:
    """Above all not as another one: 1.23 is not 1.23 where the dot stands between thousands."""
    (cell,) = read(form, [text])
    plain = form.plain(text)
    assert (number(cell.strip()) is None) == (plain is None)
    assert plain in {None, cell}
    # one way to read it at most
    matches = [reading for reading, _ in form.readings if re.fullmatch(reading, text.strip())]
    assert len(matches) <= 1
    # it means "no value"
    assert read(form, [text], [text]) == [text]
    table = pa.table({"x": [text]})
    assert plain_numbers(table, {}).column("x").to_pylist() == [text]


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        ("Rs", "Rs.500", None),
        ("Rs.", "Rs.500", "500"),
        ("Rs", "Rs 500", "500"),
        ("$", "$.50", ".50"),
        ("m2", "m25", None),
        ("m2", "5 m2", "5"),
        ("e", "1e5", None),
        ("e", "1e", "1"),
        ("kg", "70", None),
        ("kg", "70  kg", None),
        ("kg", "70 KG", None),
        ("kg", "(70 kg)", None),
        ("%", "12 %", "12"),
    ],
)
def test_a_unit_is_no_part_of_the_number(unit: str, text: str, value: str | None) -> None:
    """Nor is a mark behind it: Rs.500 is no half of a rupee."""
    assert NumberForm(unit=unit).plain(text) == value


def test_a_column_can_have_a_spelling_that_is_not_the_sources(tmp_path: Path) -> None:
    """With units and brackets; what is spelled otherwise is not as declared, and the texts of "no value" are."""
    path = tmp_path / "t.csv"
    path.write_text(
        'pay,weight,share\n"$1,234.50",70 kg,12 %\n($3),71kg,3.5%\n$9,155 lb,4\n-,72,?\n'
    )
    number_of = {"type": "number", "bounds": [-10, 2000], "bins": 3}
    declared = configuration(
        source="t.csv",
        columns={
            "pay": {
                **number_of,
                "text": {"unit": "$", "thousands": "comma", "brackets": True},
                "missing": ["-"],
            },
            "weight": {**number_of, "text": {"unit": "kg"}, "missing": []},
            "share": {**number_of, "text": {"unit": "%"}, "missing": ["?"]},
        },
    )
    columns = ["pay", "weight", "share"]
    clean = clean_table(TableSource.of(str(path), declared).table(columns), declared)
    assert clean.column("pay").to_pylist() == [1234.5, -3, 9, None]
    assert clean.column("weight").to_pylist() == [70, 71, None, None]
    assert clean.column("share").to_pylist() == [12, 3.5, None, None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({}, "has nothing; declare unit"),
        ({"brackets": False}, "has nothing; declare unit"),
        ({"unit": ""}, "the text beside every number"),
        ({"unit": "5 kg"}, "begins with no digit"),
        ({"unit": "-kg"}, "begins with no digit"),
        ({"unit": "e5"}, "begins with no digit"),
        ({"unit": "kg (net)"}, "has no brackets"),
        ({"unit": "k" * 21}, "at most 20 characters"),
        ({"thousands": "dot"}, "the dot before decimals and between thousands"),
        ({"units": "kg"}, "units"),
    ],
)
def test_a_spelling_that_could_not_be_read_is_refused(text: dict[str, Any], words: str) -> None:
    column = {"type": "number", "bounds": [0, 9], "bins": 3, "text": text}
    with pytest.raises(InputError, match=re.escape(words)):
        configuration(columns={"x": column})


def test_a_number_column_follows_the_form_of_the_source_and_no_other(tmp_path: Path) -> None:
    """Missing codes match as declared, by text or by number; categories stay as they are written."""
    path = tmp_path / "t.csv"
    path.write_text("n;c\n1.234,5;1,5\n-9,0;2\n0,50;2\nn/a;1,5\n3.5;2\n999.999;2\n")
    declared = configuration(
        source={"file": "t.csv", "delimiter": "semicolon", "decimal": "comma", "thousands": "dot"},
        columns={
            "n": {
                "type": "number",
                "bounds": [0, 5000],
                "bins": 5,
                "missing": ["-9", "n/a", "999.999"],
            },
            "c": {"type": "category", "values": ["1,5", "2"]},
        },
    )
    clean = clean_table(TableSource.of(str(path), declared).table(declared.source_names), declared)
    assert clean.column("n").to_pylist() == [1234.5, None, 0.5, None, None, None]
    assert clean.column("c").to_pylist() == ["1,5", "2", "2", "1,5", "2", "2"]


SEMICOLON: dict[str, Any] = {"delimiter": "semicolon"}
TEXTS: dict[str, tuple[Callable[[str], bytes], dict[str, Any]]] = {
    "plain.csv": (str.encode, SEMICOLON),
    "marked.csv": (lambda text: text.encode("utf-8-sig"), SEMICOLON),
    "wide.csv": (lambda text: text.encode("utf-16"), {**SEMICOLON, "encoding": "utf-16"}),
    "big.csv": (
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
        {**SEMICOLON, "encoding": "utf-16"},
    ),
    "west.csv": (lambda text: text.encode("cp1252"), {**SEMICOLON, "encoding": "windows-1252"}),
    "one.csv.gz": (lambda text: gzip.compress(text.encode()), SEMICOLON),
    "two.csv.gz": (
        lambda text: gzip.compress(text[:12].encode()) + gzip.compress(text[12:].encode()),
        SEMICOLON,
    ),
    "z.csv.zst": (
        lambda text: bytes(pa.Codec("zstd").compress(text.encode("utf-16"), asbytes=True)),
        {**SEMICOLON, "encoding": "utf-16"},
    ),
    "t.txt": (str.encode, {"delimiter": "tab"}),
    "t.tsv.gz": (lambda text: gzip.compress(text.encode()), {}),
}


class TestText(SourceTests):
    """Texts in every encoding, compression and delimiter."""

    @pytest.fixture(params=TEXTS)
    def write(self, request: pytest.FixtureRequest, tmp_path: Path) -> Write:
        encode, form = TEXTS[request.param]
        declared = SourceFile(file=request.param, **form)

        def write(names: Sequence[str], rows: Sequence[Row]) -> TableSource:
            text = io.StringIO(newline="")
            delimiter = ";" if form.get("delimiter") == "semicolon" else "\t"
            csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows([names, *rows])
            (tmp_path / request.param).write_bytes(encode(text.getvalue()))
            return TableSource(str(tmp_path / request.param), declared)

        return write

    def test_it_is_recognised_as_it_is_declared(self, write: Write) -> None:
        """A row without any text is one, too."""
        source = write(("town", "cost"), BLANK_ROWS)
        assert (
            list(zip(*source.table(["town", "cost"]).to_pydict().values(), strict=True))
            == BLANK_ROWS
        )
        numbers = {"decimal": "comma", "thousands": "dot"}
        expected = source.form.model_copy(update=numbers)
        assert recognise(source.name, SourceFile(file=source.form.file), encoding=True) == expected


class TestParquet(SourceTests):
    """A file, and a folder of parts."""

    @pytest.fixture(params=[False, True], ids=["file", "folder"])
    def write(self, request: pytest.FixtureRequest, tmp_path: Path) -> Write:
        place = tmp_path / ("table" if request.param else "t.parquet")

        def write(names: Sequence[str], rows: Sequence[Row]) -> TableSource:
            table = table_of(names, rows)
            if request.param:
                place.mkdir(exist_ok=True)
                for number, part in enumerate((table.slice(0, 1), table.slice(1))):
                    pq.write_table(part, place / f"{number}.parquet")
            else:
                pq.write_table(table, place)
            return TableSource(str(place), SourceFile(file=place.name))

        return write


class TestArrow(SourceTests):
    """Arrow's files, by their three endings."""

    @pytest.fixture(params=["t.feather", "t.arrow", "t.ipc"])
    def write(self, request: pytest.FixtureRequest, tmp_path: Path) -> Write:
        place = tmp_path / request.param

        def write(names: Sequence[str], rows: Sequence[Row]) -> TableSource:
            table = table_of(names, rows)
            with pa.OSFile(str(place), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            return TableSource(str(place), SourceFile(file=place.name))

        return write


class TestSheet(SourceTests):
    """A workbook with one sheet."""

    @pytest.fixture
    def write(self, tmp_path: Path) -> Write:
        def write(names: Sequence[str], rows: Sequence[Row]) -> TableSource:
            return TableSource(
                sheet(tmp_path / "t.xlsx", [names, *rows]), SourceFile(file="t.xlsx")
            )

        return write


class TestFrame(SourceTests):
    """A frame of pandas, and a table of Arrow, as a notebook has them in memory: its file stands for it."""

    @pytest.fixture(params=[False, True], ids=["pandas", "arrow"])
    def write(self, request: pytest.FixtureRequest, tmp_path: Path) -> Write:
        def write(names: Sequence[str], rows: Sequence[Row]) -> TableSource:
            table = table_of(names, rows)
            frame = table if request.param else pd.DataFrame(rows, columns=list(names))
            columns = {name: {"type": "category", "values": ["x"]} for name in names}
            (tmp_path / "frame.parquet").write_bytes(
                as_parquet(frame, configuration(columns=columns))[0]
            )
            return TableSource(str(tmp_path / "frame.parquet"), SourceFile(file="frame.parquet"))

        return write


def sheet(path: Path, rows: Sequence[Sequence[Any]], others: int = 0) -> str:
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in rows:
        book.active.append(list(row))
    for i in range(others):
        book.create_sheet(f"s{i}")
    book.save(path)
    return str(path)


def test_a_sheet_is_a_table_of_texts(tmp_path: Path) -> None:
    """Numbers in the form of the source, dates in ISO 8601; rows and columns without anything are none."""
    header = ["n", None, " d ", "b", "t", None]
    rows = [
        [1.5, "x", datetime.fromisoformat("2020-02-29"), True, "a;b", None],
        [None] * 6,
        [7, None, datetime.fromisoformat("2020-02-29T12:30"), False, None],
        ["1,25", None, date(1999, 12, 31), None, "01"],
    ]
    path = sheet(tmp_path / "t.xlsx", [header, *rows])
    assert source_columns(path, SourceFile(file="t.xlsx")) == ("n", "", "d", "b", "t")
    expected = {
        "t": ["a;b", "", "01"],
        "n": ["1,5", "7", "1,25"],
        "d": ["2020-02-29", "2020-02-29T12:30:00", "1999-12-31"],
        "b": ["true", "false", ""],
    }
    form = SourceFile(file="t.xlsx", decimal="comma")
    assert TableSource(path, form).table([*expected]).to_pydict() == expected
    assert recognise(path, SourceFile(file="t.xlsx"), encoding=True) == SourceFile(file="t.xlsx")
    empty = sheet(tmp_path / "empty.xlsx", [["a", "b"]])
    assert TableSource(empty, SourceFile(file="e.xlsx")).table(["b"]).to_pydict() == {"b": []}


@pytest.mark.parametrize(
    ("rows", "others", "words"),
    [
        ([["a"], [1]], 2, "has 3 visible sheets; say which has the table"),
        ([["a"], [1, None], [2, MARKER]], 0, "has a value in row 3 beyond the last column"),
        ([[], ["a"]], 0, "has no header: its first row"),
    ],
)
def test_faults_of_a_sheet(tmp_path: Path, rows: list, others: int, words: str) -> None:
    path = sheet(tmp_path / "t.xlsx", rows, others)
    with pytest.raises(InputError, match=words) as refusal:
        _check(path, ["a"], SourceFile(file="t.xlsx"))
    assert MARKER not in str(refusal.value)


def test_arrow_files_are_read_as_parquet_is(tmp_path: Path) -> None:
    """Categories of frames, dates and gaps included; batches are cut to what fits memory."""
    table = pa.table(
        {
            "n": pa.array([1.5, None, 3.0] * 100_000),
            "c": pa.array(["a", "b", None] * 100_000).dictionary_encode(),
            "k": pa.array([1, 2, None] * 100_000).dictionary_encode(),
            "d": pa.array([date(2020, 1, 1), None, date(2020, 1, 2)] * 100_000),
        }
    )
    for name, compression in (("t.feather", "lz4"), ("t.arrow", "uncompressed"), ("t.ipc", "zstd")):
        feather.write_feather(
            table, str(tmp_path / name), compression=compression, chunksize=300_000
        )
    pq.write_table(table, tmp_path / "t.parquet")
    columns = ["d", "c", "k", "n"]
    expected = TableSource(str(tmp_path / "t.parquet"), SourceFile(file="t.parquet")).table(columns)
    for name in ("t.feather", "t.arrow", "t.ipc"):
        source = TableSource(str(tmp_path / name), SourceFile(file=name))
        assert source_columns(source.name, source.form) == ("n", "c", "k", "d")
        assert source.table(columns) == expected
        assert max(piece.num_rows for piece in source.tables(columns)) <= 1 << 17
    (tmp_path / "bad.feather").write_bytes(b"FEA1 of version 1")
    with pytest.raises(InputError, match="is no Arrow file"):
        source_columns(str(tmp_path / "bad.feather"), SourceFile(file="bad.feather"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", f"a;b\n1;2\n{MARKER},5;3\n".encode(), r"lacks the declared column.*more likely the semicolon"),
        ("t.csv", f"a,b\n1,2\n{MARKER}\n3,4\n".encode(), r"line 3 has 1 field, the header has 2$"),
        ("t.csv", f'a,b\n1,"x\r\ny"\n"{MARKER}\n",2,"z\nz"\n'.encode(), r"line 4 has 3 fields, the header has 2$"),
        ("t.csv", f"a,b|c\n1|2\n3,{MARKER},7|4\n".encode(), r"line 2 has 1 field, .* more likely the pipe: source"),
        ("t.csv", f"a,b\n1,{MARKER}é\n".encode("cp1252"), r"must be UTF-8; .*encoding: windows-1252\}"),
        ("t.csv", f"a,b\n1,{MARKER}\n".encode("utf-16"), r"must be UTF-8; .*encoding: utf-16\}"),
        ("t.csv", bytes(range(256)), "must be UTF-8; it is no text"),
        ("t.csv.gz", gzip.compress(MARKER.encode() * 999, mtime=0)[:-9], "its compression is damaged, or it is not whole"),
        ("t.csv.zst", b"a,b\n1,2\n", "its compression is damaged, or it is not whole"),
    ],
)  # fmt: skip
def test_a_fault_has_its_place_and_no_text(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as refusal:
        _check(str(path), ["a"], SourceFile(file=name))
    assert MARKER not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t.xls", r"is of a kind that is not supported \(\.xls\): save it as \.csv"),
        ("t.sav", "not supported"),
        ("t.zip", "not supported"),
        ("t.json", "not supported"),
        ("s3://tables/t.ods", "not supported"),
        ("t.parquet.gz", "is compressed, which only text files can be"),
        ("t.txt", "needs its delimiter declared"),
        ("t.txt.gz", "needs its delimiter declared"),
    ],
)
def test_another_kind_is_refused_by_its_name(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_kind(name, SourceFile(file=name))
    if not name.endswith((".xls", ".ods", ".gz")):
        check_kind(name, SourceFile(file=name, delimiter="tab"))


@pytest.mark.parametrize(
    "name",
    ["visits", "visits.2024", "t.CSV", "t.pq", "t.csv.zst", "s3://tables/part-0.v1_2", "example:x"],
)
def test_what_can_be_read_is_not_refused(name: str) -> None:
    check_kind(name, SourceFile(file=name))


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ("n\n1.5\n2\n", USUAL),
        ("n\n1.234\n", USUAL),
        ('n,m\n"1,234",1\n"12,345",2\n', NumberForm("dot", "comma")),
        ("n;m\n1,234;1\n12,345;2\n", NumberForm("comma")),
        ("n;m\n1.234;1\n1,5;2\n", NumberForm("comma", "dot")),
        ("n;m\n1 234,5;1\n", NumberForm("comma", "space")),
        ("n;m\n1'234.5;1\n", NumberForm("dot", "apostrophe")),
        ("n;m\n1,5;x\nNA;y\nunknown;z\n", NumberForm("comma")),
        ("n;m\n1.5;1\nx;2\ny;3\n", USUAL),
        ("d;m\n01.02.2020;1\n11.12.2021;2\n", USUAL),
    ],
)
def test_the_marks_of_numbers_are_recognised(
    tmp_path: Path, content: str, form: NumberForm
) -> None:
    (tmp_path / "t.csv").write_text(content)
    assert (
        recognise(str(tmp_path / "t.csv"), SourceFile(file="t.csv"), encoding=True).numbers == form
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.text("aé.5 ", max_size=4), min_size=2, max_size=2), min_size=1, max_size=5
    ),
    st.sampled_from(",;\t|"),
)
def test_a_delimiter_that_cuts_all_rows_alike_is_found(rows: list, delimiter: str) -> None:
    """In part of a file, too, whose last row is cut off."""
    text = "".join(f"{delimiter.join(row)}\n" for row in [["a", "b"], *rows])
    found = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}[delimiter]
    assert recognise_delimiter(text, is_complete=True) == found
    assert recognise_delimiter(text + "x", is_complete=False) == found


@settings(max_examples=60, deadline=None)
@given(
    st.text("aé€ß\n;5", min_size=1),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    st.integers(1, 5),
)
def test_an_encoding_that_is_recognised_gives_back_the_text(
    text: str, encoding: str, size: int
) -> None:
    content = text.encode(encoding)
    found = recognise_encoding(content[i : i + 2 * size] for i in range(0, len(content), 2 * size))
    if encoding != "cp1252":  # some texts in it are UTF-8, too
        assert found == encoding.removesuffix("-sig")
    assert (
        content.decode({"utf-8": "utf-8-sig"}.get(str(found), str(found))) == text
        or encoding == "cp1252"
    )
