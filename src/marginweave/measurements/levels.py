"""Draw of a level: noise on every candidate, zero cells included, and the integer threshold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet, Columns
from marginweave.counts.count_runs import SortedCounts, add_pieces
from marginweave.domain.combinations import Level
from marginweave.measurements.thresholds import level_threshold, private_threshold
from marginweave.mechanisms.gaussian import add_noise
from marginweave.mechanisms.randomness import DrawBits
from marginweave.mechanisms.zero_cells import (
    passing_noise,
    passing_probability,
    passing_zeros,
    prepare_passing,
)
from marginweave.observations.combinations import LevelNoise

if TYPE_CHECKING:
    from marginweave.counts.bounded_counts import BoundedCounts  # numba, which a plan does without

Drawn = dict[Columns, SortedCounts]
# Above _VISITED candidates, those that do not occur are not visited one by one, unless more than a share _RARE would pass.
_VISITED = 1 << 24
_RARE = Fraction(1, 8)
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class LevelMechanism:
    """Everything that is fixed before the draw of length k, from public or released facts.

    `sigma` is the standard deviation of the noise (`mechanisms.noise_sigma`: sigma_k times the L2 sensitivity of a unit).
    `threshold` is the least noisy count that survives. `private_threshold` is the larger one for values of the columns in
    `private_columns`, which pays for their discovery (0 where it does not apply). `raised_from` is the configured threshold,
    where a larger one had to replace it.
    """

    length: int
    contribution_bound: int
    sigma: Fraction
    threshold: int
    private_threshold: int = 0
    private_columns: frozenset[int] = frozenset()
    raised_from: int | None = None


def plan_level(
    configuration: Configuration,
    *,
    candidates: CandidateSet,
    survivors_before: int,
    contribution_bound: int,
    sigma: Fraction,
    delta_threshold: float,
) -> LevelMechanism:
    """Return the mechanism of a level, after its contribution bound is released.

    `delta_threshold` pays for the values that length 1 discovers.

    DP: post-processing; depends on the configuration and on released counts only.
    """
    length = candidates.length
    number = candidates.total if length > 1 else 0
    threshold = level_threshold(configuration.tuples, length, sigma, survivors_before, number)
    unit = configuration.stability
    private = frozenset[int]()
    if length == 1:
        private = frozenset(
            j for j, attribute in enumerate(configuration.attributes) if attribute.private
        )
    values_each = min(contribution_bound, configuration.private_values)
    threshold_of_private = 0
    if private:
        discovery = private_threshold(sigma, values_each, unit.records, delta_threshold)
        threshold_of_private = max(threshold, discovery)
    return LevelMechanism(
        length=length,
        contribution_bound=contribution_bound,
        sigma=sigma,
        threshold=threshold,
        private_threshold=threshold_of_private,
        private_columns=private,
    )


def visits_all(candidates: CandidateSet, mechanism: LevelMechanism) -> bool:
    """Return whether noise is drawn for every candidate: they are few, or many would pass. From released facts."""
    if mechanism.length == 1 or mechanism.threshold < 1 or candidates.superset <= _VISITED:
        return True
    return passing_probability(mechanism.threshold, mechanism.sigma) > _RARE


def prepare_level(candidates: CandidateSet, mechanism: LevelMechanism) -> None:
    """Build the tables of a draw before its charge, so that little can fail after the charge.

    Raises InputError for a sigma that has no table.
    """
    if not visits_all(candidates, mechanism):
        prepare_passing(candidates.superset, mechanism.threshold, mechanism.sigma)


def draw_level(
    bounded: BoundedCounts,
    candidates: CandidateSet,
    mechanism: LevelMechanism,
    bits: DrawBits,
) -> Level:
    """Noise every candidate and keep those that reach the threshold.

    At length 1 a value of a private domain is a candidate when it occurs among the *bounded* records; that it occurs is
    what the threshold's delta pays for. Everywhere else all cells of V_k are noised, whether they occur or not. If they are
    too many to visit, `draw_unvisited` noises those that do not occur, with the same distribution.

    Theorem: `add_noise` of a vector of L2 sensitivity theta sqrt(Delta_k), after which thresholds are post-processing; the
    values of private domains by Gopi et al. 2020 (`private_threshold`, and step 21 of docs/privacy.md).
    DP: mu-GDP with mu = 1 / sigma_k, plus delta_threshold at length 1 where domains are private.

    Args:
        bounded: the exact counts.
        candidates: V_k.
        mechanism: noise and thresholds.
        bits: of the draw. Table i is set i of `candidates.column_sets()`. A cell's place in it is its rank among the noised
            cells of the set, in ascending order: whatever pieces they come in.
    """
    draw = draw_visited if visits_all(candidates, mechanism) else draw_unvisited
    drawn = draw(bounded, candidates, mechanism, bits)

    def parts() -> Iterator[tuple[Columns, Integers, Integers]]:
        for columns, (cells, counts) in drawn.items():
            codes = np.unravel_index(cells, candidates.shape(columns))
            yield columns, np.stack(codes, axis=1).astype(np.int64), counts

    return Level.join(mechanism.length, parts())


def draw_visited(
    bounded: BoundedCounts,
    candidates: CandidateSet,
    mechanism: LevelMechanism,
    bits: DrawBits,
) -> Drawn:
    """Return the published flat cells, ascending, and their noisy counts, by columns, from noise on every candidate."""
    drawn: Drawn = {}
    for table, columns in enumerate(candidates.column_sets()):
        private = bool(mechanism.private_columns.intersection(columns))
        threshold = mechanism.private_threshold if private else mechanism.threshold
        counted = bounded.pieces(columns)
        if not private:
            zeros = ((cells, np.zeros(len(cells), np.int64)) for cells in candidates.cells(columns))
            counted = add_pieces([zeros, counted])  # all candidates: every cell that occurs is one
        pieces = [(_NONE, _NONE)]
        for cells, noised in _noised(counted, mechanism.sigma, bits, table):
            reach = noised >= threshold
            pieces.append((cells[reach], noised[reach]))
        drawn[columns] = _joined(pieces)
    return drawn


def draw_unvisited(
    bounded: BoundedCounts, candidates: CandidateSet, mechanism: LevelMechanism, bits: DrawBits
) -> Drawn:
    """Return what `draw_visited` returns, in the same distribution, without a visit to every candidate.

    Noise is drawn on the cells that occur, and `zero_cells` on the superset.
    Every member of the superset passes by itself with the probability of a zero; members that are no candidates, or occur,
    are dropped, and the occurring ones have separate noise (Cormode, Procopiuc, Srivastava and Tran 2012).
    DP: as `draw_level`.
    """
    drawn: Drawn = {}
    for table, (columns, passing) in enumerate(_passing_cells(candidates, mechanism, bits)):
        pieces = list[SortedCounts]()
        are_zero = np.ones(len(passing), np.bool_)
        for cells, noised in _noised(bounded.pieces(columns), mechanism.sigma, bits, table):
            reach = noised >= mechanism.threshold
            pieces.append((cells[reach], noised[reach]))
            ends = np.searchsorted(passing, [cells[0], cells[-1] + 1])
            near = slice(*ends)
            are_zero[near] = ~np.isin(passing[near], cells, assume_unique=True)
        zeros = passing[are_zero]
        noise = passing_noise(len(zeros), mechanism.threshold, mechanism.sigma, bits, table)
        pieces.append((zeros, noise))
        published, counts = _joined(pieces)
        order = np.argsort(published)
        drawn[columns] = published[order], counts[order]
    return drawn


def _joined(pieces: Sequence[SortedCounts]) -> SortedCounts:
    cells = np.concatenate([piece_cells for piece_cells, _ in pieces])
    counts = np.concatenate([piece_counts for _, piece_counts in pieces])
    return cells, counts


def _noised(
    pieces: Iterable[SortedCounts],
    sigma: Fraction,
    bits: DrawBits,
    table: int,
) -> Iterator[SortedCounts]:
    """Yield each piece with noise on its counts; a cell's random word is that of its place among the cells of all pieces."""
    start = 0
    for cells, counts in pieces:
        yield cells, add_noise(counts, sigma, bits, table=table, start=start)
        start += len(cells)


def _passing_cells(
    candidates: CandidateSet, mechanism: LevelMechanism, bits: DrawBits
) -> Iterator[tuple[Columns, Integers]]:
    """Yield, for every set of columns in order, the flat cells of candidates that pass as zeros, ascending."""
    blocks = passing_zeros(candidates.superset, mechanism.threshold, mechanism.sigma, bits)
    begin, offsets = next(blocks, (0, _NONE))
    first = 0  # of this set's members, among those of all
    for columns in candidates.column_sets():
        universe = candidates.universe(columns)
        passing = [_NONE]
        while True:
            # this set's members in the block, as offsets from its first member
            low = min(max(first - begin, 0), 1 << 62)
            high = min(max(first + universe.size - begin, 0), 1 << 62)
            start, stop = np.searchsorted(offsets, [low, high])
            if stop > start:
                positions = offsets[start:stop] + (begin - first)
                flat = universe.flat(universe.pairs(positions))
                passing.append(flat[candidates.allowed(columns, flat)])
            following = next(blocks, None) if stop == len(offsets) else None
            if following is None:
                break
            begin, offsets = following
        first += universe.size
        yield columns, np.concatenate(passing)


def level_noise(mechanism: LevelMechanism, candidates: CandidateSet) -> LevelNoise:
    """Return what is published about the noise of a level; the number of candidates only where it is public."""
    return LevelNoise(
        length=mechanism.length,
        contribution_bound=mechanism.contribution_bound,
        deviation=float(mechanism.sigma),
        threshold=mechanism.threshold,
        private_threshold=mechanism.private_threshold,
        candidates=None if mechanism.private_columns else candidates.total,
        raised_from=mechanism.raised_from,
    )
