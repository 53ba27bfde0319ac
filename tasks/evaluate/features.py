"""Codes as inputs of a classifier, and a fixed order of records to sample and split by."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from marginweave.tasks.encode.codes import value_slots
from marginweave.tasks.evaluate.numbering import Codes
from marginweave.tasks.mechanisms.randomness import KeyedBits

MOST_RECORDS = 50_000
"""So many records of a table are enough for a classifier."""

_PUBLIC_KEY = bytes(32)


def has_scikit_learn() -> bool:
    """Whether the extra `evaluation` is installed."""
    return find_spec("sklearn") is not None


def fixed_order(records: int, purpose: str) -> NDArray[np.intp]:
    """A permutation of the records that depends on their number and the purpose only, shape (records,).

    An evaluation repeats to the digit. No choice of it is released, so its key may be public. DP: none of its own.
    """
    return np.argsort(KeyedBits(key=_PUBLIC_KEY, purpose=purpose).uniform_words(records), kind="stable")


def take(table: Codes, rows: NDArray[np.intp]) -> list[NDArray[np.integer]]:
    """The chosen records of a table."""
    return [codes[rows] for codes in table]


def stacked(one: Codes, other: Codes, sizes: Sequence[int]) -> list[NDArray[np.integer]]:
    """Both tables' records, one after the other; a set has as many slots as the wider table's."""
    return [_stacked(a, b, size) for a, b, size in zip(one, other, sizes, strict=True)]


def code_columns(table: Codes, without: Collection[int] = ()) -> NDArray[np.float32]:
    """Codes as numbers, for trees: a column a slot, shape (n, slots); missing is the largest."""
    kept = [slot for j, codes in enumerate(table) if j not in without for slot in value_slots(codes)]
    return np.stack(kept, axis=1).astype(np.float32) if kept else np.zeros((len(table[0]), 0), np.float32)


def indicators(table: Codes, sizes: Sequence[int], without: Collection[int] = ()) -> sparse.csr_array:
    """One column of zeros and ones a value, for linear models, sparse, shape (n, columns).

    The first value of an attribute is the base and has none; missing is a value. Of a set every value has one and missing
    none. Columns without a one are left out.
    """
    blocks = []
    for j, codes in enumerate(table):
        if j in without:
            continue
        rows = np.concatenate([np.arange(len(codes)) for _ in value_slots(codes)])
        columns = np.concatenate(list(value_slots(codes))).astype(np.int64)
        kept = columns > 0 if codes.ndim == 1 else columns < sizes[j]
        ones = np.ones(kept.sum())
        blocks.append(sparse.csr_array((ones, (rows[kept], columns[kept])), shape=(len(codes), sizes[j] + 1)))
    joined = sparse.csr_array(sparse.hstack(blocks, format="csr")) if blocks else sparse.csr_array((len(table[0]), 0))
    return joined[:, np.flatnonzero(np.asarray(joined.sum(axis=0)))]


def _stacked(one: NDArray[np.integer], other: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    width = max(codes.shape[1] if codes.ndim > 1 else 0 for codes in (one, other))
    if width == 0:
        return np.concatenate([one, other]).astype(np.int64)
    padded = [np.full((len(codes), width), size, np.int64) for codes in (one, other)]
    for place, codes in zip(padded, (one, other), strict=True):
        place[:, : codes.shape[1]] = codes
    return np.concatenate(padded)
