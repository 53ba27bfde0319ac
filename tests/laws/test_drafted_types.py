"""A draft and `fit` take the same types: for each that pandas and Arrow offer, both accept a column of it, or both refuse it.

And in the same words: who drafts hears at once what `fit` would say after all was confirmed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.core.dtypes import base

import marginweave as mw
from marginweave.base.arrow import compute as pc
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.prepare.clean import clean_table
from marginweave.runs.frames import as_parquet
from marginweave.sources.source import TableSource, check_header
from tests.support.configurations import configuration

ROWS = 120
CODES = {"few values": np.arange(ROWS) % 3, "many values": np.arange(ROWS) % 60}
DAY = pd.Timestamp("2019-05-01")
HIDDEN = configuration(
    columns={"x": {"type": "category", "domain": "private"}, "mark": {"type": "boolean"}}
)
Codes = Any
Make = Callable[[Codes], Any]

_NUMBERS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
_OWN = (
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float32",
    "Float64",
)
DTYPES: dict[str, Make] = {
    **{name: lambda codes, name=name: pd.Series(codes).astype(name) for name in (*_NUMBERS, *_OWN)},
    **{name: lambda codes, name=name: pd.Series(codes % 2).astype(name) for name in ("bool", "boolean")},
    **{name: lambda codes, name=name: pd.Series(codes).astype(name) for name in ("str", "string", "object", "complex128")},
    "datetime64[s]": lambda codes: pd.Series(DAY + pd.to_timedelta(codes, "D")).astype("datetime64[s]"),
    "datetime64[ns]": lambda codes: pd.Series(DAY + pd.to_timedelta(codes, "ns")),
    "datetime64 of a zone": lambda codes: pd.Series(DAY + pd.to_timedelta(codes, "h")).dt.tz_localize("UTC"),
    "timedelta64": lambda codes: pd.Series(pd.to_timedelta(codes, "D")),
    "period": lambda codes: pd.Series(pd.period_range("2019-01", periods=60, freq="M")[codes]),
    "interval": lambda codes: pd.Series(pd.IntervalIndex.from_breaks(range(61))[codes]),
    "Sparse[int64]": lambda codes: pd.Series(pd.arrays.SparseArray(codes)),
    "Sparse[float64]": lambda codes: pd.Series(pd.arrays.SparseArray(codes.astype(float))),
}  # fmt: skip
CATEGORIES = (
    "int64",
    "float64",
    "str",
    "bool",
    "datetime64[ns]",
    "timedelta64",
    "period",
    "interval",
)


def _each(make: Callable[[int], Any], kind: pa.DataType) -> Make:
    return lambda codes: pa.array([make(code) for code in codes.tolist()], kind)


_ARROW: list[tuple[Callable[[int], Any], Sequence[pa.DataType]]] = [
    (
        int,
        [
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.uint8(),
            pa.uint16(),
            pa.uint32(),
            pa.uint64(),
        ],
    ),
    (np.float16, [pa.float16()]),
    (float, [pa.float32(), pa.float64()]),
    (lambda code: code % 2 == 0, [pa.bool_()]),
    ("v{}".format, [pa.string(), pa.large_string(), pa.string_view()]),
    (lambda code: b"%02d" % code, [pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view()]),
    (lambda code: date(2019, 5, 1) + timedelta(code), [pa.date32(), pa.date64()]),
    (
        lambda code: datetime(2019, 5, 1) + timedelta(hours=code),  # noqa: DTZ001 - Arrow's of no zone
        [pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin")],
    ),
    (lambda code: time(code % 24, code), [pa.time32("s"), pa.time64("ns")]),
    (timedelta, [pa.duration("s"), pa.duration("ns")]),
    (lambda code: (code, 0, 0), [pa.month_day_nano_interval()]),
    (Decimal, [pa.decimal32(5, 1), pa.decimal64(9, 1), pa.decimal128(9, 2), pa.decimal256(40, 2)]),
    (lambda code: [code], [pa.list_(pa.int8()), pa.list_(pa.int8(), 1), pa.list_view(pa.int8())]),
    (lambda code: [code], [pa.large_list(pa.int8()), pa.large_list_view(pa.int8())]),
    (lambda code: {"a": code}, [pa.struct({"a": pa.int8()})]),
    (lambda code: [("a", code)], [pa.map_(pa.string(), pa.int8())]),
    (lambda _: None, [pa.null()]),
    (lambda code: b"%016d" % code, [pa.uuid()]),
]
TYPES: dict[str, Make] = {str(kind): _each(make, kind) for make, kinds in _ARROW for kind in kinds}
_BEHIND = (pa.string(), pa.int64(), pa.float64(), pa.duration("s"))
TYPES |= {
    **{f"dictionary of {kind}": lambda codes, kind=kind: TYPES[str(kind)](codes).dictionary_encode() for kind in _BEHIND},
    "run ends": lambda codes: pc.run_end_encode(pa.array(codes)),
    "sparse union": lambda codes: pa.UnionArray.from_sparse(pa.array([0] * ROWS, pa.int8()), [pa.array(codes)]),
    "dense union": lambda codes: pa.UnionArray.from_dense(
        pa.array([0] * ROWS, pa.int8()), pa.array(range(ROWS), pa.int32()), [pa.array(codes)]
    ),
}  # fmt: skip


def test_all_types_are_here() -> None:
    """Of Arrow all that Python can make, of pandas all that it registers."""
    names = vars(importlib.import_module("pyarrow.lib"))
    offered = {number for name, number in names.items() if name.startswith("Type_")}
    offered -= {names["Type_INTERVAL_MONTHS"], names["Type_INTERVAL_DAY_TIME"]}
    assert {make(CODES["few values"]).type.id for make in TYPES.values()} >= offered
    dtypes = {type(make(CODES["few values"]).dtype) for make in DTYPES.values()}
    assert dtypes | {pd.CategoricalDtype, pd.ArrowDtype} >= {*vars(base)["_registry"].dtypes}


FRAMES: dict[str, Make] = {
    **DTYPES,
    **{
        f"category of {name}": lambda codes, name=name: DTYPES[name](codes).astype("category")
        for name in CATEGORIES
    },
    **{
        f"{name}[pyarrow]": lambda codes, name=name: pd.Series(
            TYPES[name](codes), dtype=pd.ArrowDtype(TYPES[name](codes).type)
        )
        for name in TYPES
    },
}


@pytest.mark.parametrize("values", CODES)
@pytest.mark.parametrize(
    ("table", "make"),
    [
        *(pytest.param(pd.DataFrame, make, id=f"pandas: {name}") for name, make in FRAMES.items()),
        *(pytest.param(pa.table, make, id=f"Arrow: {name}") for name, make in TYPES.items()),
    ],
)
def test_a_draft_refuses_what_fit_refuses_in_the_same_words(
    table: Callable[[Any], Any],
    make: Make,
    values: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = table({"x": make(CODES[values]), "mark": ["yes", "no"] * (ROWS // 2)})
    drafted = refusal(lambda: mw.Configuration.draft(frame, "types", tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(mw.Configuration, "_refuse_types", lambda *_: None)
        config = confirmed(frame, tmp_path)
    assert drafted == refusal(lambda: fit(frame, config, tmp_path / "frame.parquet"))


def refusal(call: Callable[[], object]) -> str:
    """Why it is refused; empty where it is not."""
    try:
        call()
    except InputError as error:
        return str(error)
    return ""


def confirmed(frame: Any, home: Path) -> Configuration:
    """What the draft says of the frame; where none can be made, values that are bought."""
    try:
        draft = mw.Configuration.draft(frame, "types", home)
    except InputError:
        return HIDDEN
    for name in [*draft.unconfirmed]:
        draft.confirm(name, "the code book")
    return draft.resolved


def fit(frame: Any, config: Configuration, place: Path) -> None:
    """What `fit` does with a frame until its rows are clean."""
    place.write_bytes(as_parquet(frame, config)[0])
    check_header(str(place), config.source_names, config.source, config.spelled_names)
    clean_table(TableSource.of(str(place), config).table(config.source_names), config)


@pytest.mark.parametrize("is_arrow", [False, True])
def test_a_draft_refuses_persons_that_are_floats(is_arrow: bool, tmp_path: Path) -> None:
    """As `fit` does: a float rounds long ids, so that two persons become one."""
    persons = pd.DataFrame(
        {"patient_id": np.repeat(np.arange(60.0), 2), "mark": ["yes", "no"] * 60}
    )
    frame = pa.Table.from_pandas(persons) if is_arrow else persons
    with pytest.raises(
        InputError, match=r"the column 'patient_id' with the (type double|dtype float64)"
    ):
        mw.Configuration.draft(frame, "persons", tmp_path)
