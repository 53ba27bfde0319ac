"""What the digest of a frame is of: all its columns in their order, and nothing of how they lie in memory."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from marginweave.columns import values_of
from marginweave.runs import frame_cells
from marginweave.runs.frames import as_table, frame_bytes
from tests.support.configurations import configuration

TEXTS = ["a", None, "longer than twelve letters", "b", ""] * 8
COLUMNS: dict[str, pa.Array] = {
    "whole": pa.array([1, None, 3, 4, 5] * 8, pa.int16()),
    "real": pa.array([1.5, None, 0.0, -0.0, 2.0] * 8),
    "flag": pa.array([True, None, False, True, False] * 8),
    "text": pa.array(TEXTS),
    "view": pa.array(TEXTS, pa.string_view()),
    "coded": pa.array(TEXTS).dictionary_encode(),
    "bytes": pa.array([b"ab", None, b"", b"c", b"d"] * 8, pa.binary()),
    "two bytes": pa.array([b"ab", None, b"cd", b"ef", b"gh"] * 8, pa.binary(2)),
    "day": pa.array([1, None, 3, 4, 5] * 8, pa.date32()),
    "moment": pa.array([2**62, None, 3, 4, 5] * 8, pa.timestamp("s", "UTC")),
    "cents": pa.array(
        [Decimal(1), None, Decimal(3), Decimal(4), Decimal(5)] * 8, pa.decimal128(9, 2)
    ),
    "nothing": pa.nulls(40),
    "list": pa.array([[1, 2], None, [], [3], [4]] * 8),
    "record": pa.array(
        [{"a": 1}, None, {"a": 3}, {"a": None}, {}] * 8, pa.struct([("a", pa.int8())])
    ),
    "list of views": pa.array(
        [["a"], None, [], [None], ["b", "c"]] * 8, pa.large_list(pa.string_view())
    ),
    "runs": pa.RunEndEncodedArray.from_arrays(
        pa.array([4, 18, 40], pa.int32()), pa.array(["a", None, "b"], pa.string_view())
    ),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1] * 20, pa.int8()), [pa.array(range(40)), pa.array(TEXTS)]
    ),
    "map": pa.array([[("a", 1)], None, [], [("b", 2)], []] * 8, pa.map_(pa.string(), pa.int8())),
}


class Nameless:
    """An object whose text is its place in memory."""


class Silent:
    """An object that has no text."""

    def __str__(self) -> str:
        raise RuntimeError


OBJECTS = [
    "a",
    None,
    1,
    1.5,
    b"\xff",
    [1, {2, "x"}],
    {"a": 1},
    np.arange(2000),
    Decimal("sNaN"),
    "\ud800",
]
FRAME = pd.DataFrame(
    {
        "objects": pd.Series([*OBJECTS, Nameless(), Silent()], dtype=object),
        "texts": pd.Series(["a", None] * 6, dtype=object),
        "complex": np.array([1j] * 12),
        "period": pd.period_range("2020", periods=12, freq="M"),
        "interval": pd.interval_range(0, 12),
        "sparse": pd.arrays.SparseArray([0, 1] * 6),
        "mixed": pd.Categorical(pd.Series(["a", 1] * 6, dtype=object)),
        "view": pd.Series(["a", None] * 6, dtype=pd.ArrowDtype(pa.string_view())),
        7: range(12),
    }
)


def known(frame: Any) -> str:
    """What a frame is known by."""
    whole = hashlib.sha256()
    for chunk in frame_bytes(frame):
        whole.update(chunk)
    return whole.hexdigest()


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column has several blocks."""
    monkeypatch.setattr(frame_cells, "_ROWS", 16)


@pytest.mark.parametrize("name", COLUMNS)
def test_chunks_make_no_other_frame(name: str) -> None:
    table = pa.table({name: COLUMNS[name]})
    cuts = [0, 3, 3, 17, 40]
    cut = pa.concat_tables([table.slice(low, high - low) for low, high in pairwise(cuts)])
    assert cut.column(0).num_chunks > 1
    assert known(cut) == known(table)
    assert known(pa.concat_tables([table.slice(5, 2), table.slice(7, 28)])) == known(
        table.slice(5, 30)
    )
    changed = {
        known(table),
        known(table.slice(1)),
        known(table.slice(0, 38)),
        known(table.rename_columns(["other"])),
    }
    assert len(changed) == 4


def test_every_column_counts_and_its_place() -> None:
    """Also of dtypes that cannot be written, or whose cells have no text."""
    assert known(FRAME) == known(FRAME.copy())
    others = {known(FRAME.drop(columns=name)) for name in FRAME.columns}
    others |= {
        known(FRAME.iloc[:, ::-1]),
        known(FRAME.iloc[1:]),
        known(FRAME.drop(columns="view").iloc[::-1]),
        known(FRAME.iloc[:, :0]),
    }
    others |= {
        known(FRAME.assign(objects=FRAME["objects"].where(FRAME.index != place, "z")))
        for place in range(12)
    }
    assert len(others | {known(FRAME)}) == len(FRAME.columns) + 4 + 12 + 1


def test_what_lies_in_memory_beside_the_cells_is_not_of_the_frame() -> None:
    """Values under missing cells, the order of a dictionary, its unused values, and the place of an object."""
    missing = np.array([False, True] * 20)
    one, other = (pa.array(np.where(missing, rest, 7), mask=missing) for rest in (1, 2))
    assert known(pa.table({"a": one})) == known(pa.table({"a": other}))
    cells = pd.Categorical(["a", "b"] * 6, ["a", "b"])
    again = pd.Categorical(["a", "b"] * 6, ["c", "b", "a"])
    assert known(pd.DataFrame({"a": cells})) == known(pd.DataFrame({"a": again}))
    places = [
        pd.DataFrame({"a": pd.Series([Nameless(), [Nameless()]], dtype=object)}) for _ in range(2)
    ]
    assert known(places[0]) == known(places[1])
    assert known(FRAME.set_axis(FRAME.index + 1)) == known(FRAME)


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]", "category"])
def test_a_boolean_has_one_spelling_whatever_holds_it(dtype: str) -> None:
    """A category of "true" and "false" reads a frame as it reads the Parquet file of the same table."""
    column = configuration(columns={"x": {"type": "category", "values": ["true", "false"]}})
    kind = values_of(column.columns["x"], ())
    cells = [True, False, True]
    frame = as_table(pd.DataFrame({"x": pd.Series(cells, dtype=dtype)}), {"x": ""})
    stored = pa.array(cells)
    assert kind.clean(frame["x"].combine_chunks()).to_pylist() == kind.clean(stored).to_pylist()
    assert kind.clean(stored).to_pylist() == ["true", "false", "true"]
