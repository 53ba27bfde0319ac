"""Several rows of one subject become one record."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.tasks.arrow import compute as pc
from marginweave.tasks.columns.sets import list_array


def join_subjects(clean: pa.Table, subjects: NDArray[np.int64]) -> pa.Table:
    """One record a subject, in the order of the subjects' numbers (SDS's joiner).

    A set becomes the union of the subject's sets. Any other column has the value in which all rows of the subject that have
    one agree, and is missing where they disagree: a rule that is public, and looks at one subject alone.
    DP: 1-stable for subjects that come, go or change.

    Args:
        clean: a clean table, one row a row of the source; sets not yet capped.
        subjects: the number of each row's subject, every number from 0 on at least once; shape (rows,).
    """
    records = int(subjects.max()) + 1 if len(subjects) else 0
    columns = {}
    for name in clean.column_names:
        values = clean.column(name).combine_chunks()
        joined = _united if pa.types.is_list(values.type) else _agreed
        columns[name] = joined(values, subjects, records)
    return pa.table(columns)


def _agreed(values: pa.Array, owners: NDArray[np.int64], records: int) -> pa.Array:
    """The only value of each owner; null for none and for several."""
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    present = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)[present].astype(np.int64)
    # -1 stays where an owner has no value; lowest and highest code differ where there are several
    lowest, highest = np.full(records, len(encoded.dictionary), np.int64), np.full(records, -1, np.int64)
    np.minimum.at(lowest, owners[present], codes)
    np.maximum.at(highest, owners[present], codes)
    chosen = pa.array(lowest.astype(np.int32), mask=lowest != highest)
    if pa.types.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(chosen, encoded.dictionary)
    return encoded.dictionary.take(chosen)


def _united(values: pa.ListArray, owners: NDArray[np.int64], records: int) -> pa.ListArray:
    """All values of each owner, once each, in the order of the labels."""
    flat = values.flatten()
    labels = flat.dictionary.to_pylist()
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    codes = flat.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = np.unique(np.repeat(owners, lengths) * max(1, len(labels)) + codes)
    owner, code = np.divmod(pairs, max(1, len(labels)))
    return list_array(code, np.bincount(owner, minlength=records), labels)
