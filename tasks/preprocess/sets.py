"""Cleaning of cells that hold several values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marginweave.schemas.configuration.columns import OTHER, SetColumn
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.tasks.preprocess.texts import distinct_texts


def clean_set(values: pa.Array, column: SetColumn, missing: Sequence[str]) -> pa.ListArray:
    """Texts to sets of labels, without repetition and in the order of the labels; a cell without a value is null.

    The cap `max_values` is not applied here but when the table is encoded, when all that makes cells longer is done.

    Returns:
        A list array over a dictionary of the public labels, or of the sorted distinct values of a private domain.
    """
    distinct, positions = distinct_texts(values)
    absent = ValueMatcher(missing)
    cells = pa.array([None if absent.index(text) >= 0 else text for text in distinct.to_pylist()], pa.string())
    parts = pc.split_pattern(pc.fill_null(cells, ""), column.separator)
    labels, codes = _codes(parts, column, absent)
    owners = np.repeat(np.arange(len(cells)), pc.list_value_length(parts).to_numpy(zero_copy_only=False))
    known = codes >= 0
    pairs = np.unique(owners[known] * max(1, len(labels)) + codes[known])
    owners, codes = np.divmod(pairs, max(1, len(labels)))
    lengths = np.bincount(owners, minlength=len(cells))
    return list_array(*_gather(codes, lengths, positions), labels)


def list_array(codes: NDArray[np.int64], lengths: NDArray[np.int64], labels: Sequence[str]) -> pa.ListArray:
    """Cells of so many `codes` each, one after the other, over a dictionary of `labels`; an empty cell is null."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(labels, pa.string()))
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(lengths == 0))


def _codes(parts: pa.ListArray, column: SetColumn, absent: ValueMatcher) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Labels and the code of every part, -1 for one that is no value; a missing text is none of a private domain."""
    encoded = parts.flatten().dictionary_encode()
    texts = [text.strip() for text in encoded.dictionary.to_pylist()]
    if column.domain == "private":
        labels = tuple(sorted({text for text in texts if text and absent.index(text) < 0}))
        place = {label: code for code, label in enumerate(labels)}
        mapping = [place.get(text, -1) for text in texts]
    else:
        labels = column.labels
        fallback = labels.index(OTHER) if column.outside == OTHER else -1
        found = [column.matcher.index(text) for text in texts]
        mapping = [code if code >= 0 or not text else fallback for code, text in zip(found, texts, strict=True)]
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    return labels, np.array([*mapping, -1], np.int64)[indices]


def _gather(
    codes: NDArray[np.int64], lengths: NDArray[np.int64], positions: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells at `positions`: their codes, one after the other, and their lengths."""
    starts = np.cumsum(lengths) - lengths
    taken = lengths[positions]
    ends = np.cumsum(taken)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[positions] - (ends - taken), taken)
    return codes[places], taken
