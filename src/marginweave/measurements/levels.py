"""One draw of a level: noise on every candidate, zero cells included, and the integer threshold."""

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
from marginweave.mechanisms.zero_cells import passing_noise, passing_probability, passing_zeros, prepare_passing
from marginweave.observations.combinations import LevelNoise

if TYPE_CHECKING:
    from marginweave.counts.bounded_counts import BoundedCounts  # numba, which a plan does without

Drawn = dict[Columns, SortedCounts]
# Beyond so many candidates those that do not occur are not visited one by one, unless more than one of so many would pass.
_VISITED = 1 << 24
_RARE = Fraction(1, 8)
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class LevelMechanism:
    """Everything that is fixed before the draw of length k, from public or released facts.

    `sigma` is the standard deviation of the noise (`mechanisms.noise_sigma`: sigma_k times the L2 sensitivity of a unit);
    `threshold` the least noisy count that survives; `private_threshold` the larger one for values of the columns in
    `private_columns`, which pays for their discovery (0 where it does not apply); `raised_from` the threshold that was asked
    for, where it had to be raised.
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
    """The mechanism of a level once its contribution bound is released; `delta_threshold` pays for what length 1 discovers.

    DP: post-processing; depends on the configuration and on released counts only.
    """
    length = candidates.length
    number = candidates.total if length > 1 else 0
    threshold = level_threshold(configuration.tuples, length, sigma, survivors_before, number)
    unit = configuration.stability
    private = frozenset(j for j, attribute in enumerate(configuration.attributes) if attribute.private and length == 1)
    values_each = min(contribution_bound, configuration.private_values)
    return LevelMechanism(
        length=length,
        contribution_bound=contribution_bound,
        sigma=sigma,
        threshold=threshold,
        private_threshold=max(threshold, private_threshold(sigma, values_each, unit.records, delta_threshold))
        if private
        else 0,
        private_columns=private,
    )


def visits_all(candidates: CandidateSet, mechanism: LevelMechanism) -> bool:
    """Whether every candidate gets its noise by itself: they are few, or many of them would pass. From released facts."""
    if mechanism.length == 1 or mechanism.threshold < 1 or candidates.superset <= _VISITED:
        return True
    return passing_probability(mechanism.threshold, mechanism.sigma) > _RARE


def prepare_level(candidates: CandidateSet, mechanism: LevelMechanism) -> None:
    """Build the tables of a draw ahead of it, so that little that can fail happens after its charge.

    Raises InputError for a sigma that has no table.
    """
    if not visits_all(candidates, mechanism):
        prepare_passing(candidates.superset, mechanism.threshold, mechanism.sigma)


def draw_level(bounded: BoundedCounts, candidates: CandidateSet, mechanism: LevelMechanism, bits: DrawBits) -> Level:
    """Noise every candidate and keep those that reach the threshold.

    At length 1 a value of a private domain is a candidate when it occurs among the *bounded* records; that it occurs is
    what the threshold's delta pays for. Everywhere else all cells of V_k are noised, whether they occur or not; where they
    are too many to visit, those that do not occur by `draw_unvisited`, with the same distribution.

    Theorem: `add_noise` of a vector of L2 sensitivity theta sqrt(Delta_k), after which thresholds are post-processing; the
    values of private domains by Gopi et al. 2020 (`private_threshold`, and step 21 of docs/privacy.md).
    DP: mu-GDP with mu = 1 / sigma_k, plus delta_threshold at length 1 where domains are private.

    Args:
        bounded: the exact counts.
        candidates: V_k.
        mechanism: noise and thresholds.
        bits: of the draw. Table i is set i of `candidates.column_sets()`; the place of a cell in it is that among the cells of
            the set that are noised, in ascending order: whatever pieces they come in.
    """
    draw = draw_visited if visits_all(candidates, mechanism) else draw_unvisited
    drawn = draw(bounded, candidates, mechanism, bits)
    parts = (
        (columns, np.stack(np.unravel_index(cells, candidates.shape(columns)), axis=1).astype(np.int64), counts)
        for columns, (cells, counts) in drawn.items()
    )
    return Level.join(mechanism.length, parts)


def draw_visited(bounded: BoundedCounts, candidates: CandidateSet, mechanism: LevelMechanism, bits: DrawBits) -> Drawn:
    """Flat cells, ascending, and noisy counts of each set of columns that are published, from noise on every candidate."""
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
            kept = noised >= threshold
            pieces.append((cells[kept], noised[kept]))
        drawn[columns] = _joined(pieces)
    return drawn


def draw_unvisited(
    bounded: BoundedCounts, candidates: CandidateSet, mechanism: LevelMechanism, bits: DrawBits
) -> Drawn:
    """As `draw_visited`, in the same distribution, from noise on the cells that occur and `zero_cells` on the superset.

    Every member of the superset passes by itself with the probability of a zero; members that are no candidates, or occur,
    are dropped, and the occurring ones have noise of their own (Cormode, Procopiuc, Srivastava and Tran 2012).
    DP: as `draw_level`.
    """
    drawn: Drawn = {}
    for table, (columns, passing) in enumerate(_passing_cells(candidates, mechanism, bits)):
        pieces, are_zero = list[SortedCounts](), np.ones(len(passing), np.bool_)
        for mine, noised in _noised(bounded.pieces(columns), mechanism.sigma, bits, table):
            kept = noised >= mechanism.threshold
            pieces.append((mine[kept], noised[kept]))
            near = slice(*np.searchsorted(passing, [mine[0], mine[-1] + 1]))
            are_zero[near] = ~np.isin(passing[near], mine, assume_unique=True)
        zeros = passing[are_zero]
        pieces.append((zeros, passing_noise(len(zeros), mechanism.threshold, mechanism.sigma, bits, table)))
        cells, counts = _joined(pieces)
        order = np.argsort(cells)
        drawn[columns] = cells[order], counts[order]
    return drawn


def _joined(pieces: Sequence[SortedCounts]) -> SortedCounts:
    cells, counts = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return cells, counts


def _noised(pieces: Iterable[SortedCounts], sigma: Fraction, bits: DrawBits, table: int) -> Iterator[SortedCounts]:
    """Each piece with noise on its counts; a cell's word is that of its place among the cells of all pieces."""
    start = 0
    for cells, counts in pieces:
        yield cells, add_noise(counts, sigma, bits, table=table, start=start)
        start += len(cells)


def _passing_cells(
    candidates: CandidateSet, mechanism: LevelMechanism, bits: DrawBits
) -> Iterator[tuple[Columns, Integers]]:
    """For every set of columns in order, the flat cells of candidates that pass as zeros, ascending."""
    blocks = passing_zeros(candidates.superset, mechanism.threshold, mechanism.sigma, bits)
    begin, offsets = next(blocks, (0, _NONE))
    first = 0  # of this set's members, among those of all
    for columns in candidates.column_sets():
        universe = candidates.universe(columns)
        found = [_NONE]
        while True:
            low, high = (min(max(edge - begin, 0), 1 << 62) for edge in (first, first + universe.size))
            start, stop = np.searchsorted(offsets, [low, high])
            if stop > start:
                flat = universe.flat(universe.pairs(offsets[start:stop] + (begin - first)))
                found.append(flat[candidates.allowed(columns, flat)])
            following = next(blocks, None) if stop == len(offsets) else None
            if following is None:
                break
            begin, offsets = following
        first += universe.size
        yield columns, np.concatenate(found)


def level_noise(mechanism: LevelMechanism, candidates: CandidateSet) -> LevelNoise:
    """What is published about the noise of a level; the number of candidates only where it is public."""
    return LevelNoise(
        length=mechanism.length,
        contribution_bound=mechanism.contribution_bound,
        deviation=float(mechanism.sigma),
        threshold=mechanism.threshold,
        private_threshold=mechanism.private_threshold,
        candidates=None if mechanism.private_columns else candidates.total,
        raised_from=mechanism.raised_from,
    )
