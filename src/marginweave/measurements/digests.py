"""Digests of what mechanisms are given.

A digest is SHA-256 of an encoding that tells every input apart: lengths stand before or after what they count, numbers are
little-endian. How inputs are cut into pieces, how much memory and how many cores there are changes nothing. So a draw that is
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
    """Of how many records have each value of some attributes, from `count_values`, and of the values' texts."""
    whole = hashlib.sha256(b"values/1")
    add_json(whole, [[j, list(labels[j])] for j in sorted(counts)])
    whole.update(counts_digest(counts[j] for j in sorted(counts)).encode())
    return whole.hexdigest()


def level_digest(
    bounded: BoundedCounts, candidates: CandidateSet, mechanism: LevelMechanism, labels: Sequence[Sequence[str]] = ()
) -> str:
    """Of everything that `draw_level` is given but its bits, and of the texts of private values, if there are any.

    Args:
        bounded: its cells and counts, by columns, in ascending order.
        candidates: which fix the zero cells that are noised.
        mechanism: its noise and thresholds.
        labels: of all columns; those of `mechanism.private_columns` count.

    Raises:
        MachineError: the disk refuses what memory does not hold.
    """
    whole, private = hashlib.sha256(b"level/1"), sorted(mechanism.private_columns)
    facts = [
        mechanism.length,
        mechanism.contribution_bound,
        [mechanism.sigma.numerator, mechanism.sigma.denominator],
        [mechanism.threshold, mechanism.private_threshold, mechanism.raised_from],
        private,
        [list(labels[j]) for j in private if labels],
    ]
    add_json(whole, facts)
    add_json(whole, [candidates.length, list(candidates.sizes)])
    for keys in (candidates.survivors, candidates.forbidden):
        add_json(whole, [list(columns) for columns in sorted(keys)])
        for columns in sorted(keys):
            add_integers(whole, keys[columns])
    for columns in candidates.column_sets():
        pieces, cells = hashlib.sha256(), 0
        for mine, counts in bounded.pieces(columns):
            pieces.update(np.stack([mine, counts], axis=1).astype("<i8").tobytes())
            cells += len(mine)
        add_json(whole, [list(columns), cells])
        whole.update(pieces.digest())
    return whole.hexdigest()
