"""Selection of larger marginals: those that are declared, or by PrivSyn the pairs that are worth their noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.marginals import AllCliques, MarginalSettings
from marginweave.counts.marginals import all_cliques, cells
from marginweave.domain.masks import Clique
from marginweave.mechanisms.base import CountNoise, DrawMechanism

_SHARED = 2


def select_marginals(
    cell_counts: Sequence[int],
    scores: Floats,
    cell_error: float,
    power: float = 2 / 3,
) -> tuple[int, ...]:
    """Return the greedy minimum of the noise error of selected marginals plus the scores of all others.

    A marginal of c cells at rho has the expected error c / sqrt(pi rho); marginals that share rho as c^(2/3) have together
    (sum_i c_i^(2/3))^(3/2) / sqrt(pi rho), which makes one step O(m). With Laplace noise it is c / epsilon, and
    (sum_i c_i^(1/2))^2 / epsilon of those that share epsilon as c^(1/2). Each step adds the
    marginal that leaves the smallest sum, as long as the sum falls. A score below 0, which only noise makes, is never worth it.

    Args:
        cell_counts: cells of each marginal.
        scores: noisy InDif of each, in records, shape (m,).
        cell_error: of one cell, with the whole budget for measuring the selected ones (`CountNoise.cell_error`).
        power: of the cells, by which they share that budget (`CountNoise.share_power`).

    Returns:
        Positions of the selected marginals, increasing. DP: post-processing.

    Raises:
        InputError: an error that is not positive.
    """
    if cell_error <= 0:
        raise InputError(f"cell_error ({cell_error}) must be positive")
    weights = np.asarray(cell_counts, np.float64) ** power
    measured = 0.0
    missed = float(scores.sum())
    least = missed
    is_selected = np.zeros(len(weights), np.bool_)
    while not is_selected.all():
        errors = cell_error * (measured + weights) ** (1 / power) + missed - scores
        errors[is_selected] = math.inf
        best = int(errors.argmin())
        if errors[best] >= least:
            break
        least = float(errors[best])
        is_selected[best] = True
        measured += float(weights[best])
        missed -= float(scores[best])
    return tuple(np.flatnonzero(is_selected).tolist())


def merge_pairs(
    pairs: Sequence[Clique],
    sizes: Sequence[int],
    cell_limit: int,
    most: int,
) -> tuple[Clique, ...]:
    """Return the marginals to measure instead of `pairs`: accepted cliques of their graph, and the pairs inside none of them.

    Cliques are taken from the largest down to three attributes. A clique is accepted if it has at most `cell_limit` cells, if
    it shares at most two attributes with those accepted before, and if all accepted cliques and all pairs have at most `most`
    cells in total. Listing all cliques is exponential on dense graphs. Therefore each pair grows, by the attribute that adds
    the fewest cells, and every clique on its way is a candidate.
    DP: post-processing of the selection. The paper's limit is 5000 cells.
    """
    neighbors: dict[int, set[int]] = {}
    for a, b in pairs:
        neighbors.setdefault(a, set()).add(b)
        neighbors.setdefault(b, set()).add(a)
    candidates: set[Clique] = set()
    for pair in pairs:
        candidates.update(_grow(pair, neighbors, sizes, cell_limit))
    accepted: list[Clique] = []
    covered: set[int] = set()
    cells_left = most - sum(cells(pair, sizes) for pair in pairs)
    for clique in sorted(candidates, key=lambda c: (-len(c), cells(c, sizes), c)):
        if len(covered.intersection(clique)) <= _SHARED and cells(clique, sizes) <= cells_left:
            cells_left -= cells(clique, sizes)
            accepted.append(clique)
            covered.update(clique)
    inside: set[Clique] = set()
    for clique in accepted:
        inside.update(itertools.combinations(clique, 2))
    return (*accepted, *(pair for pair in pairs if pair not in inside))


def _grow(
    pair: Clique,
    neighbors: dict[int, set[int]],
    sizes: Sequence[int],
    cell_limit: int,
) -> list[Clique]:
    """Return the cliques of three and more attributes that `pair` grows into, one attribute at a time."""
    clique = pair
    cliques = []
    common = neighbors[pair[0]] & neighbors[pair[1]]
    while common:
        smallest = min(common, key=lambda a: (sizes[a], a))
        clique = tuple(sorted((*clique, smallest)))
        if cells(clique, sizes) > cell_limit:
            break
        cliques.append(clique)
        common &= neighbors[smallest]
    return cliques


def declared_cliques(
    settings: MarginalSettings, attributes: Sequence[Attribute], sizes: Sequence[int]
) -> tuple[Clique, ...]:
    """Return the larger marginals of the configuration: all of one length, or a list. DP: arithmetic on released sizes.

    They are over attributes, with `sizes` codes, and levels of these (`MarginalSettings.levels`).
    """
    if isinstance(settings.cliques, AllCliques):
        return tuple(settings.cliques.places(settings.levels(sizes, attributes)))
    place = {attribute.name: j for j, attribute in enumerate(attributes)}

    def numbers(clique: Sequence[str]) -> Clique:
        return tuple(sorted(place[name] for name in clique))

    return tuple(map(numbers, settings.cliques))


def selected_cliques(
    settings: MarginalSettings,
    sizes: Sequence[int],
    scores: Floats,
    noise: CountNoise,
    parameter: float,
) -> tuple[Clique, ...]:
    """Return the pairs that are worth their noise by their noisy scores, merged up to `merge_cells`, within `most_cells`.

    `scores` are those of `scored_pairs`. `noise` is that of the measurement, with its joint `parameter`: the multiplier M,
    whose mu^2 is 1/M^2, or epsilon of Laplace noise. DP: post-processing.
    """
    pairs = scored_pairs(sizes, type(noise))
    most = most_cells(type(noise))
    cell_counts = [cells(pair, sizes) for pair in pairs]
    chosen = select_marginals(cell_counts, scores, noise.cell_error(parameter), noise.share_power)
    selected = fitting([pairs[i] for i in chosen], sizes, most)
    return (
        selected
        if settings.merge_cells == "none"
        else merge_pairs(selected, sizes, settings.merge_cells, most)
    )


def scored_pairs(sizes: Sequence[int], mechanism: type[DrawMechanism]) -> tuple[Clique, ...]:
    """Return the pairs that may be measured with this noise and are scored before it. DP: arithmetic on released sizes."""
    return all_cliques(sizes, 2, most_cells(mechanism))


def most_cells(mechanism: type[DrawMechanism]) -> int:
    """Return how many cells the marginals of a draw may have in total: the most that fit into memory, or are drawn in time."""
    assert issubclass(mechanism, CountNoise)
    return mechanism.most_cells


def fitting(
    cliques: Sequence[Clique],
    sizes: Sequence[int],
    most: int,
) -> tuple[Clique, ...]:
    """Return the marginals in their order, without as few of the largest as leave at most `most` cells in total.

    The budget for the choice of marginals is thereby never lost to one that is too large. DP: post-processing.
    """
    by_size = sorted(cliques, key=lambda clique: (cells(clique, sizes), clique))
    totals = itertools.accumulate(cells(clique, sizes) for clique in by_size)
    fit = {clique for clique, total in zip(by_size, totals, strict=True) if total <= most}
    return tuple(clique for clique in cliques if clique in fit)
