"""A cell is read by itself: what a row of any source becomes does not depend on the other rows, for every type and column kind.

The law, before contributions are bounded: reading a table with one more row, and leaving that row out, gives what reading the
table gives.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marginweave as mw
from marginweave.base.arrow import cell_type
from marginweave.base.errors import InputError
from marginweave.columns.base import distinct_texts
from marginweave.configuration.release import Configuration
from marginweave.prepare.clean import clean_table
from marginweave.runs.frames import as_parquet
from marginweave.sources.source import TableSource, check_header
from tests.support.configurations import configuration

VALUES = [1, 2, 3, "a", "b;c", "true", "2019-05-01", "2019-05-01 10:30:00", "1.5"]
COLUMNS: dict[str, dict[str, Any]] = {
    "public": {"type": "category", "values": VALUES, "outside": "other"},
    "hidden": {"type": "category", "domain": "private"},
    "set": {"type": "set", "values": [1, 2, "a", "b", "c"], "max_values": 3},
    "hidden set": {"type": "set", "domain": "private", "max_values": 3},
    "flag": {"type": "boolean"},
    "number": {"type": "number", "bounds": [-5, 50], "bins": 11, "decimals": 1},
    "date": {"type": "date", "bounds": ["2018-01-01", "2021-12-31"], "bins": "month"},
    "moment": {"type": "datetime", "bounds": ["2018-01-01", "2021-12-31"], "bins": "month"},
    "compact": {
        "type": "date",
        "bounds": ["2018-01-01", "2021-12-31"],
        "bins": "month",
        "format": "%Y%m%d",
    },
}
MARK = {"type": "category", "values": ["x"]}  # so that no row is empty, which is none in a sheet
PERSON = {"column": "who", "max_records": 2}
SURROUNDINGS = {"skip": 2, "header": {"rows": 2, "names": 2}, "footer": 2}

TEXTS = ("public", "hidden", "set", "hidden set", "flag", "who")
ALL = (*TEXTS, "number", "date", "moment", "compact")
SPELLED = ("hidden", "hidden set", "who")
PUBLIC = ("public", "set", "flag", "number", "date", "moment", "compact")
FLOATS = ("public", "set", "flag", "number", "date", "compact")
DATES = ("date", "moment", "compact")

WHOLE = st.one_of(st.integers(-3, 12), st.just(20190501))
GAPS = st.one_of(WHOLE, st.none())
REALS = st.one_of(
    st.sampled_from([1.0, 2.0, 1.5, 1e17, 0.1, -0.0, float("nan")]), st.floats(width=32)
)
WORDS = st.one_of(
    st.sampled_from([str(value) for value in VALUES]), st.text("ab;1.e- ", max_size=5)
)
FIRST, LAST = datetime.fromisoformat("2018-06-01"), datetime.fromisoformat("2020-06-01")
MOMENTS = st.datetimes(FIRST, LAST) | st.dates(FIRST.date(), LAST.date()).map(
    lambda day: datetime.combine(day, time())
)
ANYTHING = st.one_of(
    WHOLE, REALS, WORDS, st.booleans(), st.none(), MOMENTS, MOMENTS.map(pd.Timestamp), MOMENTS.map(datetime.date),
    st.decimals(-9, 9, places=2), st.sampled_from([time(3), pd.NA, pd.NaT, np.int64(7), 10**20, Decimal("NaN"), b"a"]),
)  # fmt: skip
EXACT = ANYTHING.filter(
    lambda cell: not isinstance(cell, float | bool | Decimal)
) | st.sampled_from([Decimal(7), float("nan")])
"""Cells of any type but numbers of which one value has several spellings."""


@dataclass(frozen=True)
class Case:
    """A type of cells, the kinds of columns that read it, and the cells of a column of the type."""

    dtype: Any
    kinds: tuple[str, ...]
    cells: st.SearchStrategy[Any]


OBJECTS = "category over object"
FRAMES = {
    "int64": Case("int64", ALL, WHOLE),
    "uint8": Case("uint8", ALL, st.integers(0, 9)),
    "Int64": Case("Int64", ALL, GAPS),
    "float64": Case("float64", FLOATS, REALS),
    "Float32": Case("Float32", FLOATS, REALS | st.none()),
    "bool": Case("bool", ALL, st.booleans()),
    "boolean": Case("boolean", ALL, st.booleans() | st.none()),
    "str": Case("str", ALL, WORDS | st.none()),
    "string": Case("string", ALL, WORDS | st.none()),
    "object": Case("object", PUBLIC, ANYTHING),
    "object of exact cells": Case("object", (*SPELLED, "number"), EXACT),
    "category of texts": Case(
        pd.CategoricalDtype(["1", "a", "2"]), ALL, st.sampled_from(["1", "a", "2", None])
    ),
    "category of integers": Case(
        pd.CategoricalDtype([3, 1, 20190501]), ALL, st.sampled_from([1, 3, 20190501, None])
    ),
    "category of anything": Case(
        pd.CategoricalDtype([1, "a", 2.0, FIRST]), PUBLIC, st.sampled_from([1, "a", 2.0, None])
    ),
    "category of exact cells": Case(
        pd.CategoricalDtype([1, "a", FIRST]), (*SPELLED, "number"), st.sampled_from([1, "a", None])
    ),
    "category of what the rows hold": Case(
        OBJECTS, PUBLIC, st.none() | st.sampled_from([Decimal("1.00"), FIRST, "a", 2])
    ),
    "category of floats": Case(
        pd.CategoricalDtype([1.0, 2.0, 1.5]), FLOATS, st.sampled_from([1.0, 1.5, 2.0, None])
    ),
    "category of moments": Case(
        pd.CategoricalDtype([pd.Timestamp("2019-05-01"), pd.Timestamp("2019-06-01 10:30")]),
        DATES,
        st.sampled_from([pd.Timestamp("2019-05-01"), pd.Timestamp("2019-06-01 10:30"), None]),
    ),
    "datetime64[us]": Case("datetime64[us]", DATES, MOMENTS | st.none()),
    "datetime64[ns]": Case("datetime64[ns]", DATES, MOMENTS | st.none()),
    "datetime64 of a zone": Case("datetime64[us, Europe/Berlin]", DATES, MOMENTS | st.none()),
    "int16[pyarrow]": Case(pd.ArrowDtype(pa.int16()), ALL, st.integers(-3, 12) | st.none()),
    "date32[pyarrow]": Case(
        pd.ArrowDtype(pa.date32()), ALL, MOMENTS.map(datetime.date) | st.none()
    ),
    "timestamp[pyarrow]": Case(pd.ArrowDtype(pa.timestamp("us")), ALL, MOMENTS | st.none()),
    "decimal[pyarrow]": Case(
        pd.ArrowDtype(pa.decimal128(9, 2)), ALL, st.decimals(-9, 9, places=2) | st.none()
    ),
    "string[pyarrow]": Case(pd.ArrowDtype(pa.string()), ALL, WORDS | st.none()),
    "string_view[pyarrow]": Case(pd.ArrowDtype(pa.string_view()), ALL, WORDS | st.none()),
}
PARQUET = {
    "int64": Case(pa.int64(), ALL, GAPS),
    "double": Case(pa.float64(), FLOATS, REALS | st.none()),
    "bool": Case(pa.bool_(), ALL, st.booleans() | st.none()),
    "string": Case(pa.string(), ALL, WORDS | st.none()),
    "date32": Case(pa.date32(), ALL, MOMENTS.map(datetime.date) | st.none()),
    "timestamp[us]": Case(pa.timestamp("us"), ALL, MOMENTS | st.none()),
    "timestamp[s] of a zone": Case(
        pa.timestamp("s", "Europe/Berlin"), ALL, MOMENTS.map(lambda at: at.replace(microsecond=0, tzinfo=UTC)) | st.none()
    ),
    "time64": Case(pa.time64("us"), ALL, st.times() | st.none()),
    "decimal": Case(pa.decimal128(9, 2), ALL, st.decimals(-9, 9, places=2) | st.none()),
    "dictionary": Case(pa.dictionary(pa.int32(), pa.string()), ALL, WORDS | st.none()),
    "categories of Polars": Case(pa.dictionary(pa.uint32(), pa.string_view()), ALL, WORDS | st.none()),
    "hundreds": Case(pa.decimal128(5, -2), ALL, st.integers(-9, 9).map(lambda n: Decimal(n) * 100) | st.none()),
}  # fmt: skip
IN_MEMORY = ("categories of Polars", "hundreds")
"""What Parquet has no form for."""
EXACT_SHEET = st.one_of(GAPS, MOMENTS, MOMENTS.map(datetime.date), WORDS)
SHEET = st.one_of(EXACT_SHEET, REALS.filter(np.isfinite), st.booleans())


@cache
def declared(
    kinds: tuple[str, ...], source: str = "frame.parquet", *, has_surroundings: bool = False
) -> Configuration:
    """A column of each kind, and a person where ids are among them; with surroundings, lines above and below the table."""
    columns = {name: COLUMNS[name] for name in kinds if name != "who"}
    unit: Any = PERSON if "who" in kinds else "row"
    return configuration(
        source={"file": source, **SURROUNDINGS} if has_surroundings else source,
        columns={**columns, "mark": MARK},
        missing=["", "-2"],
        privacy__unit=unit,
    )


def read(place: Path, config: Configuration) -> list[dict[str, Any]]:
    """What every row becomes: its clean values, and the text of its id."""
    table = TableSource.of(str(place), config).table(config.source_names)
    rows: list[dict[str, Any]] = clean_table(table, config).to_pylist()
    if config.privacy.subject is not None:
        texts, positions = distinct_texts(table.column("who").combine_chunks())
        rows = [
            {**row, "who": texts[p].as_py()}
            for row, p in zip(rows, positions.tolist(), strict=True)
        ]
    return rows


Write = Callable[[list[Any]], Path]


def check(cells: list[Any], other: Any, at: int, write: Write, config: Configuration) -> None:
    """The law, of one column of cells that all kinds of columns read."""
    at = min(at, len(cells))
    more = read(write([*cells[:at], other, *cells[at:]]), config)
    assert len(more) == len(cells) + 1
    assert repr(more[:at] + more[at + 1 :]) == repr(read(write(cells), config))


TABLES = st.integers(0, 5)


@pytest.mark.parametrize("name", FRAMES)
@given(data=st.data(), at=TABLES)
@settings(max_examples=8, deadline=None)
def test_frames(
    name: str, data: st.DataObject, at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case, place = FRAMES[name], tmp_path_factory.mktemp("frame") / "frame.parquet"
    config = declared(case.kinds)

    types: list[dict[str, str]] = []

    def write(cells: list[Any]) -> Path:
        series = _series(cells, case.dtype)
        frame = pd.DataFrame(
            {
                **dict.fromkeys(case.kinds, series),
                "mark": pd.Series(["x"] * len(cells), dtype="str"),
            }
        )
        content, found = as_parquet(frame, config)
        place.write_bytes(content)
        types.append(found)
        return place

    check(data.draw(st.lists(case.cells, max_size=5)), data.draw(case.cells), at, write, config)
    assert types[0] == types[1]


def _series(cells: list[Any], dtype: Any) -> pd.Series[Any]:
    if dtype == OBJECTS:
        return pd.Series(pd.Categorical(pd.Series(cells, dtype=object)))
    if "Berlin" in str(dtype):
        return (
            pd.Series(pd.to_datetime(pd.Series(cells, dtype="datetime64[us]")))
            .dt.tz_localize("UTC")
            .astype(dtype)
        )
    return pd.Series(cells, dtype=dtype)


@pytest.mark.parametrize("name", PARQUET)
@given(data=st.data(), at=TABLES)
@settings(max_examples=8, deadline=None)
def test_parquet(
    name: str, data: st.DataObject, at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also as the table of another library, in memory."""
    case, place = PARQUET[name], tmp_path_factory.mktemp("parquet") / "t.parquet"
    config, in_memory = (
        declared(case.kinds, "t.parquet"),
        name in IN_MEMORY or data.draw(st.booleans()),
    )
    types: list[dict[str, str]] = []

    def write(cells: list[Any]) -> Path:
        values = pa.array(cells, cell_type(case.dtype))
        if pa.types.is_dictionary(case.dtype) and not in_memory:
            values = values.dictionary_encode()
        elif pa.types.is_dictionary(case.dtype):  # which may have a place for what is missing
            values = pa.DictionaryArray.from_arrays(
                pa.array(range(len(cells)), case.dtype.index_type), values
            )
        table = pa.table(
            {**dict.fromkeys(case.kinds, values), "mark": pa.array(["x"] * len(cells), pa.string())}
        )
        if in_memory:
            content, found = as_parquet(table, config)
            place.write_bytes(content)
        else:
            pq.write_table(table, place)
            found = TableSource.of(str(place), config).types(config.output_names)
        types.append(found)
        return place

    check(data.draw(st.lists(case.cells, max_size=5)), data.draw(case.cells), at, write, config)
    assert types[0] == types[1]


@pytest.mark.parametrize("has_surroundings", [False, True])
@given(st.lists(WORDS, max_size=5), WORDS, TABLES)
@settings(max_examples=25, deadline=None)
def test_text_files(
    tmp_path_factory: pytest.TempPathFactory,
    has_surroundings: bool,
    cells: list[str],
    other: str,
    at: int,
) -> None:
    """Lines above and below the table may look like rows, and rows like these: which is which is declared by number."""
    place = tmp_path_factory.mktemp("text") / "t.csv"
    config = declared(ALL, "t.csv", has_surroundings=has_surroundings)

    def write(cells: list[Any]) -> Path:
        rows = _rows_of(ALL, cells)
        with place.open("w", newline="") as file:
            csv.writer(file).writerows(surrounded(rows) if has_surroundings else rows)
        return place

    check(cells, other, at, write, config)


def _rows_of(kinds: tuple[str, ...], cells: list[Any]) -> list[list[Any]]:
    """The rows of a table that has each cell in a column of each kind, below their names."""
    return [[*kinds, "mark"], *([cell] * len(kinds) + ["x"] for cell in cells)]


def surrounded(rows: list[list[Any]]) -> list[list[Any]]:
    """The rows of a table below its names, between a title and an empty row, another row of names, and two last rows."""
    names, *table = rows
    return [["title"], [], ["a"] * len(names), names, *table, [1] * len(names), ["x"]]


@pytest.mark.parametrize("has_surroundings", [False, True])
@pytest.mark.parametrize(("kinds", "strategy"), [(PUBLIC, SHEET), (ALL, EXACT_SHEET)])
@given(data=st.data(), at=TABLES)
@settings(max_examples=15, deadline=None)
def test_sheets(
    tmp_path_factory: pytest.TempPathFactory,
    has_surroundings: bool,
    kinds: tuple[str, ...],
    strategy: st.SearchStrategy[Any],
    data: st.DataObject,
    at: int,
) -> None:
    """Each cell has its own type and format there: an integer beside a float, a date beside a moment."""
    place = tmp_path_factory.mktemp("sheet") / "t.xlsx"
    config = declared(kinds, "t.xlsx", has_surroundings=has_surroundings)

    def write(cells: list[Any]) -> Path:
        rows = _rows_of(kinds, cells)
        return _sheet(place, surrounded(rows) if has_surroundings else rows)

    check(data.draw(st.lists(strategy, max_size=5)), data.draw(strategy), at, write, config)


def _sheet(place: Path, rows: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    for row in rows:
        sheet.append(row)
    book.save(place)
    return place


# --- what is refused, and by what ------------------------------------------------------------------------------------

MOMENT = pd.Timestamp("2019-05-01 10:30")
REFUSED: dict[str, tuple[Any, list[Any], tuple[str, ...]]] = {
    "datetime64": ("datetime64[us]", [MOMENT], (*TEXTS, "number")),
    "datetime64 of a zone": (
        "datetime64[us, UTC]",
        [MOMENT.tz_localize("UTC")],
        (*TEXTS, "number"),
    ),
    "timedelta64": ("timedelta64[us]", [pd.Timedelta("1D")], ALL),
    "period": ("period[M]", [pd.Period("2019-05")], ALL),
    "interval": ("interval[int64, right]", [pd.Interval(0, 5)], ALL),
    "complex": ("complex128", [1j], ALL),
    "float64": ("float64", [7.0, 8.0], ("hidden", "hidden set", "who")),
    "Float64": ("Float64", [7.0, None], ("hidden", "hidden set", "who")),
    "float[pyarrow]": (pd.ArrowDtype(pa.float32()), [7.0, None], ("hidden", "hidden set", "who")),
    "list[pyarrow]": (pd.ArrowDtype(pa.list_(pa.int8())), [[7]], ALL),
    "category of floats": (pd.CategoricalDtype([7.0, 8.0]), [7.0], ("hidden", "hidden set", "who")),
    "category of moments": (pd.CategoricalDtype([MOMENT]), [MOMENT], TEXTS),
    "category of intervals": (
        pd.CategoricalDtype([pd.Interval(0, 5)]),
        [pd.Interval(0, 5), None],
        ALL,
    ),
    "Sparse[int64]": (pd.SparseDtype("int64", 0), [7], ALL),
}


def _frame(kind: str, cells: list[Any], dtype: Any) -> pd.DataFrame:
    """A column of these cells, and what else is declared beside it."""
    others = {"mark": ["x"] * len(cells)} | ({"number": [1] * len(cells)} if kind == "who" else {})
    return pd.DataFrame(others).assign(**{kind: pd.Series(cells, dtype=dtype)})


ASKED = [(name, kind) for name, (_, _, kinds) in REFUSED.items() for kind in kinds]


@pytest.mark.parametrize(("name", "kind"), ASKED)
def test_a_dtype_without_faithful_texts_is_refused_whatever_the_rows_are(
    name: str, kind: str
) -> None:
    """Also without rows; the message has no value, and the line that it says makes a frame that is read."""
    dtype, cells, _ = REFUSED[name]
    config, said = declared((kind,) if kind != "who" else ("number", "who")), set()
    for rows in (cells, [], cells * 3):
        frame = _frame(kind, rows, dtype)
        with pytest.raises(InputError) as refused:
            as_parquet(frame, config)
        said.add(str(refused.value))
    (message,) = said
    assert f"column {kind!r} with the dtype " in message
    assert not {"7", "05-01", "05:30", "(0, 5]"} & {*message.replace(",", " ").split()}
    line = line_to_write(message).partition(", or ")[0]
    scope = {"frame": _frame(kind, cells, dtype)}
    exec(line, scope)  # the line that users are told to write
    content, _ = as_parquet(scope["frame"], config)
    assert pq.read_table(io.BytesIO(content)).num_rows == len(cells)


def line_to_write(message: str) -> str:
    """The line of Python that a message ends with."""
    return message.partition("; write ")[2]


class Silent:
    """A cell whose class has no text for it, and says something of it instead."""

    def __str__(self) -> str:
        raise RuntimeError("secret 7")


SECONDS: Any = pd.Series(np.array([2**62 + 7, 0]).astype("datetime64[s]"))
UNFIT: dict[str, tuple[str, pd.Series[Any]]] = {
    "no text": ("public", pd.Series([Silent(), "a"], dtype=object)),
    "a signal": ("public", pd.Series([Decimal("sNaN7"), "a"], dtype=object)),
    "bytes": ("hidden", pd.Series([b"\xff7", "a"], dtype=object)),
    "categories without a text": (
        "public",
        pd.Series(pd.Categorical(pd.Series([Silent(), "a"], dtype=object))),
    ),
    "a moment": ("date", SECONDS),
    "a moment of a zone": ("moment", SECONDS.dt.tz_localize("UTC")),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_cell_without_a_text_or_a_place_is_refused_by_its_column_alone(name: str) -> None:
    """No value is in the error, nor in one behind it, and the line that it says makes a frame that is read."""
    kind, series = UNFIT[name]
    frame, config = pd.DataFrame({kind: series, "mark": ["x", "x"]}), declared((kind,))
    with pytest.raises(
        InputError, match=f"the frame has the column '{kind}' with a cell that "
    ) as refused:
        as_parquet(frame, config)
    error: BaseException = refused.value
    assert "7" not in str(error)
    assert (error.__cause__, error.__context__) == (None, None)
    scope = {"frame": frame}
    exec(line_to_write(str(error)), scope)  # the line that users are told to write
    rows = pq.read_table(io.BytesIO(as_parquet(scope["frame"], config)[0])).column(kind).to_pylist()
    assert rows[0] is None or isinstance(rows[0], str)
    assert rows[1] is not None
    if name == "a moment":
        table = pa.table({kind: pa.array(series), "mark": ["x", "x"]})
        with pytest.raises(
            InputError, match=r"column 'date' with a cell that .*; write such cells as null$"
        ) as refused:
            as_parquet(table, config)
        assert refused.value.__context__ is None


@pytest.mark.parametrize("what", ["no text", "a signal", "bytes"])
def test_a_draft_refuses_what_has_no_text_as_fit_does(what: str) -> None:
    with pytest.raises(
        InputError, match="the frame has the column 'a' with a cell that "
    ) as refused:
        mw.Configuration.draft(pd.DataFrame({"a": UNFIT[what][1]}), "people")
    assert refused.value.__context__ is None


@pytest.mark.parametrize("kind", ["hidden", "hidden set", "who"])
@pytest.mark.parametrize("rows", [[], [7.0], [7.0, None]])
def test_floats_of_files_and_other_libraries_are_refused(
    kind: str, rows: list[Any], tmp_path: Path
) -> None:
    """By the type alone, before a run begins and where rows are read."""
    config = declared((kind,) if kind != "who" else ("number", "who"), "t.parquet")
    for values in (pa.array(rows, pa.float64()), pa.array(rows, pa.float64()).dictionary_encode()):
        table = pa.table({kind: values, "mark": pa.array(["x"] * len(rows), pa.string())})
        table = (
            table.append_column("number", pa.nulls(len(rows), pa.int64()))
            if kind == "who"
            else table
        )
        pq.write_table(table, tmp_path / "t.parquet")
        source = str(tmp_path / "t.parquet")
        for refused in (
            lambda: as_parquet(table, config),  # noqa: B023 - called at once
            lambda: check_header(source, config.source_names, config.source, config.spelled_names),  # noqa: B023
            lambda: TableSource.of(source, config).table(config.source_names),  # noqa: B023
        ):
            with pytest.raises(
                InputError,
                match=f"column '{kind}' with the type double, .*; write the column as integers",
            ):
                refused()


SPELLINGS: dict[str, list[Any]] = {
    "float": [7, 7.0],
    "float of numpy": [7, np.float64(7)],
    "a large float": [10**16, 1e16],
    "decimal": [7, Decimal("7.0")],
    "decimal of hundreds": [700, Decimal("7E+2")],
    "Boolean": [1, True],
    "Boolean of numpy": [1, np.True_],
    "fraction": [7, Fraction(15, 2)],
}
"""Numbers of which the first is spelled as an id is, and the second is not."""


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("kind", SPELLED)
def test_no_number_of_an_object_column_is_two_persons(name: str, kind: str) -> None:
    """The message has no value, and the line that it says makes both cells one text, where they are one number."""
    config = declared((kind,) if kind != "who" else ("number", "who"))
    frame = _frame(kind, SPELLINGS[name], "object")
    with pytest.raises(
        InputError, match=f"column '{kind}' with a cell that is a float, a Boolean or a decimal"
    ) as refused:
        as_parquet(frame, config)
    assert "7" not in str(refused.value)
    as_parquet(frame.assign(**{kind: pd.Series([SPELLINGS[name][0], None], dtype=object)}), config)
    if name == "fraction":
        return
    scope = {"frame": frame}
    exec(line_to_write(str(refused.value)).partition(", or ")[0], scope)
    content, _ = as_parquet(scope["frame"], config)
    assert len(set(pq.read_table(io.BytesIO(content)).column(kind).to_pylist())) == 1


def test_a_draft_refuses_ids_in_several_spellings_as_fit_does() -> None:
    ids = [1000 + i // 2 for i in range(400)]
    frame = pd.DataFrame({"patient_id": pd.Series(ids, dtype=object), "sex": ["f", "m"] * 200})
    unit = mw.Configuration.draft(frame, "people")["privacy"]["unit"]
    assert unit["column"] == "patient_id"
    frame.loc[7, "patient_id"] = 1003.0
    with pytest.raises(InputError, match="column 'patient_id' with a cell that is a float, a Bool"):
        mw.Configuration.draft(frame, "people")


@pytest.mark.parametrize("kind", SPELLED)
def test_categories_follow_the_same_rule_also_those_that_no_row_has(kind: str) -> None:
    config = declared((kind,) if kind != "who" else ("number", "who"))
    dtype = pd.CategoricalDtype(["a", 7.0])
    with pytest.raises(
        InputError, match=f"column '{kind}' with a cell that is a float, a Boolean or a decimal"
    ):
        as_parquet(_frame(kind, ["a", "a"], dtype), config)


@pytest.mark.parametrize("kind", SPELLED)
@pytest.mark.parametrize("cell", [7.5, True])
def test_no_number_of_a_sheet_is_two_persons(kind: str, cell: Any, tmp_path: Path) -> None:
    config = declared((kind,) if kind != "who" else ("number", "who"), "t.xlsx")
    kinds = (kind,) if kind != "who" else ("number", "who")
    source = str(_sheet(tmp_path / "t.xlsx", _rows_of(kinds, [7, cell])))
    with pytest.raises(
        InputError, match=rf"column '{kind}' with a number in row 3 .*; write the column as texts$"
    ):
        TableSource.of(source, config).table(config.source_names)
    _sheet(tmp_path / "t.xlsx", _rows_of(kinds, [7, str(cell)]))
    assert TableSource.of(source, config).table(config.source_names).num_rows == 2


def test_a_time_of_day_in_one_row_renames_no_date() -> None:
    """A frame of dates, and the same with one moment more, have one dtype: both are refused, with the same words."""
    config = configuration(columns={"wave": {"type": "category", "domain": "private"}, "sex": MARK})
    frame = pd.DataFrame({"wave": pd.to_datetime(["2024-01-01", "2024-06-01"] * 5), "sex": "x"})
    more = pd.concat(
        [frame, pd.DataFrame({"wave": pd.to_datetime(["2024-01-01 10:30"]), "sex": "x"})]
    )
    assert (frame.dtypes == more.dtypes).all()
    line = r'frame\["wave"\] = frame\["wave"\]\.dt\.strftime\("%Y-%m-%d"\)$'
    for table in (frame, more):
        with pytest.raises(
            InputError, match=rf"column 'wave' with the dtype datetime64\[us\], .*; write {line}"
        ):
            as_parquet(table, config)
        table["wave"] = table["wave"].dt.strftime("%Y-%m-%d")
    texts = [
        pq.read_table(io.BytesIO(as_parquet(table, config)[0])).column("wave").to_pylist()
        for table in (frame, more)
    ]
    assert texts[0] == texts[1][:-1] == ["2024-01-01", "2024-06-01"] * 5


def test_a_gap_in_one_row_renames_no_code(tmp_path: Path) -> None:
    """pandas makes floats of codes where one is missing: hidden values are refused then, and declared ones are the same."""
    text = "code,mark\n" + "\n".join(f"{1 + i % 3},x" for i in range(9)) + "\n"
    hidden = configuration(
        columns={"code": {"type": "category", "domain": "private"}, "mark": MARK}
    )
    public = configuration(
        columns={"code": {"type": "category", "values": [1, 2, 3]}, "mark": MARK}
    )
    whole, gapped = (pd.read_csv(io.StringIO(part)) for part in (text, f"{text},x\n"))
    with pytest.raises(
        InputError,
        match=r'column \'code\' with the dtype float64.*astype\("Int64"\), or read it as text',
    ):
        as_parquet(gapped, hidden)
    for config, frames in (
        (public, (whole, gapped)),
        (hidden, (whole, gapped.astype({"code": "Int64"}))),
    ):
        found = []
        for number, frame in enumerate(frames):
            place = tmp_path / f"{number}.parquet"
            place.write_bytes(as_parquet(frame, config)[0])
            found.append([row["code"] for row in read(place, config)])
        assert found[0] == found[1][:-1] == ["1", "2", "3"] * 3


def test_a_draft_of_floats_is_a_configuration_that_fit_accepts() -> None:
    """Codes as floats are drafted with public values, dates as dates."""
    codes = np.arange(300) % 60
    frame = pd.DataFrame(
        {
            "few": np.where(codes % 4 == 3, np.nan, codes % 4),
            "zip code": codes.astype(float),
            "empty": np.nan,
            "day": pd.Timestamp("2019-05-01") + pd.to_timedelta(codes, "D"),
            "size": pd.Categorical(codes % 3),
        }
    )
    draft = mw.Configuration.draft(frame, "codes")
    columns = draft["columns"]
    assert columns["few"]["values"] == ["0", "1", "2"]
    assert columns["zip code"]["values"] == [str(code) for code in range(60)]
    assert [columns[name]["type"] for name in ("empty", "day", "size")] == [
        "identifier",
        "date",
        "category",
    ]
    for name in [*draft.unconfirmed]:
        draft.confirm(name, "the code book")
    content, _ = as_parquet(frame, draft.resolved)
    assert pq.read_table(io.BytesIO(content)).num_rows == len(frame)
