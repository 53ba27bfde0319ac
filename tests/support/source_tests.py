"""The laws of a source that do not depend on how its table is kept: each kind of source inherits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from marginweave.base.errors import InputError
from marginweave.sources.source import TableSource, check_header, check_rows, source_columns

MARKER = "xq7marker"
Row = tuple[str, ...]
Write = Callable[[Sequence[str], Sequence[Row]], TableSource]
NAMES = ("town", "note", "cost")
ROWS: list[Row] = [
    ("Köln", 'say "hi"', "1.234,5"),
    ("Bonn", "a;b\tc|d,e", "-0,25"),
    ("Köln", "x\ny", ""),
    ("Aachen", "01", "77"),
]


def table_of(names: Sequence[str], rows: Sequence[Row]) -> pa.Table:
    """Columns of texts; a name may occur twice."""
    return pa.table(
        [pa.array([row[i] for row in rows], pa.string()) for i in range(len(names))],
        names=list(names),
    )


class SourceTests:
    """What every kind of source keeps; a subclass says how a table of texts is written as one."""

    @pytest.fixture
    def write(self) -> Write:
        """A function of names and rows: the source that has them, in the same place each time."""
        raise NotImplementedError

    def test_declared_columns_come_in_declared_order(self, write: Write) -> None:
        """They alone, every cell as it was written, as often as they are read; and nothing is found fault with before."""
        source = write(NAMES, ROWS)
        assert source_columns(source.name, source.form) == NAMES
        for check in (check_header, check_rows):
            check(source.name, ["cost", "town"], source.form)
        for columns in (["cost", "town"], ["note"]):
            expected = {name: [row[NAMES.index(name)] for row in ROWS] for name in columns}
            for _ in range(2):
                found = source.table(columns)
                assert (found.column_names, found.to_pydict()) == (columns, expected)

    def test_no_rows_are_a_table_without_rows(self, write: Write) -> None:
        """It has the declared columns, in one piece at least."""
        pieces = list(write(NAMES, []).tables(["cost", "town"]))
        assert pieces
        assert all(
            (piece.column_names, piece.num_rows) == (["cost", "town"], 0) for piece in pieces
        )

    def test_a_column_that_is_lacking_is_named_and_no_other(self, write: Write) -> None:
        """What the source has in its place is not repeated: without a header it would be data."""
        source = write(("a", MARKER), [("1", MARKER)])
        with pytest.raises(InputError, match="lacks the declared column 'b'") as by_header:
            check_header(source.name, ["a", "b"], source.form)
        with pytest.raises(InputError, match=r"lacks (the|a) declared column") as by_rows:
            source.table(["a", "b"])
        assert MARKER not in f"{by_header.value} {by_rows.value}"

    def test_a_column_that_is_there_twice_is_refused_where_it_is_declared(
        self, write: Write
    ) -> None:
        """A choice between the two would be a guess."""

        def read(check: Callable[[TableSource], object]) -> None:
            check(write(("a", "b", "a"), [("1", "2", "3")]))

        with pytest.raises(InputError, match="has the column 'a' more than once"):
            read(lambda source: check_header(source.name, ["b", "a"], source.form))
        with pytest.raises(InputError, match=r"more than once|repeats it"):
            read(lambda source: source.table(["b", "a"]))

    def test_a_source_that_is_written_to_meanwhile_is_noticed(self, write: Write) -> None:
        """By its state, without a read; its bytes, of which the digest is, are others as well."""
        source = write(NAMES, ROWS)
        state, content = source.state(), b"".join(source.chunks())
        with source.unchanged("it was changed"):
            assert (source.state(), b"".join(source.chunks())) == (state, content)
        with pytest.raises(InputError, match="it was changed"), source.unchanged("it was changed"):
            source = write(NAMES, ROWS[:2])
        assert b"".join(source.chunks()) != content
