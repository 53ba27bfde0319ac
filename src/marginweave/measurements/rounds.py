"""Rules of marginals that are chosen in rounds: candidates, their distance from a model, and shares of a round.

Score. AIM (McKenna, Mullins, Sheldon and Miklau 2022, arXiv 2201.12677, algorithm 2) scores a set r of attributes by
w_r (||M_r - m_r||_1 - sqrt(2/pi) sigma n_r): the exact marginal M_r against the model's m_r, less the expected error of
measuring its n_r cells. Everything but M_r is public or released.

Bins. With `coarsen` a set may be chosen in coarser bins where its finest table would have more noise than there are records
(`Candidates.worth_counting`). Its score is that of the table M_c whose cells are sums of cells of M_r, beside m_c, the same
sums of m_r. Half of the expected error is then taken off every score (`NOISE_LEFT`), as a model is closer to a table than its
measurement is.

Grid. m_r and the last term are rounded to multiples of 1/1024 before they meet M_r, and w_r is an integer: a score is an exact
integer, and no float ever touches a private count.

Sensitivity. A unit of theta records moves M_r by a vector u >= 0 with |u|_1 <= theta where it comes or goes, by u - v, |u|_1,
|v|_1 <= theta, where it is replaced: theta, or 2 theta, in L1. By the triangle inequality ||M_r - m_r||_1 moves by no more,
whatever m_r is, and the score by w_r times that; the largest w_r holds for all candidates. In coarser bins the unit moves M_c
by the same sums of u, or of u - v, which are no larger in L1: each cell of M_r is in one cell of M_c.

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
from marginweave.measurements.round_candidates import Candidates
from marginweave.measurements.selection import fitting
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.observations.means import expected_noise

_ANNEALING = 4
NOISE_LEFT = 0.5
"""Of the expected noise of a marginal, what a model leaves: it takes about half of it out."""
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
    candidates: Candidates,
    settings: AdaptiveCliques,
    sigma: float,
) -> Integers:
    """Return the score of every candidate, in steps, shape (candidates,). Private.

    Args:
        blocks: the exact marginals of the sets, in their order, some at a time.
        expected: the model's marginals of sets, in their order.
        candidates: of these sets.
        settings: of the rounds.
        sigma: of the noise that a cell will have, if the candidate is measured.
    """
    scores = [
        _scores_of(block, expected(list(block)), candidates, settings, sigma)
        for block in blocks
        if block
    ]
    return np.concatenate(scores) if scores else np.zeros(0, np.int64)


def _scores_of(
    tables: Mapping[Clique, Integers],
    expected: Iterable[Floats],
    candidates: Candidates,
    settings: AdaptiveCliques,
    sigma: float,
) -> Integers:
    """Return w_r (||M_r - m_r||_1 - c sqrt(2/pi) sigma n_r) of all candidates of these sets, in steps. Private.

    c is 1, or `NOISE_LEFT` with coarser bins.
    """
    exact = np.concatenate([table.ravel() for table in tables.values()])
    modelled = np.concatenate([counts.ravel() for counts in expected])
    apart = exact * STEPS - np.rint(modelled * STEPS).astype(np.int64)
    ends = np.cumsum([table.size for table in tables.values()])
    differences: list[Integers] = []
    for (clique, table), cells_apart in zip(
        tables.items(), np.split(apart, ends[:-1]), strict=True
    ):
        differences += candidates.tables(clique, cells_apart.reshape(table.shape))
    cells = np.array([difference.size for difference in differences], np.int64)
    begins = np.concatenate(([0], np.cumsum(cells[:-1])))
    moved = np.abs(np.concatenate([difference.ravel() for difference in differences]))
    distances = np.add.reduceat(moved, begins)
    sigma_left = NOISE_LEFT * sigma if settings.coarsen else sigma
    errors = {size: round(STEPS * expected_noise(sigma_left, size)) for size in set(cells.tolist())}
    weights = np.repeat(
        np.array([weight(settings, clique) for clique in tables], np.int64),
        [len(candidates.of_set[clique]) for clique in tables],
    )
    return weights * (distances - np.array([errors[size] for size in cells.tolist()], np.int64))
