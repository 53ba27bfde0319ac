"""How far the records of a release are expected to be from the table, by its own noisy counts. DP: post-processing.

The expected distance t of a measured set of columns follows from how far its records are from its counts as drawn, d. Of n
cells with noise of deviation s, records that took over the noise of p of them are sqrt(p) s from the truth and sqrt(n - p) s
from the counts (L2); where they follow neither, b farther: d^2 = b^2 + (n - p) s^2 and t^2 = b^2 + p s^2. Where d^2 is below n
s^2, as if b were 0, t^2 = n s^2 - d^2; where it is above, as if p were 0, t^2 = d^2 - n s^2 (Stein 1981; here with L1 norms,
that of the noise as expected). How far drawn records are from the fitted model, r, is known, on average over the sets of a
length: all of this is of the model, with d^2 - r^2 in place of d^2, and t^2 is r^2 more. The share p/n is much the same in all
sets of a release, and its median is better known than that of any: a set is judged by its own d^2 where this is beyond what
chance does to the norm of noise (`_CHANCE`). A pair that was not chosen, by scores or in rounds, is about as far as noise
would have been (`_UNCHOSEN`), or it had been, and as chance makes two draws of independent columns. Where scores chose no pair
at all, that is the noise of one that is measured alone. These numbers are those of benchmarks/accuracy/verdicts.py;
docs/verdict.md says how often grades are right.

Counts of k-tuples are noisier than records, which are smoothed by what triples share: there it is the larger of the noise of a
set and what its records are beyond it. The mean distance of triples was 1.6 to 2.1 times that of pairs (docs/accuracy.md), and
is taken as twice the mean of the three, where this is less.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from marginweave.base.arrays import Floats
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression
from marginweave.observations.means import expected_noise
from marginweave.records.decode import label_counts
from marginweave.released.evaluation import MarginalBound
from marginweave.released.verdict import CARE

# The least that records take over of the noise of a column, as a part of its norm, and of that of larger sets, of its square.
_OF_COLUMN, _OF_SETS = 0.7, 0.03
# The square of the L1 norm of the noise of n cells deviates by 2 sqrt(pi/2 - 1) / sqrt(n) of it; one and a half times that.
_CHANCE = 1.5 * 2 * math.sqrt(math.pi / 2 - 1)
# How far a pair that was not chosen is, in the noise of measuring it.
_UNCHOSEN = 0.55
# Of the records whose value was measured as one with others, how many count as misplaced.
_MISPLACED = 0.25

Sets = Mapping[tuple[str, ...], float | None]


def merged_shares(compression: Compression, names: Sequence[str]) -> dict[str, float]:
    """Of each attribute the share of records whose value was measured as one with others in sets of several columns."""
    found = {}
    for name, new, counts in zip(names, compression.codes, compression.counts, strict=True):
        held = np.maximum(counts, 0.0)
        found[name] = float(held[np.bincount(new)[new] > 1].sum() / max(held.sum(), 1.0))
    return found


def set_errors(
    bounds: Sequence[MarginalBound],
    records: float,
    merged: Mapping[str, float] | None = None,
    drawn: Mapping[int, float] | None = None,
    *,
    is_smoothed: bool = True,
) -> dict[tuple[str, ...], float]:
    """The expected distance of every set that has counts, by its sorted names; `is_smoothed` are all but k-tuples.

    Where values are merged, nothing measured which of them goes with what: a quarter of such records count as misplaced.
    `drawn` has, by the length of a set, the mean distance of the records from the model that they were drawn from.
    """
    modelled = _of_model(
        bounds, {length: 2 * max(records, 1.0) * distance for length, distance in (drawn or {}).items()}
    )
    share = max(_OF_SETS, statistics.median(_taken_shares(modelled) or [0.0]))
    found = {}
    for bound, of_model in zip(bounds, modelled, strict=True):
        if bound.noise is not None:
            several = len(bound.attributes) > 1
            by_chance = math.sqrt(bound.distance**2 - of_model.distance**2)
            smoothed = math.hypot(_smoothed(of_model, bound.noise, share), by_chance)
            apart = smoothed if is_smoothed else _beyond(bound, bound.noise)
            misplaced = _MISPLACED * sum((merged or {}).get(name, 0.0) for name in bound.attributes) if several else 0.0
            found[sorted_names(bound.attributes)] = min(1.0, apart / (2 * max(records, 1.0)) + misplaced)
    return found


def _of_model(bounds: Iterable[MarginalBound], drawn: Mapping[int, float]) -> list[MarginalBound]:
    """The sets with the distance of the model, where that of the records from it is `drawn`, in records (L1)."""
    found = []
    for bound in bounds:
        by_chance = drawn.get(len(bound.attributes), 0.0)
        distance = math.sqrt(max(bound.distance**2 - by_chance**2, 0.0))
        found.append(bound.model_copy(update={"distance": distance}))
    return found


def _taken_shares(bounds: Sequence[MarginalBound]) -> list[float]:
    """Of each larger set the share of its noise that records took over, as if they followed nothing else."""
    sets = [bound for bound in bounds if len(bound.attributes) > 1 and bound.noise]
    return [1 - (bound.distance / bound.noise) ** 2 for bound in sets if bound.noise]


def _beyond(bound: MarginalBound, noise: float) -> float:
    """The larger of the noise and what the records are beyond it, in records (L1)."""
    return max(noise, math.sqrt(max(0.0, bound.distance**2 - noise**2)))


def _smoothed(bound: MarginalBound, noise: float, share: float) -> float:
    """How far a model is that took over some of the noise, in records (L1)."""
    own = abs(noise**2 - bound.distance**2)
    if len(bound.attributes) == 1:
        return max(_OF_COLUMN * noise, math.sqrt(own))
    cells = max(1.0, noise / expected_noise(bound.deviation, 1)) if bound.deviation else 1.0
    return math.sqrt(max(share * noise**2, own - _CHANCE * noise**2 / math.sqrt(cells)))


def unchosen_errors(
    distances: Mapping[tuple[str, ...], float], counts: Aggregates, deviation: float, left: float = 0.0
) -> dict[tuple[str, ...], float]:
    """The expected distance of every pair, as if it had not been chosen, from the counts of its two columns.

    With the shares p_a and q_b of their values, N records and noise of a deviation s, a cell is off by what noise would have
    been in it, or by what independent columns have there, where this is less: sum_ab min(sqrt(2/pi) s, N p_a q_b) / (2 N).
    Where rounds had no share left for pairs that are farther than that, it is `left`, and at most 2 e where all records except
    a share e have one value of a column.
    Besides, the rows and the records are each a draw of the same columns: with the variance v = N p_a q_b (1 - p_a)(1 - q_b)
    of a cell of independent ones, they are sum_ab min(sqrt(4 v/pi), 2 N p_a q_b) / (2 N) apart.
    """
    records, names = max(1.0, float(counts.record_count)), counts.domain.names
    shares = [_shares(held, records) for held in label_counts(counts)]
    noise, found = expected_noise(deviation, 1) / records, dict[tuple[str, ...], float]()
    for (one, first), (other, second) in itertools.combinations(zip(names, shares, strict=True), 2):
        alone = [distances.get((name,)) for name in (one, other)]
        independent = np.outer(first, second)
        by_noise = _UNCHOSEN * float(np.minimum(noise, independent).sum()) / 2
        together = max(by_noise, min(left, 2 * (1 - first.max()), 2 * (1 - second.max())))
        variances = np.outer(first * (1 - first), second * (1 - second)) / records
        chance = float(np.minimum(np.sqrt(4 / math.pi * variances), 2 * independent).sum()) / 2
        if None not in alone:
            parts = (together, chance, *(part for part in alone if part is not None))
            found[sorted_names((one, other))] = min(1.0, math.hypot(*parts))
    return found


def _shares(held: Floats, records: float) -> Floats:
    """The shares of the values of a column, and of those without one."""
    shares = np.clip(held / records, 0.0, 1.0)
    return np.append(shares, max(0.0, 1.0 - float(shares.sum())))


def sorted_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names by which a set of columns is looked up, whatever their order."""
    return tuple(sorted(names))


def expected_errors(distances: Mapping[tuple[str, ...], float], names: Sequence[str]) -> Sets:
    """The expected distance of every set of one to three columns; None of a pair of which nothing is known.

    `distances` has that of sets by themselves, by their sorted names. Of triples there are those that
    something measured, or whose three pairs are known.
    """
    place = {name: i for i, name in enumerate(names)}
    found: dict[tuple[str, ...], float | None] = {
        tuple(sorted(columns, key=place.__getitem__)): error for columns, error in distances.items()
    }
    for pair in itertools.combinations(names, 2):
        found[pair] = _at_least(found.get(pair), [found.get((name,)) for name in pair])
    for triple in itertools.combinations(names, 3):
        pairs = [found.get(pair) for pair in itertools.combinations(triple, 2)]
        known = [error for error in pairs if error is not None]
        if len(known) == len(pairs):
            smoothed = min(found.get(triple) or 1.0, 1.0, 2 * statistics.fmean(known))
            found[triple] = _at_least(smoothed, known)
    return found


def _at_least(error: float | None, parts: Iterable[float | None]) -> float | None:
    """The error of a set, which is never less than that of a part of it: a distance only falls where cells are added up.

    What nothing measured is not known, but for that: None where its parts allow care.
    """
    worst = max([error or 0.0, *(part for part in parts if part is not None)])
    return None if error is None and worst <= CARE else worst
