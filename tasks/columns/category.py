"""Codes, names and yes-or-no answers: dictionary arrays over their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from marginweave.schemas.arrays import Codes
from marginweave.schemas.configuration.columns import OTHER, BooleanColumn, MeasuredColumn
from marginweave.schemas.configuration.columns.base import RULE_LABELS
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.schemas.errors import StageError
from marginweave.tasks.arrow import compute as pc
from marginweave.tasks.columns.base import ColumnValues, Kind, Uniform
from marginweave.tasks.columns.texts import distinct_texts
from marginweave.tasks.mechanisms.randomness import CellWords


class CategoryValues(ColumnValues[Kind]):
    """Values that are labels: of a public domain, or of a private one those that the table holds."""

    def clean(self, values: pa.Array) -> pa.Array:
        """Texts to labels; nulls preserved (docs/sources/data-processing.md: outside the domain follows `outside`).

        Returns:
            A dictionary array over the public labels, or over the sorted distinct texts of a private domain.
        """
        distinct, positions = distinct_texts(values)
        texts = [text.strip() for text in distinct.to_pylist()]
        absent = ValueMatcher(self.missing)
        labels, mapping = label_codes(self.column, texts, lambda text: absent.index(text) >= 0)
        codes = np.array(mapping, np.int32)[positions]
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(labels, pa.string()))

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """The positions in the dictionary."""
        codes: Codes = values.indices.fill_null(len(self.labels(values))).to_numpy(zero_copy_only=False)
        return codes

    def labels(self, values: pa.Array) -> tuple[str, ...]:
        """The declared labels, or those of the dictionary of a private domain."""
        return labels_in(self.column, values.dictionary)

    def decode(self, codes: Codes, labels: tuple[str, ...], uniform: Uniform) -> pa.Array:  # noqa: ARG002 - no draw
        """The label of each code."""
        indices = pa.array(codes.astype(np.int32), mask=codes == len(labels))
        return pa.DictionaryArray.from_arrays(indices, pa.array(labels, pa.string()))

    def declare(self, values: pa.Array) -> pa.Array:
        """Texts."""
        return values.dictionary_decode()


class BooleanValues(CategoryValues[BooleanColumn]):
    """False and true, which are released as booleans."""

    def declare(self, values: pa.Array) -> pa.Array:
        """Booleans."""
        return pc.equal(values.indices, 1)


def label_codes(
    column: MeasuredColumn, texts: Sequence[str], lacks: Callable[[str], bool]
) -> tuple[tuple[str, ...], list[int]]:
    """The labels, and the code of each trimmed text: -1 for one that is missing (`lacks`) or outside."""
    if column.private:
        labels = tuple(sorted({text for text in texts if not lacks(text)}))
        place = {label: code for code, label in enumerate(labels)}
        return labels, [place.get(text, -1) for text in texts]
    outside = column.labels.index(OTHER) if column.outside == OTHER else -1
    codes = [-1 if lacks(text) else code if (code := column.code_of(text)) >= 0 else outside for text in texts]
    return column.labels, codes


def labels_in(column: MeasuredColumn, dictionary: pa.Array) -> tuple[str, ...]:
    """The values of a column: the declared ones, whatever of them the table has, or of a private domain those it has.

    An Arrow table without a single value forgets the dictionary that it was given; a public domain must not follow it.
    """
    found = tuple(dictionary.to_pylist())
    if not column.private and found not in {(), column.labels}:
        raise StageError(f"encode: a column breaks the rule '{RULE_LABELS}'")
    return found if column.private else column.labels
