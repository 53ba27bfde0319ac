"""Whose row it is, and no more than theta rows of anybody, or one record that joins them.

Everything here looks at the rows of one subject at a time. Coupling: a row's word is uniform and independent of every other
row's, so the choice among the rows of one subject has the same distribution whatever other subjects there are. Two tables
that differ in one subject can be given the same words for all other rows, and then differ in that subject's rows alone:
theta of them at most.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.configuration.privacy import SubjectUnit
from marginweave.schemas.configuration.values import ValueMatcher
from marginweave.tasks.arrow import compute as pc
from marginweave.tasks.columns.base import distinct_texts
from marginweave.tasks.columns.category import distinct_sets, lowest_words
from marginweave.tasks.mechanisms.randomness import UniformWords

_WIDTH = 16


def subject_digests(
    ids: pa.Array, unit: SubjectUnit, missing: tuple[str, ...], key: bytes, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """A keyed digest of the subject of every row, shape (rows, 2), and which rows are somebody's. Private.

    BLAKE2b, 128 bits, under the run's key: what is set aside on disk holds no id, and two subjects share a digest with a
    chance of n^2 / 2^129. Ids are one subject's when they are equal as trimmed texts. A row whose id is empty or missing is
    nobody's, or, with `missing_subject: own`, a subject of its own, for which its number in the source stands.
    """
    distinct, positions = distinct_texts(ids)
    absent = ValueMatcher(missing)
    keyed = hashlib.blake2b(digest_size=_WIDTH, key=key, person=b"subject")
    digests = np.zeros((len(distinct), 2), np.uint64)
    present = np.zeros(len(distinct), np.bool_)
    for place, text in enumerate(distinct.to_pylist()):
        trimmed = text.strip()
        if trimmed and absent.index(trimmed) < 0:
            copy = keyed.copy()
            copy.update(trimmed.encode())
            digests[place], present[place] = np.frombuffer(copy.digest(), "<u8"), True
    subjects, known = digests[positions], present[positions]
    if unit.missing_subject == "own":
        subjects[~known, 0] = numbers[~known].astype(np.uint64)
        known = np.ones(len(known), np.bool_)
    return subjects, known


def same_subjects(low: NDArray[np.uint64], high: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The subject of every row as a number from 0, in the order of digests; shape (rows,). Private."""
    order = np.lexsort((low, high))
    new = np.ones(len(order), np.bool_)
    new[1:] = (low[order][1:] != low[order][:-1]) | (high[order][1:] != high[order][:-1])
    subjects = np.empty(len(order), np.int64)
    subjects[order] = np.cumsum(new) - 1
    return subjects


def kept_rows(subjects: NDArray[np.int64], most: int, words: UniformWords) -> NDArray[np.bool_]:
    """Which rows are counted: all rows of a subject that has at most `most`, a uniformly chosen `most` of any other's.

    The rows of a subject with the smallest words are kept; words are one a row, so that no row's word depends on another
    row. Equal words, which have probability 2^-64 a pair, are told apart by position.
    DP: `most`-stable for subjects that come, go or change.

    Args:
        subjects: the number of each row's subject, shape (rows,).
        most: theta, at least 1.
        words: secret randomness; as many words as rows are taken, whatever the subjects are.
    """
    word = words.uniform_words(len(subjects))
    kept = np.ones(len(subjects), np.bool_)
    over = np.flatnonzero(np.bincount(subjects)[subjects] > most)
    kept[over] = lowest_words(subjects[over], word[over], most)
    return kept


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
    return distinct_sets(np.repeat(owners, lengths), codes, records, labels)
