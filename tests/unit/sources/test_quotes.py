"""Python's strict reader looks at quotes, in any encoding that has ASCII in it; pyarrow reads nothing that it refuses."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.sources import text_source
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
        ('1,"x', "never closed"),
        ('1,"x"y', "closed inside a field"),
        (f'1,"{"x" * 2**24}', "row of more than 8 MiB, or"),
    ],
)
def test_all_faults_are_told_apart(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_quotes_and_widths(io.BytesIO(text.encode()), ",")
