"""Digests of what mechanisms are given.

A digest is SHA-256 of an encoding that tells every input apart: a length comes before or after what it counts, and numbers are
little-endian. It does not depend on how inputs are cut into pieces, on memory, or on the number of cores. So a draw that is
repeated is given the same numbers, or is refused. Private: a digest is stored under a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.digests import add_integers, add_json, counts_digest
from marginweave.counts.candidates import CandidateSet
from marginweave.measurements.levels import LevelMechanism

if TYPE_CHECKING:
    from marginweave.counts.bounded_counts import BoundedCounts  # numba, which a plan does without


def values_digest(counts: Mapping[int, Integers], labels: Sequence[Sequence[str]]) -> str:
    """Return the digest of the counts of some attributes' values, from `count_values`, and of the values' texts."""
    digest = hashlib.sha256(b"values/1")
    add_json(digest, [[j, list(labels[j])] for j in sorted(counts)])
    digest.update(counts_digest(counts[j] for j in sorted(counts)).encode())
    return digest.hexdigest()


def level_digest(
    bounded: BoundedCounts,
    candidates: CandidateSet,
    mechanism: LevelMechanism,
    labels: Sequence[Sequence[str]] = (),
) -> str:
    """Return the digest of all that `draw_level` is given, except its bits, and of the texts of private values, if any.

    Args:
        bounded: its cells and counts, by columns, in ascending order.
        candidates: which fix the zero cells that are noised.
        mechanism: its noise and thresholds.
        labels: those of all columns; the labels of `mechanism.private_columns` enter the digest.

    Raises:
        MachineError: the disk refuses what memory does not hold.
    """
    digest = hashlib.sha256(b"level/1")
    private = sorted(mechanism.private_columns)
    facts = [
        mechanism.length,
        mechanism.contribution_bound,
        [mechanism.sigma.numerator, mechanism.sigma.denominator],
        [mechanism.threshold, mechanism.private_threshold, mechanism.raised_from],
        private,
        [list(labels[j]) for j in private if labels],
    ]
    add_json(digest, facts)
    add_json(digest, [candidates.length, list(candidates.sizes)])
    for keys in (candidates.survivors, candidates.forbidden):
        add_json(digest, [list(columns) for columns in sorted(keys)])
        for columns in sorted(keys):
            add_integers(digest, keys[columns])
    for columns in candidates.column_sets():
        pieces = hashlib.sha256()
        number = 0
        for cells, counts in bounded.pieces(columns):
            pieces.update(np.stack([cells, counts], axis=1).astype("<i8").tobytes())
            number += len(cells)
        add_json(digest, [list(columns), number])
        digest.update(pieces.digest())
    return digest.hexdigest()
