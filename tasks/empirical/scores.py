"""Scores by which an audit tells tables with a canary from those without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from marginweave.schemas.arrays import Counts, Floats
from marginweave.tasks.empirical.bounds import Hits


@dataclass(frozen=True, kw_only=True)
class Scores:
    """A score of every trial, with and without the canary, and the `cut` above which the test says "present".

    The cut is set before the trials are looked at, or from trials that are not among them.
    """

    present: Floats
    absent: Floats
    cut: float

    @property
    def hits(self) -> Hits:
        """How often the test says "present"."""
        above = (int((scores > self.cut).sum()) for scores in (self.present, self.absent))
        return Hits(present=next(above), absent=next(above), trials=len(self.present))


def joint_scores(parts: Sequence[Scores]) -> Scores:
    """Scores of mechanisms that are run beside each other: log-likelihood ratios of independent noise add up."""
    trials = min(len(part.present) for part in parts)
    return Scores(
        present=np.sum([part.present[:trials] for part in parts], axis=0),
        absent=np.sum([part.absent[:trials] for part in parts], axis=0),
        cut=sum(part.cut for part in parts),
    )


def shift_score(noisy: Counts, exact: Counts, shift: Counts, deviation: float | Fraction) -> Floats:
    """Logarithm of the likelihood ratio of counts `exact + shift` to `exact` under Gaussian noise, but for its constant.

    sum over cells of shift (noisy - exact) / deviation^2, by Neyman and Pearson the best test there is; with
    lambda = |shift| / deviation it is N(0, lambda^2) without the canary and N(lambda^2, lambda^2) with it.

    Args:
        noisy: shape (trials, *cells).
        exact: shape (*cells), without the canary.
        shift: shape (*cells), what the canary adds.
        deviation: of the noise.
    """
    moved = np.flatnonzero(shift)
    difference = noisy.reshape(len(noisy), -1)[:, moved] - exact.ravel()[moved]
    scores: Floats = difference @ shift.ravel()[moved].astype(np.float64) / float(deviation) ** 2
    return scores


def separation(shifts: Iterable[tuple[Counts, float | Fraction]]) -> float:
    """lambda^2, the sum over vectors of |shift|^2 / deviation^2; half of it is the cut of least error."""
    return sum(float((shift.astype(np.float64) ** 2).sum()) / float(deviation) ** 2 for shift, deviation in shifts)


def split_cut(present: Floats, absent: Floats, share: float = 0.2) -> Scores:
    """Scores whose cut is half-way between the medians of the first `share` of the trials, and the trials that remain."""
    first = max(1, int(share * len(present)))
    cut = float(np.median(present[:first]) + np.median(absent[:first])) / 2
    return Scores(present=present[first:], absent=absent[first:], cut=cut)
