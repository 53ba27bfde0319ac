"""Codes, names and yes-or-no answers as dictionary arrays over their labels; sets as list arrays, cut to a public cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Integers, Words
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.base.errors import StageError
from marginweave.columns.base import LABELED, ColumnValues, Kind, Uniform, distinct_texts
from marginweave.columns.kept_rules import kept_texts
from marginweave.configuration.columns import OTHER, BooleanColumn, MeasuredColumn, SetColumn
from marginweave.configuration.columns.base import NOT_DECLARED, RESERVED, RULE_LABELS
from marginweave.configuration.columns.category import FALSE_VALUES, TRUE_VALUES
from marginweave.configuration.values import ValueMatcher
from marginweave.mechanisms.randomness import CellWords


class CategoryValues(ColumnValues[Kind]):
    """Values that are labels: of a public domain, or those of a private domain that are in the table."""

    @property
    def clean_type(self) -> pa.DataType:
        """Type of texts behind a dictionary."""
        return LABELED

    @property
    def declared_type(self) -> pa.DataType:
        """Type of texts."""
        return pa.string()

    def clean(self, values: pa.Array) -> pa.Array:
        """Map texts to labels; nulls preserved (docs/sources/data-processing.md: outside the domain follows `outside`).

        Returns:
            A dictionary array over the public labels, or over the sorted distinct texts of a private domain.
        """
        distinct, positions = distinct_texts(values)
        texts = [text.strip() for text in distinct.to_pylist()]
        matcher = ValueMatcher(self.missing)

        def is_missing(text: str) -> bool:
            return matcher.index(text) >= 0

        labels, mapping = label_codes(self.column, texts, is_missing)
        code_of_text = np.array(mapping, np.int32)
        codes = code_of_text[positions]
        return _labeled(codes, labels, missing=codes < 0)

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """Return the positions in the dictionary."""
        missing = len(self.labels(values))
        codes: Codes = to_numpy(values.indices.fill_null(missing))
        return codes

    def labels(self, values: pa.Array) -> tuple[str, ...]:
        """Return the declared labels, or those of the dictionary of a private domain."""
        return labels_in(self.column, values.dictionary)

    def decode(
        self,
        codes: Codes,
        labels: tuple[str, ...],
        uniform: Uniform,  # noqa: ARG002 - no draw
    ) -> pa.Array:
        """Return the label of each code."""
        return _labeled(codes, labels, missing=codes == len(labels))

    def declare(self, values: pa.Array) -> pa.Array:
        """Return the labels as texts."""
        return values.dictionary_decode()

    def typed(self, values: pa.Array, labels: tuple[str, ...]) -> pa.Array:
        """Return declared values in the type of the source; a dictionary there has all labels in their order.

        The dictionary of a private domain is unordered, because the order of its values is that of the data.
        """
        if self.kind is None or not pa.types.is_dictionary(self.kind):
            return super().typed(values, labels)
        every_label = self._ends(labels)[: len(labels)]
        cells = super().typed(every_label, labels)
        if cells.type != self.kind.value_type:
            return values
        ordered = self.kind.ordered and not self.column.private
        indices = pc.index_in(values, value_set=every_label)
        return pa.DictionaryArray.from_arrays(indices, cells, ordered=ordered)


def _labeled(
    codes: Codes,
    labels: Sequence[str],
    missing: Flags | None = None,
) -> pa.DictionaryArray:
    """Return the label of each code, behind a dictionary of all labels; null where it is missing."""
    indices = pa.array(codes.astype(np.int32), mask=missing)
    dictionary = pa.array(labels, pa.string())
    return pa.DictionaryArray.from_arrays(indices, dictionary)


class BooleanValues(CategoryValues[BooleanColumn]):
    """False and true, which are released as booleans."""

    @property
    def declared_type(self) -> pa.DataType:
        """Type of booleans."""
        return pa.bool_()

    def declare(self, values: pa.Array) -> pa.Array:
        """Return the labels as booleans."""
        return pc.equal(values.indices, 1)

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """Return the declared booleans; as numbers they are 0 and 1 unless texts are declared."""
        if not pa.types.is_boolean(cell):
            values = self.spelled(values)
        return values.cast(cell)

    def spelled(self, values: pa.Array) -> pa.Array:
        """Return the first of the declared texts of each value."""
        column = self.column
        has_texts = bool(column.true_values or column.false_values)
        if not pa.types.is_boolean(values.type) or not has_texts:
            return values
        true_text = (column.true_values or TRUE_VALUES)[0]
        false_text = (column.false_values or FALSE_VALUES)[0]
        return pc.if_else(values, true_text, false_text)


def label_codes(
    column: MeasuredColumn,
    texts: Sequence[str],
    is_missing: Callable[[str], bool],
) -> tuple[tuple[str, ...], list[int]]:
    """Return the labels, and the code of each trimmed text: -1 for a text that is missing or outside."""
    if column.private:
        # An empty cell is no value, and neither is a text that is the name of cells without one.
        values = set()
        for text in texts:
            is_value = text and text not in RESERVED
            if is_value and not is_missing(text):
                values.add(text)
        labels = tuple(sorted(values))
        code_of_label = {label: code for code, label in enumerate(labels)}
        return labels, [code_of_label.get(text, -1) for text in texts]
    outside = column.labels.index(OTHER) if column.outside == OTHER else -1

    def code_of(text: str) -> int:
        if is_missing(text):
            return -1
        code = column.code_of(text)
        return code if code >= 0 else outside

    return column.labels, [code_of(text) for text in texts]


def labels_in(column: MeasuredColumn, dictionary: pa.Array) -> tuple[str, ...]:
    """Return the values of a column: all declared ones, or those of a private domain that the table has.

    An Arrow table without a single value loses the dictionary that it was given; a public domain must not depend on that.
    """
    labels = tuple(dictionary.to_pylist())
    if column.private:
        return labels
    if labels not in {(), column.labels}:
        raise StageError(f"encode: a column breaks the rule '{RULE_LABELS}'")
    return column.labels


_VALUE_BITS = 32  # of a slot of random words; the column is in the bits above them


class SetValues(ColumnValues[SetColumn]):
    """Cells of several values."""

    @property
    def clean_type(self) -> pa.DataType:
        """Type of lists of texts behind a dictionary."""
        return pa.list_(LABELED)

    @property
    def declared_type(self) -> pa.DataType:
        """Type of texts."""
        return pa.string()

    def _accepted(self, texts: Sequence[str]) -> Flags:
        """Return `accepts` for each text; a value in several cells is examined once."""
        return kept_texts(self.column.part_rule, texts)

    def clean(self, values: pa.Array) -> pa.Array:
        """Map texts to sets of labels, each once and in the order of the labels; a cell without a value is null.

        The cap `max_values` is not applied here but when the table is encoded, after all steps that make cells longer.
        If the column `marks_undeclared`, one entry more represents all values of a cell that are not declared.

        Returns:
            A list array over a dictionary of the public labels, or of the sorted distinct values of a private domain.
        """
        distinct, positions = distinct_texts(values)
        matcher = ValueMatcher(self.missing)
        texts = distinct.to_pylist()
        present = ["" if matcher.index(text) >= 0 else text for text in texts]
        cells = pa.array(present, pa.string())
        parts = pc.split_pattern(cells, self.column.separator)
        labels, codes = self._codes(parts, matcher)
        lengths = to_numpy(pc.list_value_length(parts))
        owners = np.repeat(np.arange(len(cells)), lengths)
        is_value = codes >= 0
        sets = distinct_sets(owners[is_value], codes[is_value], len(cells), labels)
        return sets.take(pa.array(positions))

    def _codes(
        self, parts: pa.ListArray, matcher: ValueMatcher
    ) -> tuple[tuple[str, ...], Integers]:
        """Return labels and the code of every part, -1 for no value; a private domain contains no missing text."""
        encoded = parts.flatten().dictionary_encode()
        texts = [text.strip() for text in encoded.dictionary.to_pylist()]

        def is_missing(text: str) -> bool:
            return not text or (self.column.private and matcher.index(text) >= 0)

        labels, mapping = label_codes(self.column, texts, is_missing)
        code_of_text = np.array(mapping, np.int64)
        if self.column.marks_undeclared:
            is_filled = np.array([text != "" for text in texts], np.bool_)
            is_undeclared = is_filled & (code_of_text < 0)
            code_of_text[is_undeclared] = len(labels)
            labels = (*labels, NOT_DECLARED)
        positions = to_numpy(encoded.indices)
        return labels, code_of_text[positions]

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:
        """Return codes of shape (records, width): a uniform choice of `width` values if there are more, without `words` all."""
        missing = len(self.labels(values))
        cap = None if words is None else self.column.width
        return set_codes(values, missing, cap, words)

    def undeclared(self, values: pa.Array) -> Flags:
        """Return which cells had values that are not declared, however many; shape (records,). DP: 1-stable, cell by cell."""
        owners, codes = _owned_codes(values)
        is_undeclared = codes == len(self.labels(values))
        undeclared_values = np.bincount(owners[is_undeclared], minlength=len(values))
        return undeclared_values > 0

    def labels(self, values: pa.Array) -> tuple[str, ...]:
        """Return the declared labels, or those of the dictionary of a private domain."""
        dictionary = values.values.dictionary
        if self.column.marks_undeclared:
            dictionary = dictionary[: len(self.column.labels)]
        return labels_in(self.column, dictionary)

    def decode(
        self,
        codes: Codes,
        labels: tuple[str, ...],
        uniform: Uniform,  # noqa: ARG002 - no draw
    ) -> pa.Array:
        """Return cells of their values in the order of the labels, whatever slots are empty; a cell without any is null."""
        is_value = codes != len(labels)
        lengths = is_value.sum(axis=1)
        return list_array(codes[is_value], lengths, labels)

    def declare(self, values: pa.Array) -> pa.Array:
        """Return texts, the values joined by the separator."""
        mask = values.is_null() if values.null_count else None
        flat = values.values.dictionary_decode()
        texts = pa.ListArray.from_arrays(values.offsets, flat, mask=mask)
        return pc.binary_join(texts, self.column.separator)


@dataclass(frozen=True)
class ColumnWords:
    """The random words of one of several columns, which share no word."""

    words: CellWords
    column: int

    def words_of(self, records: Integers, slots: Integers | int = 0) -> Words:
        """Return the word of each record and value."""
        first_slot = self.column << _VALUE_BITS
        return self.words.words_of(records, first_slot + np.asarray(slots))


def set_codes(
    values: pa.ListArray,
    size: int,
    cap: int | None,
    words: CellWords | None,
) -> Integers:
    """Return codes of sets, shape (records, width): a cell's values in increasing order and then the missing code `size`.

    A code `size` of a clean cell, that of values that are not declared, is left out. The width is `cap`; of a cell with more
    values a uniformly chosen subset of `cap` is kept: those with the smallest words, which are one for each row and value,
    independent of all other cells. Without a cap the width is that of the longest cell.
    DP: 1-stable preprocessing; row-local under coupled words.
    """
    owners, codes = _owned_codes(values)
    declared = codes < size
    owners = owners[declared]
    codes = codes[declared]
    lengths = np.bincount(owners, minlength=len(values))
    if cap is not None and words is not None:
        owners, codes, lengths = cut_sets(owners, codes, lengths, cap, words)
    width = int(lengths.max(initial=1)) if cap is None else cap
    return pad_sets(owners, codes, lengths, width, size)


def _owned_codes(values: pa.ListArray) -> tuple[Integers, Integers]:
    """Return the row, and the code, of each value of all cells."""
    lengths = to_numpy(values.value_lengths().fill_null(0))
    owners = np.repeat(np.arange(len(values)), lengths.astype(np.int64))
    codes = to_numpy(values.flatten().indices)
    return owners, codes.astype(np.int64)


def pad_sets(
    owners: Integers,
    codes: Integers,
    lengths: Integers,
    width: int,
    size: int,
) -> Integers:
    """Return concatenated values as rows of `width` codes, padded with `size`; `owners` has the row of each value."""
    # the place of a value in its row: its number, less that of the row's first value
    first_of_row = np.cumsum(lengths) - lengths
    first_of_value = np.repeat(first_of_row, lengths)
    places = np.arange(len(owners)) - first_of_value
    padded = np.full((len(lengths), width), size, np.int64)
    padded[owners, places] = codes
    return padded


def cut_sets(
    owners: Integers,
    codes: Integers,
    lengths: Integers,
    cap: int,
    words: CellWords,
) -> tuple[Integers, Integers, Integers]:
    """Return the values with at most `cap` a row: of more, a uniformly chosen subset, those with the smallest words."""
    over = np.flatnonzero(lengths[owners] > cap)
    if not len(over):
        return owners, codes, lengths
    is_chosen = np.ones(len(owners), np.bool_)
    words_over = words.words_of(owners[over], codes[over])
    is_chosen[over] = lowest_words(owners[over], words_over, cap)
    return owners[is_chosen], codes[is_chosen], np.minimum(lengths, cap)


def lowest_words(
    owners: Integers,
    words: Words,
    most: int,
) -> Flags:
    """Return which entries have one of the `most` smallest words of their owner; of equal words the earlier comes first."""
    order = np.lexsort((words, owners))
    ordered = owners[order]
    is_low = np.empty(len(order), np.bool_)
    # entries are ordered by owner: their rank is their place after the owner's first
    first_of_owner = np.searchsorted(ordered, ordered)
    rank = np.arange(len(order)) - first_of_owner
    is_low[order] = rank < most
    return is_low


def list_array(
    codes: Codes,
    lengths: Integers,
    labels: Sequence[str],
) -> pa.ListArray:
    """Return cells of `lengths` consecutive `codes` each, over a dictionary of `labels`; an empty cell is null."""
    offsets = list_offsets(lengths)
    values = _labeled(codes, labels)
    is_empty = pa.array(lengths == 0)
    return pa.ListArray.from_arrays(offsets, values, mask=is_empty)


def list_offsets(lengths: Integers) -> pa.Array:
    """Return the offsets of lists of these lengths, the end of the last included, as Arrow wants them; shape (lists + 1,)."""
    ends = np.cumsum(lengths)
    offsets = np.concatenate([[0], ends])
    return pa.array(offsets.astype(np.int32))


def distinct_sets(
    owners: Integers,
    codes: Integers,
    cells: int,
    labels: Sequence[str],
) -> pa.ListArray:
    """Return `cells` sets, each of the codes that it owns, once each and in increasing order."""
    size = max(1, len(labels))
    # a key of each pair of an owner and a code
    keys = np.unique(owners * size + codes)
    owners, codes = np.divmod(keys, size)
    lengths = np.bincount(owners, minlength=cells)
    return list_array(codes, lengths, labels)
