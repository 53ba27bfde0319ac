"""Cleaning of codes, names and yes-or-no answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from marginweave.schemas.configuration.columns import OTHER, BooleanColumn, Category
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.tasks.preprocess.texts import distinct_texts


def clean_category(values: pa.Array, column: Category | BooleanColumn, missing: Sequence[str]) -> pa.DictionaryArray:
    """Texts to labels; nulls preserved (docs/sources/data-processing.md: outside the domain follows `outside`).

    Returns:
        A dictionary array over the public labels, or over the sorted distinct texts of a private domain.
    """
    distinct, positions = distinct_texts(values)
    texts = [text.strip() for text in distinct.to_pylist()]
    absent = ValueMatcher(missing)
    if isinstance(column, Category) and column.domain == "private":
        labels = tuple(sorted({text for text in texts if absent.index(text) < 0}))
        place = {label: i for i, label in enumerate(labels)}
        mapping = [place.get(text, -1) for text in texts]
    else:
        labels = column.labels
        fallback = labels.index(OTHER) if column.outside == OTHER else -1
        mapping = [-1 if absent.index(text) >= 0 else _or(column.index(text), fallback) for text in texts]
    codes = np.array(mapping, np.int32)[positions]
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(labels, pa.string()))


def _or(index: int, fallback: int) -> int:
    return index if index >= 0 else fallback
