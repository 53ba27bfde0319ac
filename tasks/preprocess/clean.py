"""Row-local cleaning of a column: every step looks at one cell and public constants, so it is 1-stable."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marginweave.schemas.columns import Category, NumberColumn
from marginweave.schemas.configuration import Configuration
from marginweave.schemas.values import NUMBER_PATTERN, ValueMatcher, number

_NUMBER = f"^{NUMBER_PATTERN}$"


def clean_table(raw: pa.Table, configuration: Configuration) -> pa.Table:
    """Clean every declared column of `raw`.

    A category becomes a dictionary array over its public labels (a private domain: over the sorted distinct texts), a number
    becomes float64 clamped to its bounds (Harvard notes, Algorithm 1: x -> min(max(x, lower), upper)). Missing is null.

    DP: 1-stable preprocessing; domains and bounds are public constants, one row in is one row out.
    """
    columns = {}
    for name, column in configuration.columns.items():
        missing = configuration.missing_texts(name)
        values = raw.column(name).combine_chunks()
        clean = (
            clean_number(values, column, missing)
            if isinstance(column, NumberColumn)
            else clean_category(values, column, missing)
        )
        columns[name] = clean
    return pa.table(columns)


def clean_category(values: pa.Array, column: Category, missing: tuple[str, ...]) -> pa.DictionaryArray:
    """Texts to declared labels; nulls preserved (Algorithm 1, categorical: outside the domain follows `outside`)."""
    distinct, indices = _distinct(values)
    absent = ValueMatcher(missing)
    if column.domain == "private":
        texts = [text.strip() for text in distinct]
        labels = sorted({text for text in texts if absent.index(text) < 0})
        position = {label: i for i, label in enumerate(labels)}
        mapping = [position.get(text, -1) for text in texts]
    else:
        labels = list(column.labels)
        declared = ValueMatcher(labels)
        fallback = labels.index("other") if column.outside == "other" else -1
        mapping = [-1 if absent.index(t) >= 0 else _or(declared.index(t), fallback) for t in distinct]
    lookup = np.array([*mapping, -1], np.int32)
    codes = lookup[indices]
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(labels, pa.string()))


def clean_number(values: pa.Array, column: NumberColumn, missing: tuple[str, ...]) -> pa.Array:
    """Texts or numbers to float64 within bounds; a text that is no number is missing (`outside: error` stopped before)."""
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        numbers = _declared_missing(pc.cast(values, pa.float64(), safe=False), missing)
        numbers = pc.if_else(pc.is_finite(numbers), numbers, None)
    else:
        distinct, indices = _distinct(values)
        absent = ValueMatcher(missing)
        texts = pa.array([None if absent.index(text) >= 0 else text.strip() for text in distinct], pa.string())
        texts = pc.if_else(pc.match_substring_regex(texts, _NUMBER), texts, pa.scalar(None, pa.string()))
        numbers = pc.cast(texts, pa.float64()).take(pa.array(indices))
    array = np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)
    array = np.clip(array, column.edges[0], column.edges[-1])
    return pa.array(array, mask=np.isnan(array))


def _or(index: int, fallback: int) -> int:
    return index if index >= 0 else fallback


def _declared_missing(numbers: pa.Array, missing: tuple[str, ...]) -> pa.Array:
    """Native numbers that equal a declared missing number (such as -9) become null."""
    absent = [float(value) for text in missing if (value := number(text.strip())) is not None]
    return pc.if_else(pc.is_in(numbers, value_set=pa.array(absent, pa.float64())), None, numbers) if absent else numbers


def _distinct(values: pa.Array) -> tuple[list[str], np.ndarray]:
    """Distinct texts of a column and, for each row, its position among them; a null counts as the empty text."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not pa.types.is_string(values.type):
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)  # how frames write a gap
        values = pc.cast(values, pa.string())
    encoded = pc.fill_null(values, "").dictionary_encode()
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), indices
