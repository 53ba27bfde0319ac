"""Which larger marginals are measured: those that are declared, or by PrivSyn the pairs that are worth their noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError, StageError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.marginals import AllCliques, MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import all_cliques, cells, count_marginals, in_passes
from marginweave.measurements.plan import BudgetPlan, DrawKind, PlannedDraw
from marginweave.measurements.tables import Clique
from marginweave.mechanisms.catalogue import count_noise
from marginweave.mechanisms.gaussian import add_noise, noise_sigma
from marginweave.mechanisms.randomness import DrawBits
from marginweave.planning.split import plan_budget
from marginweave.prepare.codes import Codes

FINEST_STEPS = 1024
# A noise table of this width is made in about a second, one of 2^17 in twenty and in 600 MB; a step of 1/8192 sigma is
# far below the noise.
_WIDEST = 8192
_MOST_ROWS = 1 << 30
# The sensitivity of a score knows of theta and of neighbors already.
_ONE = Stability(records=1, neighbors="add-remove")
_SHARED = 2


@dataclass(frozen=True, kw_only=True)
class IndifNoise:
    """The public grid of the scores and the noise on it: scores are multiples of 1/steps, `sigma` counts steps."""

    steps: int
    sigma: Fraction

    @property
    def score_sigma(self) -> float:
        """Standard deviation of the noise of one score, in records."""
        return float(self.sigma) / self.steps


def indif_sensitivity(steps: int, stability: Stability) -> int:
    """How far one score, as a multiple of 1/steps, moves with one unit: 4 theta steps, or 8 theta steps.

    One record more moves InDif by at most 4 (n - a_x)(n - b_y) / (n (n + 1)) <= 4 (PrivSyn, lemma 4), theta records by
    4 theta, one after the other; a replaced unit leaves and comes, 8 theta. On the grid that is a whole number D of steps, and
    rounding adds nothing: floor(x + 1/2) is monotone and moves with whole steps, so x <= y + D has floor(x + 1/2) <=
    floor(y + 1/2) + D.
    DP: arithmetic on public numbers.
    """
    return (8 if stability.neighbors == "replace-one" else 4) * stability.records * steps


def plan_indif(pairs: int, multiplier: float, stability: Stability) -> IndifNoise:
    """Grid and noise of `pairs` scores, whose L2 sensitivity is sqrt(pairs) times that of one.

    The grid is 1/1024, or coarser by powers of two, down to whole records, where the noise would need a very wide table. The
    noise, in records, is that of a sensitivity of 4 theta + 1/1024 (8 theta + 1/1024) on every grid: never less than
    `indif_sensitivity`, as it would be for rounding of any kind on the finest one.
    DP: arithmetic on public numbers. Raises InputError for a parameter out of range.
    """
    if pairs < 1:
        raise InputError(f"pairs ({pairs}) must be at least 1")
    steps = FINEST_STEPS
    sd = noise_sigma(multiplier, (indif_sensitivity(steps, stability) + 1) ** 2 * pairs, _ONE)
    while sd > _WIDEST and steps > 1:
        steps, sd = steps // 2, sd / 2
    return IndifNoise(steps=steps, sigma=sd)


def indif_score(table: NDArray[np.int64], steps: int) -> int:
    """InDif of one pair, || M_ab - M_a x M_b / n ||_1 in records, rounded to a multiple of 1/steps; exact integers.

    `table` is the pair's exact marginal. n InDif = sum |n M_ab - M_a M_b| is an integer of at most 2 n^2. An empty table
    scores 0. Private. Raises StageError beyond 2^30 rows, where n^2 would leave 64 bits.
    """
    rows = int(table.sum())
    if rows == 0:
        return 0
    if rows > _MOST_ROWS:
        raise StageError("InDif takes at most 2^30 rows")
    scaled = int(np.abs(rows * table - np.outer(table.sum(axis=1), table.sum(axis=0))).sum())
    return (2 * steps * scaled + rows) // (2 * rows)


def indif_scores(
    blocks: Iterable[Sequence[Codes]], sizes: Sequence[int], pairs: Sequence[Clique], steps: int
) -> NDArray[np.int64]:
    """InDif of every pair as a multiple of 1/steps, by few passes over the blocks of rows; shape (pairs,). Private.

    Raises as `indif_score`.
    """
    tables = (table for some in in_passes(pairs, sizes) for table in count_marginals(blocks, sizes, some))
    return np.array([indif_score(table, steps) for table in tables], np.int64)


def measure_indif(scores: NDArray[np.int64], noise: IndifNoise, bits: DrawBits) -> NDArray[np.float64]:
    """Noisy InDif of every pair, in records, from `indif_scores` on the grid of `noise`; may be negative.

    `add_noise` of the scores of PrivSyn (Zhang et al. 2021, section 4.2), a vector of the sensitivity of `indif_sensitivity`
    times the root of their number. DP: 1/multiplier^2 in mu^2 for the multiplier of `plan_indif`.
    """
    noisy: NDArray[np.float64] = add_noise(scores, noise.sigma, bits) / noise.steps
    return noisy


def select_marginals(
    cell_counts: Sequence[int],
    scores: NDArray[np.float64],
    cell_error: float,
    power: float = 2 / 3,
) -> tuple[int, ...]:
    """Greedy minimum of the noise error of what is measured plus the scores of what is not.

    A marginal of c cells at rho has the expected error c / sqrt(pi rho); marginals that share rho as c^(2/3) have together
    (sum_i c_i^(2/3))^(3/2) / sqrt(pi rho), which makes one step O(m). With Laplace noise it is c / epsilon, and
    (sum_i c_i^(1/2))^2 / epsilon of those that share epsilon as c^(1/2). Each step adds the
    marginal that leaves the smallest sum, as long as the sum falls. A score below 0, which only noise makes, is never worth it.

    Args:
        cell_counts: cells of each marginal.
        scores: noisy InDif of each, in records, shape (m,).
        cell_error: of one cell, with all that there is for measuring the selected ones (`CountNoise.cell_error`).
        power: of the cells, by which they share it (`CountNoise.share_power`).

    Returns:
        Positions of the selected marginals, increasing. DP: post-processing.

    Raises:
        InputError: an error that is not positive.
    """
    if cell_error <= 0:
        raise InputError(f"cell_error ({cell_error}) must be positive")
    weights = np.asarray(cell_counts, np.float64) ** power
    measured, missed = 0.0, float(scores.sum())
    least = missed
    selected, left = np.zeros(len(weights), np.bool_), np.ones(len(weights), np.bool_)
    while left.any():
        errors = cell_error * (measured + weights) ** (1 / power) + missed - scores
        errors[~left] = math.inf
        best = int(errors.argmin())
        if errors[best] >= least:
            break
        left[best] = False
        least = float(errors[best])
        selected[best] = True
        measured += float(weights[best])
        missed -= float(scores[best])
    return tuple(np.flatnonzero(selected).tolist())


def merge_pairs(pairs: Sequence[Clique], sizes: Sequence[int], cell_limit: int, most: int) -> tuple[Clique, ...]:
    """Marginals to measure instead of `pairs`: accepted cliques of their graph, then the pairs inside none of them.

    Cliques are taken from the largest down to three attributes; one is accepted if it has at most `cell_limit` cells and
    shares at most two attributes with those accepted before, and if it and those before have, with all pairs, at most `most`
    cells together. Listing all cliques is exponential on dense graphs: here each
    pair grows, by the attribute that keeps the cells fewest, and it and what it passed through are the candidates.
    DP: post-processing of the selection. The paper's limit is 5000 cells.
    """
    neighbors: dict[int, set[int]] = {}
    for a, b in pairs:
        neighbors.setdefault(a, set()).add(b)
        neighbors.setdefault(b, set()).add(a)
    candidates = {c for pair in pairs for c in _grow(pair, neighbors, sizes, cell_limit)}
    accepted: list[Clique] = []
    covered: set[int] = set()
    room = most - sum(cells(pair, sizes) for pair in pairs)
    for clique in sorted(candidates, key=lambda c: (-len(c), cells(c, sizes), c)):
        if len(covered.intersection(clique)) <= _SHARED and cells(clique, sizes) <= room:
            room -= cells(clique, sizes)
            accepted.append(clique)
            covered.update(clique)
    inside = {pair for clique in accepted for pair in itertools.combinations(clique, 2)}
    return (*accepted, *(pair for pair in pairs if pair not in inside))


def _grow(pair: Clique, neighbors: dict[int, set[int]], sizes: Sequence[int], cell_limit: int) -> list[Clique]:
    """The cliques of three and more attributes that `pair` passes through."""
    clique, found = pair, []
    common = neighbors[pair[0]] & neighbors[pair[1]]
    while common:
        nearest = min(common, key=lambda a: (sizes[a], a))
        clique = tuple(sorted((*clique, nearest)))
        if cells(clique, sizes) > cell_limit:
            break
        found.append(clique)
        common &= neighbors[nearest]
    return found


def scoring(configuration: Configuration, plan: BudgetPlan) -> IndifNoise:
    """Grid and noise of the draw `selection`: a score for every pair of attributes. DP: arithmetic on public numbers."""
    pairs = math.comb(len(configuration.attributes), 2)
    return plan_indif(pairs, plan.draw(DrawKind.SCORES).noise_multiplier, configuration.stability)


def declared_cliques(
    settings: MarginalSettings, attributes: Sequence[Attribute], sizes: Sequence[int]
) -> tuple[Clique, ...]:
    """The larger marginals that the configuration names: all of one length, or a list. DP: arithmetic on released sizes.

    They are over attributes, which have so many codes, and levels of these (`MarginalSettings.levels`).
    """
    if isinstance(settings.cliques, AllCliques):
        return tuple(settings.cliques.places(settings.levels(sizes, attributes)))
    place = {attribute.name: j for j, attribute in enumerate(attributes)}
    return tuple(tuple(sorted(place[name] for name in clique)) for clique in settings.cliques)


def selected_cliques(
    settings: MarginalSettings,
    sizes: Sequence[int],
    scores: NDArray[np.float64],
    draw: PlannedDraw,
    stability: Stability,
) -> tuple[Clique, ...]:
    """The pairs that are worth their noise by their noisy scores, merged where `merge_cells` says so, within `most_cells`.

    `scores` are those of `scored_pairs`. `draw` is the planned measurement: its joint noise multiplier M, whose mu^2 is
    1/M^2, or its joint epsilon of Laplace noise. DP: post-processing.
    """
    pairs, most = scored_pairs(sizes, draw), most_cells(draw)
    cell_counts = [cells(pair, sizes) for pair in pairs]

    noise = count_noise(draw.mechanism)(stability)
    chosen = select_marginals(cell_counts, scores, noise.cell_error(draw.parameter), noise.share_power)
    selected = fitting([pairs[i] for i in chosen], sizes, most)
    return selected if settings.merge_cells == "none" else merge_pairs(selected, sizes, settings.merge_cells, most)


def lone_deviation(configuration: Configuration) -> float | None:
    """Standard deviation of the noise of a cell of a selected pair that is measured alone; None where none are selected.

    DP: arithmetic on public numbers.
    """
    settings = configuration.marginals
    if settings is None or settings.cliques != "selected" or not settings.selects(len(configuration.attributes)):
        return None
    draw = plan_budget(configuration).draw(DrawKind.MARGINALS)
    noise = count_noise(draw.mechanism)(configuration.stability)
    (part,) = noise.parts(draw.parameter, [1.0])
    return float(noise.sigma(part))


def scored_pairs(sizes: Sequence[int], draw: PlannedDraw) -> tuple[Clique, ...]:
    """The pairs that may be measured in `draw` and are scored before it. DP: arithmetic on released sizes."""
    return all_cliques(sizes, 2, most_cells(draw))


def most_cells(draw: PlannedDraw) -> int:
    """How many cells the marginals of a draw may have together: what fits into memory, or is drawn in time."""
    return count_noise(draw.mechanism).most_cells


def fitting(cliques: Sequence[Clique], sizes: Sequence[int], most: int) -> tuple[Clique, ...]:
    """The marginals, in order, without the largest ones, as few as leave at most `most` cells together.

    What was paid for the choice of marginals is thereby never lost to one that is too large. DP: post-processing.
    """
    by_size = sorted(cliques, key=lambda clique: (cells(clique, sizes), clique))
    together = itertools.accumulate(cells(clique, sizes) for clique in by_size)
    kept = {clique for clique, total in zip(by_size, together, strict=True) if total <= most}
    return tuple(clique for clique in cliques if clique in kept)
