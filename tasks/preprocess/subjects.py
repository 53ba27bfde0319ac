"""Whose row it is, and no more than theta rows of anybody.

Everything here looks at the rows of one subject at a time. Coupling: a row's word is uniform and independent of every other
row's, so the choice among the rows of one subject has the same distribution whatever other subjects there are. Two tables
that differ in one subject can be given the same words for all other rows, and then differ in that subject's rows alone:
theta of them at most.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.privacy import SubjectUnit
from marginweave.schemas.values import ValueMatcher
from marginweave.tasks.budget.randomness import UniformWords
from marginweave.tasks.preprocess.texts import distinct_texts

DROPPED = -1


def subjects_of(ids: pa.Array, unit: SubjectUnit, missing: tuple[str, ...]) -> NDArray[np.int64]:
    """The subject of every row as a number, shape (rows,); rows that are dropped have `DROPPED`. Private.

    Ids are one subject's when they are equal as trimmed texts. A row whose id is empty or missing is dropped, or, with
    `missing_subject: own`, a subject of its own.
    """
    distinct, positions = distinct_texts(ids)
    absent = ValueMatcher(missing)
    known: dict[str, int] = {}
    numbers = []
    for text in distinct.to_pylist():
        trimmed = text.strip()
        nobody = not trimmed or absent.index(trimmed) >= 0
        numbers.append(DROPPED if nobody else known.setdefault(trimmed, len(known)))
    subjects = np.array(numbers, np.int64)[positions]
    if unit.missing_subject == "own":
        alone = np.flatnonzero(subjects == DROPPED)
        subjects[alone] = len(known) + np.arange(len(alone))
    return subjects


def kept_rows(subjects: NDArray[np.int64], most: int, words: UniformWords) -> NDArray[np.bool_]:
    """Which rows are counted: all rows of a subject that has at most `most`, a uniformly chosen `most` of any other's.

    The rows of a subject with the smallest words are kept; words are one a row, so that no row's word depends on another
    row. Equal words, which have probability 2^-64 a pair, are told apart by position.
    DP: `most`-stable for subjects that come, go or change.

    Args:
        subjects: shape (rows,); `DROPPED` rows are not kept.
        most: theta, at least 1.
        words: secret randomness; as many words as rows are taken, whatever the subjects are.
    """
    word = words.uniform_words(len(subjects))
    kept: NDArray[np.bool_] = subjects != DROPPED
    rows = np.bincount(subjects[kept])
    over = np.flatnonzero(kept)
    over = over[rows[subjects[over]] > most]
    order = over[np.lexsort((word[over], subjects[over]))]
    mine = subjects[order]
    first = np.flatnonzero(np.concatenate(([True], mine[1:] != mine[:-1])))[: len(mine)]
    rank = np.arange(len(mine)) - np.repeat(first, np.diff(np.append(first, len(mine))))
    kept[order[rank >= most]] = False
    return kept
