"""Python's strict reader looks at quotes, in any encoding that has ASCII in it; pyarrow reads nothing that it refuses."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.sources import text_source
from marginweave.sources.long_cells import MANY_BREAKS, MANY_DELIMITERS
from marginweave.sources.source import TableSource
from marginweave.sources.text_source import check_quotes_and_widths

PIECES = st.lists(
    st.sampled_from(['"', '""', ",", ";", "\n", "\r\n", "\r", "x", " ", "é", '"x,\n"']), max_size=24
)


def refused(content: bytes, delimiter: str) -> bool:
    try:
        check_quotes_and_widths(io.BytesIO(content), delimiter)
    except InputError:
        return True
    return False


def refused_by_reference(text: str, delimiter: str) -> bool:
    try:
        list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return True
    return False


@settings(max_examples=125, deadline=None)
@given(PIECES, st.sampled_from([",", ";"]))
@example(list('a,b\n1,"open\n2,x\n7,5" tube\n'), ",")
@example(list('a,b\n1,"x"'), ",")
@example(list('5" pipe,1\n'), ",")
def test_refused_is_what_a_strict_reader_refuses(pieces: list[str], delimiter: str) -> None:
    text = "".join(pieces)
    assert refused(text.encode(), delimiter) == refused_by_reference(text, delimiter)


def line_of_another_width(text: str) -> int | None:
    """Return the line on which the first row begins that has not 2 fields; None where there is none."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    for row in rows:
        if row and len(row) != 2:
            return line
        line = rows.line_num + 1
    return None


@settings(max_examples=300, deadline=None)
@given(PIECES)
@example(list("1,2\n\n\r3,4,5\n"))
@example(['"x,\n"', ",1\n", "7"])
def test_cells_are_those_of_a_strict_reader_and_a_row_of_another_width_has_its_line(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str]
) -> None:
    """Whether or not there is a quote in the file."""
    text = "a,b\n" + "".join(pieces)
    path = tmp_path_factory.getbasetemp() / "quotes.csv"
    path.write_bytes(text.encode())
    source = TableSource(str(path), SourceFile(file=path.name))
    line = None
    if not refused_by_reference(text, ","):
        line = line_of_another_width(text)
        if line is None:
            rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row][1:]
            assert source.table(["a", "b"]).to_pydict() == {
                "a": [row[0] for row in rows],
                "b": [row[1] for row in rows],
            }
            return
    with pytest.raises(InputError, match="quote" if line is None else f"line {line} has "):
        source.table(["a", "b"])


def test_a_file_without_a_quote_is_read_by_pyarrow_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes half the time."""
    monkeypatch.setattr(
        text_source, "check_quotes_and_widths", lambda *_: pytest.fail("read by Python's reader")
    )
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,5' pipe\n")
    assert TableSource(str(path), SourceFile(file=path.name)).table(["b"]).to_pydict() == {
        "b": ["5' pipe"]
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('1,"x', "never closed, in the row that begins in line 1$"),
        ('a,b\n1,"x\ny"\n2,"x\n\n', "never closed, in the row that begins in line 4$"),
        ('1,"x"y', "closed inside a field, in the row that begins in line 1;"),
        ('a,b\n\n1,"x\n2,y\n3,"y', "closed inside a field, in the row that begins in line 3;"),
        (f'1\n1,"{"x" * 2**24}', "row of more than 8 MiB, or a quote that .*, from line 2 on$"),
    ],
)
def test_all_faults_are_told_apart(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_quotes_and_widths(io.BytesIO(text.encode()), ",")


BREAKS = st.integers(0, 2 * MANY_BREAKS)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(BREAKS, BREAKS), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-16"]),
)
@example([(0, 0), (3, 40), (40, 0)], "\n", "utf-8")
def test_cells_with_many_line_breaks_are_named_by_their_line(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int]],
    end: str,
    encoding: str,
) -> None:
    """The line in which the first begins, also after another cell of its row with line breaks, and nothing of its content."""
    path = tmp_path_factory.getbasetemp() / "long.csv"
    text = "a,b" + end
    expected = []
    for breaks_of_row in rows:
        cells = []
        for breaks in breaks_of_row:
            if breaks >= MANY_BREAKS:
                begun = text + ",".join(cells)
                expected.append((begun.count("\n") + 1, breaks))
            cells.append('"' + "secret" + "\n" * breaks + '"')
        text += ",".join(cells) + end
    path.write_bytes(text.encode(encoding))
    form = SourceFile.model_validate({"file": path.name, "encoding": encoding})
    found = TableSource(str(path), form).long_cells()
    if not expected:
        assert found is None
        return
    assert found is not None
    assert (found.number, found.line, found.breaks) == (len(expected), *expected[0])
    assert f"line {found.line} of the file" in str(found.words)
    assert "secret" not in f"{found.words} {found.advice}"


@pytest.mark.parametrize("width", [3, 8])
@pytest.mark.parametrize("taken", [1, 3, 18])
def test_a_quote_that_takes_few_rows_is_named(tmp_path: Path, width: int, taken: int) -> None:
    """Rows of the usual width remain, so that nothing else tells; free text with commas and line breaks is no such cell."""
    header = ",".join(f"c{place}" for place in range(width))
    plain = ",".join(["secret"] * width)
    opened = plain.replace("secret", '"secret', 1)
    closed = plain.replace("secret", 'secret"', 1)
    swallowed = [opened, *[plain] * (taken - 1), closed]
    prose = ",".join(['"first, second\nand third"', *["secret"] * (width - 1)])
    path = tmp_path / "few.csv"
    path.write_text("\n".join([header, prose, *swallowed, plain, ""]))
    with path.open(newline="") as file:
        assert {len(row) for row in csv.reader(file)} == {width}
    cells = TableSource(str(path), SourceFile(file="few.csv")).long_cells()
    if taken * (width - 1) < MANY_DELIMITERS:
        assert cells is None
    else:
        assert cells is not None
        assert (cells.number, cells.line, cells.breaks) == (1, 4, taken)


def test_other_files_have_no_such_cells(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x" + "\n" * 100]}), tmp_path / "t.parquet")
    source = TableSource(str(tmp_path / "t.parquet"), SourceFile(file="t.parquet"))
    assert source.long_cells() is None
