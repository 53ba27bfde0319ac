"""Codes, names and yes-or-no answers as dictionary arrays over their labels; sets as list arrays, cut to a public cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Flags, Integers, Words
from marginweave.base.arrow import compute as pc
from marginweave.base.errors import StageError
from marginweave.columns.base import LABELED, ColumnValues, Kind, Uniform, distinct_texts
from marginweave.columns.kept_rules import kept_texts
from marginweave.configuration.columns import OTHER, BooleanColumn, MeasuredColumn, SetColumn
from marginweave.configuration.columns.base import NOT_DECLARED, RESERVED, RULE_LABELS
from marginweave.configuration.columns.category import FALSE_VALUES, TRUE_VALUES
from marginweave.configuration.values import ValueMatcher
from marginweave.mechanisms.randomness import CellWords


class CategoryValues(ColumnValues[Kind]):
    """Values that are labels: of a public domain, or of a private one those that the table holds."""

    @property
    def clean_type(self) -> pa.DataType:
        """Texts behind a dictionary."""
        return LABELED

    @property
    def declared_type(self) -> pa.DataType:
        """Texts."""
        return pa.string()

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

    def typed(self, values: pa.Array, labels: tuple[str, ...]) -> pa.Array:
        """As of every column; behind a dictionary of all labels in their order where the source has one.

        The order of a private domain is that of the data, so that its values have none.
        """
        if self.kind is None or not pa.types.is_dictionary(self.kind):
            return super().typed(values, labels)
        every = self._ends(labels)[: len(labels)]
        cells, ordered = super().typed(every, labels), self.kind.ordered and not self.column.private
        if cells.type != self.kind.value_type:
            return values
        return pa.DictionaryArray.from_arrays(pc.index_in(values, value_set=every), cells, ordered=ordered)


class BooleanValues(CategoryValues[BooleanColumn]):
    """False and true, which are released as booleans."""

    @property
    def declared_type(self) -> pa.DataType:
        """Booleans."""
        return pa.bool_()

    def declare(self, values: pa.Array) -> pa.Array:
        """Booleans."""
        return pc.equal(values.indices, 1)

    def _cells(self, values: pa.Array, cell: pa.DataType) -> pa.Array:
        """As they are declared; 0 and 1 of a number where nothing is."""
        return (values if pa.types.is_boolean(cell) else self.spelled(values)).cast(cell)

    def spelled(self, values: pa.Array) -> pa.Array:
        """The first of the declared texts."""
        true, false = self.column.true_values, self.column.false_values
        if not pa.types.is_boolean(values.type) or not (true or false):
            return values
        return pc.if_else(values, (true or TRUE_VALUES)[0], (false or FALSE_VALUES)[0])


def label_codes(
    column: MeasuredColumn, texts: Sequence[str], lacks: Callable[[str], bool]
) -> tuple[tuple[str, ...], list[int]]:
    """The labels, and the code of each trimmed text: -1 for one that is missing (`lacks`) or outside."""
    if column.private:
        # An empty cell is no value, and neither is a text that is the name of cells without one.
        labels = tuple(sorted({text for text in texts if text and text not in RESERVED and not lacks(text)}))
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


_COLUMN = 32  # bits of a slot that a value has


class SetValues(ColumnValues[SetColumn]):
    """Cells of several values."""

    @property
    def clean_type(self) -> pa.DataType:
        """Lists of texts behind a dictionary."""
        return pa.list_(LABELED)

    @property
    def declared_type(self) -> pa.DataType:
        """Texts."""
        return pa.string()

    def _accepted(self, texts: Sequence[str]) -> Flags:
        """As `accepts` says of each, a value once however many cells hold it."""
        return kept_texts(self.column.part_rule, texts)

    def clean(self, values: pa.Array) -> pa.Array:
        """Texts to sets of labels, without repetition and in the order of the labels; a cell without a value is null.

        The cap `max_values` is not applied here but when the table is encoded, when all that makes cells longer is done.
        Where the column `marks_undeclared`, one entry more stands for all values of a cell that are not declared.

        Returns:
            A list array over a dictionary of the public labels, or of the sorted distinct values of a private domain.
        """
        distinct, positions = distinct_texts(values)
        absent = ValueMatcher(self.missing)
        cells = pa.array([None if absent.index(text) >= 0 else text for text in distinct.to_pylist()], pa.string())
        parts = pc.split_pattern(pc.fill_null(cells, ""), self.column.separator)
        labels, codes = self._codes(parts, absent)
        owners = np.repeat(np.arange(len(cells)), pc.list_value_length(parts).to_numpy(zero_copy_only=False))
        known = codes >= 0
        return distinct_sets(owners[known], codes[known], len(cells), labels).take(pa.array(positions))

    def _codes(self, parts: pa.ListArray, absent: ValueMatcher) -> tuple[tuple[str, ...], Integers]:
        """Labels and the code of every part, -1 for one that is no value; a missing text is none of a private domain."""
        encoded = parts.flatten().dictionary_encode()
        texts = [text.strip() for text in encoded.dictionary.to_pylist()]
        labels, mapping = label_codes(
            self.column, texts, lambda text: not text or (self.column.private and absent.index(text) >= 0)
        )
        if self.column.marks_undeclared:
            mapping = [len(labels) if text and code < 0 else code for text, code in zip(texts, mapping, strict=True)]
            labels = (*labels, NOT_DECLARED)
        return labels, np.array([*mapping, -1], np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:
        """Codes of shape (records, width): a uniform choice of `width` values where there are more, without `words` all."""
        return set_codes(values, len(self.labels(values)), None if words is None else self.column.width, words)

    def undeclared(self, values: pa.Array) -> Flags:
        """Which cells held a value that is not declared, however many; shape (records,). DP: 1-stable, cell by cell."""
        owners, codes = _owned_codes(values)
        return np.bincount(owners[codes == len(self.labels(values))], minlength=len(values)) > 0

    def labels(self, values: pa.Array) -> tuple[str, ...]:
        """The declared labels, or those of the dictionary of a private domain."""
        dictionary = values.values.dictionary
        return labels_in(
            self.column, dictionary[: len(self.column.labels)] if self.column.marks_undeclared else dictionary
        )

    def decode(self, codes: Codes, labels: tuple[str, ...], uniform: Uniform) -> pa.Array:  # noqa: ARG002 - no draw
        """Cells of their values in the order of the labels, whatever slots are empty; a cell without any is null."""
        present = codes != len(labels)
        return list_array(codes[present], present.sum(axis=1), labels)

    def declare(self, values: pa.Array) -> pa.Array:
        """Texts, the values joined by the separator."""
        texts = pa.ListArray.from_arrays(
            values.offsets, values.values.dictionary_decode(), mask=values.is_null() if values.null_count else None
        )
        return pc.binary_join(texts, self.column.separator)


@dataclass(frozen=True)
class ColumnWords:
    """The words of one of several columns: none is that of another column."""

    words: CellWords
    column: int

    def words_of(self, records: Integers, slots: Integers | int = 0) -> Words:
        """The word of each record and value."""
        return self.words.words_of(records, np.asarray(slots) + (self.column << _COLUMN))


def set_codes(values: pa.ListArray, size: int, cap: int | None, words: CellWords | None) -> Integers:
    """Codes of sets, shape (records, width), the values of a cell in increasing order and then the missing code `size`.

    A code `size` of a clean cell, that of values that are not declared, is left out. The width is `cap`; of a cell with more
    values a uniformly chosen subset of `cap` is kept: those with the smallest words, which are one for each row and value,
    independent of all other cells. Without a cap the width is that of the longest cell.
    DP: 1-stable preprocessing; row-local under coupled words.
    """
    owners, codes = _owned_codes(values)
    declared = codes < size
    owners, codes = owners[declared], codes[declared]
    lengths = np.bincount(owners, minlength=len(values))
    if cap is not None and words is not None:
        owners, codes, lengths = cut_sets(owners, codes, lengths, cap, words)
    return pad_sets(owners, codes, lengths, int(lengths.max(initial=1)) if cap is None else cap, size)


def _owned_codes(values: pa.ListArray) -> tuple[Integers, Integers]:
    """The row, and the code, of each value of all cells."""
    lengths = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = values.flatten().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return np.repeat(np.arange(len(lengths)), lengths), codes


def pad_sets(owners: Integers, codes: Integers, lengths: Integers, width: int, size: int) -> Integers:
    """Values, one after the other, as rows of `width` codes, filled up with `size`; `owners` has the row of each value."""
    places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    padded = np.full((len(lengths), width), size, np.int64)
    padded[owners, places] = codes
    return padded


def cut_sets(
    owners: Integers, codes: Integers, lengths: Integers, cap: int, words: CellWords
) -> tuple[Integers, Integers, Integers]:
    """The same with at most `cap` values a row: of more, a uniformly chosen subset, those with the smallest words."""
    over = np.flatnonzero(lengths[owners] > cap)
    if not len(over):
        return owners, codes, lengths
    kept = np.ones(len(owners), np.bool_)
    kept[over] = lowest_words(owners[over], words.words_of(owners[over], codes[over]), cap)
    return owners[kept], codes[kept], np.minimum(lengths, cap)


def lowest_words(owners: Integers, words: Words, most: int) -> Flags:
    """Which entries have one of the `most` smallest words of their owner; of equal words the earlier goes first."""
    order = np.lexsort((words, owners))
    ordered = owners[order]
    kept = np.empty(len(order), np.bool_)
    kept[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered) < most
    return kept


def list_array(codes: Codes, lengths: Integers, labels: Sequence[str]) -> pa.ListArray:
    """Cells of so many `codes` each, one after the other, over a dictionary of `labels`; an empty cell is null."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(labels, pa.string()))
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(lengths == 0))


def distinct_sets(owners: Integers, codes: Integers, cells: int, labels: Sequence[str]) -> pa.ListArray:
    """So many `cells`, each of the codes that it owns, once each and in increasing order."""
    pairs = np.unique(owners * max(1, len(labels)) + codes)
    owners, codes = np.divmod(pairs, max(1, len(labels)))
    return list_array(codes, np.bincount(owners, minlength=cells), labels)
