"""What comes in as a type goes out as the same, whatever was drawn, and every value lies in its bin or domain there."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginweave.base.arrow import named_type, schema_types
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.publish.synthetic import write_synthetic
from marginweave.records.decode import decode_table, typed_table
from marginweave.runs.frames import frame_types
from marginweave.schemas.records import records_contract
from marginweave.sources.source import TableSource
from tests.support.configurations import configuration

CODES = {"type": "category", "values": [3, 1, 20]}
WORDS = {"type": "category", "values": ["low", "mid", "high"]}
HIDDEN = {"type": "category", "domain": "private"}
FLAG = {"type": "boolean"}
YES = {**FLAG, "true_values": ["yes"], "false_values": ["no"]}
AGE = {"type": "number", "bounds": [0, 100], "bins": [0, 18, 65, 100]}
COST = {**AGE, "decimals": 2}
HALVES = {"type": "number", "bins": [0, 0.5, 0.7, 0.9, 1]}
LOGS = {
    "type": "number",
    "bounds": [0, 1000],
    "bins": {"log": 5, "smallest": 1},
    "missing": ["999", "3"],
}
CODED = {**AGE, "codes": {"97": "refused", "-1": "none"}}
DAY = {"type": "date", "bounds": ["2019-01-05", "2020-03-01"], "bins": "month"}
MOMENT = {"type": "datetime", "bounds": ["2019-01-05", "2020-03-01"], "bins": "quarter"}
WRITTEN = {**DAY, "format": "%Y%m%d"}
SET = {"type": "set", "values": ["a", "b", "c"], "max_values": 2}
INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
ORDERED = [pa.dictionary(pa.int32(), kind, True) for kind in (pa.string(), pa.large_string())]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
ZONES = [
    pa.timestamp(unit, zone)
    for unit in ("s", "ms", "us", "ns")
    for zone in (None, "UTC", "Europe/Berlin")
]

# A column, and the types in which it comes and goes.
KEPT: list[tuple[dict[str, Any], list[pa.DataType]]] = [
    (
        CODES,
        [
            *INTEGERS,
            pa.float32(),
            pa.float64(),
            pa.decimal128(5, 1),
            pa.dictionary(pa.int32(), pa.int64(), True),
        ],
    ),
    (WORDS, [*TEXTS, *ORDERED, pa.dictionary(pa.int32(), pa.string())]),
    (HIDDEN, [*TEXTS, pa.int16(), pa.dictionary(pa.int32(), pa.string())]),
    ({"type": "category", "values": ["false", "true"]}, [pa.bool_()]),
    ({"type": "category", "values": ["2019-05-01", "2019-06-01"]}, [pa.date32()]),
    (
        FLAG,
        [pa.bool_(), *TEXTS, pa.int8(), pa.float64(), pa.dictionary(pa.int32(), pa.string(), True)],
    ),
    (YES, [pa.bool_(), *TEXTS, *ORDERED]),
    ({**FLAG, "true_values": [1], "false_values": [2]}, [pa.int64(), pa.bool_(), pa.string()]),
    (AGE, [*INTEGERS, pa.float32(), pa.float64(), pa.decimal128(5, 2), *TEXTS]),
    (COST, [pa.float32(), pa.float64(), pa.decimal128(7, 3), pa.string()]),
    (HALVES, [pa.float32(), pa.float64(), pa.decimal128(4, 2)]),
    (LOGS, [pa.int16(), pa.float32(), pa.decimal128(9, 1)]),
    (CODED, [pa.int8(), pa.float32(), pa.decimal128(9, 4), pa.string()]),
    (DAY, [pa.date32(), pa.date64(), *ZONES, *TEXTS]),
    (MOMENT, [*ZONES, pa.string()]),
    (WRITTEN, [pa.int64(), pa.date32(), pa.timestamp("us"), pa.string()]),
    (SET, TEXTS),
]
# A column whose type cannot hold what is declared, and what it has instead.
LOST: list[tuple[dict[str, Any], pa.DataType, pa.DataType]] = [
    ({**CODES, "outside": "other"}, pa.int64(), pa.string()),
    ({"type": "category", "values": ["01", "1"]}, pa.int64(), pa.string()),
    ({"type": "category", "values": [1, 300]}, pa.int8(), pa.string()),
    ({**FLAG, "true_values": ["ja"]}, pa.int8(), pa.bool_()),
    (COST, pa.int64(), pa.float64()),
    ({**AGE, "bounds": [0, 300], "bins": 3, "decimals": 0}, pa.int8(), pa.int64()),
    (HALVES, pa.int32(), pa.float64()),
    ({**LOGS, "bins": {"log": 6}}, pa.int16(), pa.float64()),
    ({**CODED, "codes": {"0.1": "some"}}, pa.float32(), pa.float64()),
    ({**AGE, "bins": [0, 50.0000001, 50.0000002, 100]}, pa.float32(), pa.float64()),
    ({**DAY, "bounds": ["1500-01-01", "1501-01-01"]}, pa.timestamp("ns"), pa.date32()),
    (MOMENT, pa.date32(), pa.timestamp("s")),
    ({**DAY, "format": "%d%m%Y"}, pa.int64(), pa.string()),
    (SET, pa.int64(), pa.string()),
    # the order of hidden values, and a dictionary of numbers, are those of the data
    (HIDDEN, ORDERED[0], pa.dictionary(pa.int32(), pa.string())),
    (AGE, pa.dictionary(pa.int32(), pa.int64(), True), pa.int64()),
]
CASES = [(column, kind, kind) for column, kinds in KEPT for kind in kinds] + LOST
NAMES = [f"{i} {kind}" for i, (_, kind, _) in enumerate(CASES)]
FOUND = ("20", "7")  # the values of a hidden domain
MISSING = 10**6


@cache
def declared() -> Configuration:
    """A column for each case; one of integers that is never missing is the last."""
    columns = {name: column for name, (column, _, _) in zip(NAMES, CASES, strict=True)}
    return configuration(
        columns={**columns, "sure": {**CODES, "missing": [], "outside": "error"}},
        missing=["", "NA"],
    )


TYPES = {name: str(kind) for name, (_, kind, _) in zip(NAMES, CASES, strict=True)}
TYPES["sure"] = "int16"


def released(
    codes: list[int], seed: int, *, typed: bool = True
) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """The synthetic table of columns of these codes, modulo their domains, and what they are."""
    config, cells, labels = declared(), {}, []
    for place, attribute in enumerate(config.attributes):
        labels.append(config.columns[attribute.name].labels or FOUND)
        size = len(labels[-1]) + (attribute.name != "sure")
        cells[attribute.name] = np.array(
            [size - 1 if code == MISSING else (code + place) % size for code in codes]
        )
    domain = Domain(names=tuple(cells), labels=tuple(labels))
    given = [
        np.column_stack([c, np.full(len(c), 3)]) if a.is_set else c
        for a, c in zip(config.attributes, cells.values(), strict=True)
    ]
    types = TYPES if typed else {}
    table = decode_table(given, domain, config, seed, types=types)
    records_contract(config).check(table)
    return typed_table(table, domain, config, types), cells


def recoded(table: pa.Table) -> dict[str, np.ndarray]:
    """The codes into which the columns of a table are read."""
    config, found = declared(), {}
    encoded = encode_table(clean_table(table, config), config)
    for attribute, codes, own in zip(config.attributes, encoded.codes, encoded.labels, strict=True):
        labels = config.columns[attribute.name].labels or FOUND
        single = codes[:, 0] if codes.ndim > 1 else codes
        found[attribute.name] = np.array([*map(labels.index, own), len(labels)])[single]
    return found


def differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (one[name], other[name]) for name in one if not np.array_equal(one[name], other[name])
    }


def dtypes(table: pa.Table) -> dict[str, str]:
    return {name: repr(dtype) for name, dtype in table.to_pandas().dtypes.items()}


@settings(max_examples=5, deadline=None)
@example(codes=[MISSING], seed=0)
@given(codes=st.lists(st.integers(0, 40), min_size=1, max_size=40), seed=st.integers(0, 99))
def test_a_type_survives_whatever_is_drawn(codes: list[int], seed: int) -> None:
    """Also where all is missing, and where there is no row; no value leaves its bin or its domain by it."""
    usual = dtypes(released([0, 1], 0)[0])
    table, cells = released(codes, seed)
    kinds = dict(zip(NAMES, table.schema.types[:-1], strict=True))
    assert differing(kinds, {n: k for n, (_, _, k) in zip(NAMES, CASES, strict=True)}) == {}
    assert differing(recoded(table), cells) == {}
    for name, kind in kinds.items():
        if pa.types.is_dictionary(kind):
            labels = declared().columns[name].labels or FOUND
            words = table.column(name).chunk(0).dictionary.cast(pa.string()).to_pylist()
            assert words in (list(labels), ["no", "yes"])
    assert differing(dtypes(table), usual) == {}
    assert differing(dtypes(table.slice(0, 0)), usual) == {}
    assert usual["sure"] == "dtype('int16')"


def test_files_have_the_types(tmp_path: Path) -> None:
    """The Parquet file's are those that a Parquet file of such a source would have; both files are read back."""
    seen = []
    for number, codes in enumerate(([0, 1, 2, 3, 5, 8, 13, 40], [MISSING], [0])):
        table, cells = released(codes, number)
        place = tmp_path / str(number)
        place.mkdir()
        write_synthetic(place, [table.slice(0, 1), table.slice(1)], declared(), TYPES)
        sink = io.BytesIO()
        pq.write_table(table.schema.remove_metadata().empty_table(), sink)
        read = pq.read_table(place / "synthetic.parquet")
        assert read.schema.remove_metadata() == pq.read_schema(sink)
        seen.append(dtypes(read))
        convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(table.column_names, pa.string()), strings_can_be_null=False
        )
        spelled = pa_csv.read_csv(place / "synthetic.csv", convert_options=convert)
        assert differing(recoded(read), cells) == {}
        assert differing(recoded(spelled), cells) == {}
    assert differing(seen[0], seen[1]) == {}
    assert differing(seen[0], seen[2]) == {}


def test_without_types_dtypes_are_fixed_as_well() -> None:
    """A source of texts: the kinds decide, and nullable dtypes hold what can be missing."""
    first, second = (dtypes(released(codes, 1, typed=False)[0]) for codes in ([0, 1], [MISSING]))
    assert first == second
    assert "Int64Dtype()" in first.values()
    assert "BooleanDtype" in first.values()


def test_types_have_names() -> None:
    """One for each type with texts; the width of indices, which tells how many values there are, is not in it."""
    kinds = [
        *(kind for _, kind, _ in CASES),
        pa.dictionary(pa.int8(), pa.string()),
        pa.decimal128(38, 0),
        pa.time64("us"),
    ]
    schema = pa.schema([(str(i), kind) for i, kind in enumerate(kinds)])
    found = schema_types(schema, [*schema.names, "absent"])
    assert len(found) == len(kinds)
    narrow = pa.dictionary(pa.int32(), pa.string())
    for i, kind in enumerate(kinds):
        assert named_type(found[str(i)]) == (
            narrow if kind == pa.dictionary(pa.int8(), pa.string()) else kind
        )
    for kind in (
        pa.null(),
        pa.dictionary(pa.int8(), pa.null()),
        pa.list_(pa.int8()),
        pa.struct([]),
    ):
        assert schema_types(pa.schema([("x", kind)]), ["x"]) == {}


FRAME = pd.DataFrame(
    {
        "whole": pd.array([1, None], "UInt8"),
        "real": pd.array([1.5, None], "Float32"),
        "flag": pd.array([True, None], "boolean"),
        "text": pd.array(["a", None], "string"),
        "size": pd.Categorical(["low", "secret"], ["secret", "low"], ordered=True),
        "level": pd.Categorical([2, 1], [2, 1]),
        "zoned": pd.to_datetime(pd.Series(["2019-01-01", None])).dt.tz_localize("Europe/Berlin"),
        "arrow": pd.array([1, None], "int16[pyarrow]"),
        "plain": [1, 2],
        "object": pd.Series([1, "a"], dtype=object),
        "period": pd.period_range("2020", periods=2, freq="M"),
        "mixed": pd.Categorical([1, "a"]),
    }
)


def test_a_type_is_read_off_a_schema_and_never_off_values(tmp_path: Path) -> None:
    """Dtypes of a frame and a Parquet file of it have the same types; rows, and the values of categories, change none."""
    types = frame_types(FRAME, [*FRAME.columns, "absent"])
    assert types == {
        "whole": "uint8 (UInt8)",
        "real": "float (Float32)",
        "flag": "bool (boolean)",
        "text": "large_string (string)",
        "size": "dictionary<values=string, indices=int32, ordered=1>",
        "level": "dictionary<values=string, indices=int32, ordered=0>",
        "mixed": "dictionary<values=string, indices=int32, ordered=0>",
        "zoned": "timestamp[us, tz=Europe/Berlin]",
        "arrow": "int16 (int16[pyarrow])",
        "plain": "int64",
    }
    assert frame_types(FRAME.iloc[:0], FRAME.columns) == types
    series = [pd.Series(cells, dtype=object).astype("category") for cells in ([1, 2], [1, "x"])]
    of_numbers, of_any = (frame_types(pd.DataFrame({"v": values}), ["v"]) for values in series)
    assert of_numbers == of_any
    frame = FRAME.drop(columns=["object", "period", "mixed", "level", "size"])
    frame.to_parquet(tmp_path / "all.parquet")
    frame.iloc[:0].to_parquet(tmp_path / "none.parquet")
    (tmp_path / "texts.csv").write_text("whole\n1\n")
    form, names, found = (
        SourceFile(file="x"),
        list(map(str, FRAME.columns)),
        list(map(str, frame.columns)),
    )
    for name in ("all", "none"):
        assert TableSource(str(tmp_path / f"{name}.parquet"), form).types(names) == {
            c: types[c] for c in found
        }
    assert TableSource(str(tmp_path / "texts.csv"), form).types(["whole"]) == {}
    FRAME[["plain"]].astype("int32").to_parquet(tmp_path / "none.parquet")
    (tmp_path / "texts.csv").unlink()
    assert TableSource(str(tmp_path), form).types(["plain"]) == {}  # parts of two types
