"""Packing is exact, deterministic, and opens nothing that could run."""

from __future__ import annotations

import gc
import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from marginweave.checkpoints.codecs import pack_arrays, pack_table, unpack_arrays, unpack_table

ARRAYS = st.dictionaries(
    st.text(max_size=8),
    hnp.arrays(
        dtype=st.sampled_from(
            [
                np.bool_,
                np.int8,
                np.uint16,
                np.int64,
                np.uint64,
                np.float64,
                np.dtype("U3"),
                np.dtype(">i4"),
            ]
        ),
        shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    ),
    max_size=3,
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(ARRAYS, st.dictionaries(st.text(max_size=4), JSON, max_size=3))
def test_arrays_come_back_and_bytes_do_not_depend_on_order(arrays: dict, meta: dict) -> None:
    """Names, dtypes, shapes, values and JSON survive; the same content in another order gives the same bytes."""
    packed = pack_arrays(arrays, meta)
    back, meta_back = unpack_arrays(packed)
    assert meta_back == meta
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    backwards = dict(reversed(arrays.items())), dict(reversed(meta.items()))
    assert pack_arrays(*backwards) == packed
    assert pack_arrays(back, meta_back) == packed


def test_layouts_survive() -> None:
    """Strided and Fortran-ordered arrays keep their values."""
    base = np.arange(2 * 3 * 5, dtype=np.int64).reshape(2, 3, 5)
    arrays = {
        "strided": base[:, ::-2],
        "fortran": np.asfortranarray(base),
        "scalar": np.array(7, np.uint8),
    }
    back, _ = unpack_arrays(pack_arrays(arrays, {}))
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def test_objects_and_nan_in_json_are_refused() -> None:
    """Nothing that would need pickle is packed or unpacked, and JSON has no NaN."""
    with pytest.raises(ValueError, match="Object arrays"):
        pack_arrays({"a": np.array([object()])}, {})
    with pytest.raises(ValueError, match="JSON compliant"):
        pack_arrays({}, {"a": math.nan})


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.text(max_size=4), st.none() | st.integers(-(2**40), 2**40)),
        max_size=7,
    ),
    st.integers(0, 7),
)
def test_tables_come_back_and_bytes_do_not_depend_on_chunks(rows: list, cut: int) -> None:
    """Values, nulls, types and metadata survive; one table in two chunks gives the same bytes as in one."""
    schema = pa.schema(
        [("text", pa.string()), ("number", pa.int64())], metadata={"a": json.dumps([1])}
    )
    table = pa.table([[row[0] for row in rows], [row[1] for row in rows]], schema=schema)
    halves = [
        pa.table([[row[0] for row in part], [row[1] for row in part]], schema=schema)
        for part in (rows[:cut], rows[cut:])
    ]
    packed = pack_table(table)
    assert unpack_table(packed).equals(table, check_metadata=True)
    assert pack_table(pa.concat_tables(halves)) == packed


def test_threads_read_at_once_while_garbage_is_collected() -> None:
    """Python 3.11.7 was seen to fail here without the lock: the collector's callback lets other threads parse meanwhile."""
    packed = pack_arrays({name: np.arange(5) for name in "abc"}, {})
    threshold, callback = gc.get_threshold(), lambda *_: sum(range(300))
    gc.callbacks.append(callback)
    gc.set_threshold(5)
    try:
        with ThreadPoolExecutor(6) as pool:
            sums = list(pool.map(lambda _: unpack_arrays(packed)[0]["b"].sum(), range(600)))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)
    assert sums == [10] * 600
