"""Whose row it is, and no more than theta rows of anybody.

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
from marginweave.tasks.columns.texts import distinct_texts
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
    order = over[np.lexsort((word[over], subjects[over]))]
    mine = subjects[order]
    first = np.flatnonzero(np.concatenate(([True], mine[1:] != mine[:-1])))[: len(mine)]
    rank = np.arange(len(mine)) - np.repeat(first, np.diff(np.append(first, len(mine))))
    kept[order[rank >= most]] = False
    return kept
