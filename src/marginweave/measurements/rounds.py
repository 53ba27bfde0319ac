"""Rules of marginals that are chosen in rounds: candidates, their distance from a model, and shares of a round.

Score. AIM (McKenna, Mullins, Sheldon and Miklau 2022, arXiv 2201.12677, algorithm 2) scores a set r of attributes by
w_r (||M_r - m_r||_1 - sqrt(2/pi) sigma n_r): the exact marginal M_r against the model's m_r, less the expected error of
measuring its n_r cells. Everything but M_r is public or released.

Grid. m_r and the last term are rounded to multiples of 1/1024 before they meet M_r, and w_r is an integer: a score is an exact
integer, and no float ever touches a private count.

Sensitivity. A unit of theta records moves M_r by a vector u >= 0 with |u|_1 <= theta where it comes or goes, by u - v, |u|_1,
|v|_1 <= theta, where it is replaced: theta, or 2 theta, in L1. By the triangle inequality ||M_r - m_r||_1 moves by no more,
whatever m_r is, and the score by w_r times that; the largest w_r holds for all candidates.

Sets. A column of sets counts as one column for each of its values. Tables of a value have few cells, so that little noise is
taken off their score: rounds would choose these, and no pair of two ordinary columns. So the first shares are for ordinary
columns alone, as many as the pairs of two ordinary columns are of all pairs of columns.

Shares. The plan has a fixed number of equal shares, each a draw with a price. A round takes one at first, four times as many
where rounds teach no more than noise. A round of m shares measures its marginals once with each; the mean of m measurements
has 1/sqrt(m) of the noise, as one measurement with m shares would have. So what earlier rounds have found decides what a draw
measures, never what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import Stability
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.marginals import AdaptiveCliques
from marginweave.configuration.values import MAX_CELLS
from marginweave.counts.marginals import all_cliques
from marginweave.domain.masks import Clique
from marginweave.measurements.selection import fitting
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.observations.means import expected_noise

_ANNEALING = 4
STEPS = 1024
"""Distances are multiples of 1/STEPS record."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round that is planned: it takes `shares` from number `first` on, `pace` of them if enough are left."""

    number: int
    pace: int
    first: int
    shares: int

    @property
    def last(self) -> int:
        """Number of its last share."""
        return self.first + self.shares - 1


def shares_of(pace: int, shares_left: int) -> int:
    """Return how many shares a round takes: `pace`, or all of `shares_left` if these would not last for a further round.

    Algorithm 3 of AIM, by shares. DP: arithmetic on released numbers.
    """
    return shares_left if shares_left < 2 * pace else pace


def next_pace(
    pace: int,
    moved: float,
    noise: float,
) -> int:
    """Return the pace of the next round: four times as many shares if the model `moved` by no more than the `noise`.

    DP: post-processing.
    """
    return pace * _ANNEALING if moved <= noise else pace


def next_round(
    before: Round | None,
    pace: int,
    shares: int,
) -> Round:
    """Return the round after `before` (None: the first one); all rounds have `shares` in total."""
    number = 1 if before is None else before.number + 1
    first = 1 if before is None else before.last + 1
    return Round(
        number=number,
        pace=pace,
        first=first,
        shares=shares_of(pace, shares - first + 1),
    )


def candidate_sets(settings: AdaptiveCliques, sizes: Sequence[int]) -> tuple[Clique, ...]:
    """Return all sets of 2 to k attributes with at most `max_cells` cells, shorter ones first, without the largest if many.

    All of them have at most 2^26 cells in total, which are counted once. An attribute with a single value tells nothing.
    DP: arithmetic on released sizes.
    """
    longest = min(settings.adaptive, len(sizes))

    def varies(clique: Clique) -> bool:
        return min(sizes[a] for a in clique) > 1

    candidates: list[Clique] = []
    for length in range(2, longest + 1):
        candidates += filter(varies, all_cliques(sizes, length, settings.max_cells))
    return fitting(candidates, sizes, MAX_CELLS)


def shares_of_ordinary_columns(attributes: Sequence[Attribute], shares: int) -> int:
    """Return how many of the first `shares` are for ordinary columns alone: with o of c columns, o (o - 1)/(c (c - 1)) of them.

    An ordinary column is one that has no values of a set counted by themselves. DP: arithmetic on public numbers.
    """
    columns = {attribute.column for attribute in attributes}
    of_sets = {attribute.column for attribute in attributes if attribute.of_set}
    all_pairs = math.comb(len(columns), 2)
    ordinary_pairs = math.comb(len(columns - of_sets), 2)
    return shares * ordinary_pairs // all_pairs if all_pairs else shares


def open_places(
    candidates: Sequence[Clique], picks: Collection[Clique], of_sets: Collection[int]
) -> Integers:
    """Return the places of the candidates that may be chosen next, shape (number,): those that this round has not picked.

    Those with one of the attributes `of_sets` are left out while there are others. DP: arithmetic on public and released facts.
    """
    values_of_sets = frozenset(of_sets)
    remaining = [place for place, clique in enumerate(candidates) if clique not in picks]
    ordinary = [place for place in remaining if values_of_sets.isdisjoint(candidates[place])]
    return np.array(ordinary or remaining, np.int64)


def weight(settings: AdaptiveCliques, clique: Clique) -> int:
    """Return w_r: by AIM the sum over the workload of |r and s|, which counts each attribute of r as often as a set s has it.

    In the workload of all sets of 2 to k attributes that is equally often for all, so that w_r is the number of attributes in
    r, but for a common factor that changes no choice. DP: arithmetic on public numbers.
    """
    return len(clique) if settings.weights == "workload" else 1


def score_sensitivity(
    settings: AdaptiveCliques,
    candidates: Sequence[Clique],
    stability: Stability,
) -> int:
    """Return how far one unit moves any score, in steps: the largest weight times theta, or 2 theta under replace-one.

    DP: arithmetic on released sizes.
    """
    largest_weight = max(weight(settings, clique) for clique in candidates)
    return STEPS * l1_sensitivity(stability) * largest_weight


def candidate_scores(
    blocks: Iterable[Mapping[Clique, Integers]],
    expected: Callable[[Sequence[Clique]], Iterable[Floats]],
    settings: AdaptiveCliques,
    sigma: float,
) -> Integers:
    """Return the score of every candidate, in steps, shape (candidates,). Private.

    Args:
        blocks: the exact marginals of the candidates, some at a time.
        expected: the model's marginals of candidates, in their order.
        settings: of the rounds.
        sigma: of the noise that a cell will have, if the candidate is measured.
    """
    scores = [
        _scores_of(block, expected(list(block)), settings, sigma) for block in blocks if block
    ]
    return np.concatenate(scores) if scores else np.zeros(0, np.int64)


def _scores_of(
    tables: Mapping[Clique, Integers],
    expected: Iterable[Floats],
    settings: AdaptiveCliques,
    sigma: float,
) -> Integers:
    """Return w_r (||M_r - m_r||_1 - sqrt(2/pi) sigma n_r) of each of these marginals, in steps, shape (marginals,). Private."""
    cells = np.array([table.size for table in tables.values()], np.int64)
    begins = np.concatenate(([0], np.cumsum(cells[:-1])))
    exact = np.concatenate([table.ravel() for table in tables.values()])
    modelled = np.concatenate([counts.ravel() for counts in expected])
    apart = np.abs(exact * STEPS - np.rint(modelled * STEPS).astype(np.int64))
    distances = np.add.reduceat(apart, begins)
    errors = {size: round(STEPS * expected_noise(sigma, size)) for size in set(cells.tolist())}
    weights = np.array([weight(settings, clique) for clique in tables], np.int64)
    return weights * (distances - np.array([errors[size] for size in cells.tolist()], np.int64))
