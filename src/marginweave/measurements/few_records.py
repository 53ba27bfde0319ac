"""What is measured of a table with few records: single attributes again, and the few pairs that are farthest from independent.

The draw of larger marginals has one price. What it measures is decided by the counts of single attributes that were drawn
before it, which is post-processing. With fewer than `aggregate.least_records` it does three things, one after the other:

1. Every single attribute is measured again; the means with the first counts decide what is merged.
2. Every pair has a score, unless noise would hide a third of the records (`_can_choose`): the L1 distance of its exact table M
   from that of independent attributes m, in whole records. m follows from released counts. A unit of theta records moves M by
   u >= 0, |u|_1 <= theta, or by u - v: by the triangle inequality the distance moves by theta, or 2 theta. Rounding adds
   nothing, because x <= y + D for a whole D has floor(x + 1/2) <= floor(y + 1/2) + D. All P scores together move by sqrt(P)
   times that in L2.
3. The pairs that noisy scores choose are measured, and single attributes once more with what they leave.

Each has a part of 1/M^2, M the noise multiplier of the draw. The parts follow from the counts and scores before, and all add
up to one, whatever is decided: the draw is 1/M-GDP (Smith and Thakurta 2022, full adaptivity), and the account is the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from marginweave.base.arrays import Counts, Floats, Integers
from marginweave.base.budget import Stability
from marginweave.configuration.defaults import MOST_PAIRS_CHOSEN, pairs_by_noise
from marginweave.configuration.values import MAX_CELLS
from marginweave.counts.marginals import all_cliques, cells, merged_table
from marginweave.domain.masks import Clique, allowed_cells
from marginweave.measurements.base import Drawn
from marginweave.measurements.marginals import split_noise
from marginweave.measurements.one_way import OneWay, drawn_one_way, one_way_of
from marginweave.measurements.rounds import (
    NOISE_LEFT,
    STEPS,
    open_places,
    shares_of_ordinary_columns,
)
from marginweave.measurements.selection import fitting
from marginweave.mechanisms.base import CountNoise, Sensitivity, l1_sensitivity
from marginweave.mechanisms.gaussian import add_noise, gaussian_sigma, marginal_sigma
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.compression import compress_mask, compress_observation
from marginweave.observations.means import estimate_total, expected_noise, merge_observations
from marginweave.observations.tables import Observation

# Parts of the draw: single attributes again, scores, pairs.
AGAIN = Fraction(2, 7)
SCORES = Fraction(1, 7)
PAIRS = Fraction(4, 7)
# Scores are of use if they can show a pair with this share of the records elsewhere than in independent attributes.
_SEEN = 1 / 3
_MOST_CELLS = 10_000  # of a pair, before merging
_WIDEST = 8192  # of the noise of scores: wider noise is of no use to a choice, and its table takes seconds to make


def has_few_records(drawn: Drawn) -> bool:
    """Return whether single attributes count fewer records than `aggregate.least_records`. DP: post-processing."""
    least = drawn.configuration.marginal_settings.least_records
    return least is not None and estimate_total(drawn_one_way(drawn).measured) < least


def candidate_pairs(sizes: Sequence[int]) -> tuple[Clique, ...]:
    """Return the pairs that may be chosen, by the sizes of attributes before merging. DP: arithmetic on public sizes."""
    several = {place for place, size in enumerate(sizes) if size > 1}
    pairs = [pair for pair in all_cliques(sizes, 2, _MOST_CELLS) if several.issuperset(pair)]
    return fitting(pairs, sizes, MAX_CELLS)


def part_multiplier(multiplier: float, part: Fraction) -> float:
    """Return the noise multiplier of a part of a draw, M / sqrt(part): it costs part / M^2 in mu^2.

    DP: arithmetic on public numbers.
    """
    return multiplier / math.sqrt(part)


def score_sigma(multiplier: float, pairs: int, stability: Stability) -> Fraction:
    """Return the standard deviation of the noise of each score, in records: multiplier sqrt(pairs) theta, or 2 theta.

    DP: arithmetic on public numbers.
    """
    moved = l1_sensitivity(stability)
    sensitivity = Sensitivity(l1=pairs * moved, l2_squared=pairs * moved**2)
    return gaussian_sigma(multiplier, sensitivity)


@dataclass(frozen=True, kw_only=True, eq=False)
class FewRecords:
    """Exact marginals of single attributes and of candidate pairs, over codes before merging, and their noise. Private.

    `drawn` has the draws before, `multiplier` is that of this draw.
    """

    drawn: Drawn
    noise: CountNoise
    multiplier: float
    single: Sequence[Counts]
    pairs: Sequence[Clique]
    tables: Sequence[Counts]

    @property
    def terms(self) -> Mapping[str, str | int]:
        """Return the terms of the noise that is there before anything is chosen."""
        sizes = [table.size for table in self.single]
        again = self._deviations(AGAIN, all_cliques(sizes, 1), sizes)
        return self.noise.terms((*again, self._score_sigma) if self.pairs else again)

    def measure(self, bits: DrawBits) -> tuple[Observation, ...]:
        """Return single attributes, then the chosen pairs over merged codes, all with noise.

        Table i of the bits is attribute i, then come the scores, the pairs, and the attributes once more.
        DP: 1/M^2 in mu^2, M the multiplier of the draw.
        """
        again = self._single(AGAIN, bits, 0)
        one_way = one_way_of_both(self.drawn, again)
        chosen, slots = self._chosen(one_way, bits)
        of_pairs = PAIRS * Fraction(len(chosen), slots)
        scored = SCORES if self._can_choose(one_way) else Fraction(0)
        part_left = 1 - AGAIN - scored - of_pairs
        if part_left:
            once_more = self._single(part_left, bits, len(self.single) + 1 + len(self.pairs))
            again = merge_observations([*again, *once_more])
            one_way = one_way_of_both(self.drawn, again)
        larger = self._larger(chosen, of_pairs, one_way, bits) if chosen else ()
        return (*again, *larger)

    @property
    def _score_sigma(self) -> Fraction:
        multiplier = part_multiplier(self.multiplier, SCORES)
        return score_sigma(multiplier, len(self.pairs), self.noise.stability)

    @property
    def _by_chance(self) -> float:
        """The noise of all P scores at most, sigma sqrt(2 ln P), as the largest of P normal numbers is expected to be."""
        return float(self._score_sigma) * math.sqrt(2 * math.log(max(2, len(self.pairs))))

    def _can_choose(self, one_way: OneWay) -> bool:
        """Return whether scores could choose a pair with a third of the records elsewhere than in independent attributes.

        That is a distance of two thirds of the records. Where noise hides it, scores would cost and choose nothing.
        """
        if not self.pairs or self._score_sigma > _WIDEST:
            return False
        least_left = self._noise_left(self._least_slots(one_way), one_way).min()
        return bool(self._by_chance + least_left < 2 * _SEEN * records_of(one_way))

    def _least_slots(self, one_way: OneWay) -> int:
        """Return how many pairs can be chosen at least."""
        return pairs_by_noise(self.drawn.configuration, records_of(one_way))

    def _single(self, part: Fraction, bits: DrawBits, first: int) -> Sequence[Observation]:
        """Return the single attributes with the noise of a part of the draw; table `first` is attribute 0."""
        sizes = [table.size for table in self.single]
        cliques = all_cliques(sizes, 1)
        deviations = self._deviations(part, cliques, sizes)
        return [
            self._observe(clique, table, deviation, bits, first + place)
            for place, (clique, table, deviation) in enumerate(
                zip(cliques, self.single, deviations, strict=True)
            )
        ]

    def _larger(
        self, chosen: Sequence[Clique], part: Fraction, one_way: OneWay, bits: DrawBits
    ) -> list[Observation]:
        """Return the chosen pairs over merged codes with the noise of a part of the draw."""
        deviations = self._deviations(part, chosen, one_way.declared_sizes)
        observations = []
        for pair, deviation in zip(chosen, deviations, strict=True):
            place = self.pairs.index(pair)
            codes = [one_way.compression.codes[a] for a in pair]
            table = merged_table(self.tables[place], codes)
            number = len(self.single) + 1 + place
            observations.append(self._observe(pair, table, deviation, bits, number))
        return observations

    def _observe(
        self, clique: Clique, table: Counts, deviation: Fraction, bits: DrawBits, number: int
    ) -> Observation:
        return Observation(
            attributes=clique,
            counts=self.noise.add(table, deviation, bits, number),
            deviation=float(deviation),
            noise=self.noise.name,
        )

    def _deviations(
        self, part: Fraction, cliques: Sequence[Clique], sizes: Sequence[int]
    ) -> tuple[Fraction, ...]:
        """Return the standard deviation of each of these marginals, which have a part of the draw together."""
        allocation = self.drawn.configuration.marginal_settings.allocation
        multiplier = part_multiplier(self.multiplier, part)
        return split_noise(self.noise, multiplier, cliques, sizes, allocation)

    def _chosen(self, one_way: OneWay, bits: DrawBits) -> tuple[tuple[Clique, ...], int]:
        """Return the pairs to measure by their noisy scores, ascending, and the number of slots.

        They are those with which all pairs together are expected to be closest to the table. A pair that is measured is as far
        as half of its noise. Another one is sqrt(d^2 + e^2) far: d is what its score has above noise (`_dependences`), and e
        the noise of its attributes, which have what slots leave. There are at most 16 slots, and at least `pairs_by_noise`.
        """
        least = self._least_slots(one_way)
        if not self._can_choose(one_way):
            return (), least
        scores = pair_scores(self.pairs, self.tables, one_way)
        noisy = add_noise(scores, self._score_sigma, bits, table=len(self.single))
        dependences = self._dependences(np.asarray(noisy, np.float64), one_way)
        alone = np.hypot(dependences, self._attribute_noise(one_way, 1 - SCORES))
        best: tuple[Clique, ...] = ()
        best_slots, least_distance = least, float(alone.sum())
        for slots in range(least, max(least, MOST_PAIRS_CHOSEN) + 1):
            left = self._noise_left(slots, one_way)
            places = self._farthest(alone - left, slots)
            for number in range(1, len(places) + 1):
                singles = 1 - SCORES - PAIRS * Fraction(number, slots)
                distances = np.hypot(dependences, self._attribute_noise(one_way, singles))
                distances[places[:number]] = left[places[:number]]
                if distances.sum() < least_distance:
                    least_distance = float(distances.sum())
                    best, best_slots = tuple(self.pairs[i] for i in places[:number]), slots
        return tuple(sorted(best)), best_slots

    def _dependences(self, noisy_scores: Floats, one_way: OneWay) -> Floats:
        """Return how far each pair is from independent attributes, as far as no noise explains its score, in records.

        A score is a distance from noisy attributes, whose noise is in it as a square.
        """
        above_chance = (noisy_scores - self._by_chance).clip(min=0)
        squares = above_chance**2 - self._attribute_noise(one_way, AGAIN) ** 2
        return np.sqrt(squares.clip(min=0))

    def _attribute_noise(self, one_way: OneWay, part: Fraction) -> Floats:
        """Return how far the noise of its two attributes makes each pair, in records: sqrt(e_a^2 + e_b^2).

        e is the expected norm of the noise of an attribute that has a part of this draw in addition to the draw before.
        `one_way` has attributes with the part that they have before pairs are chosen, `AGAIN`.
        """
        sizes = [table.size for table in self.single]
        of_again = self._deviations(AGAIN, all_cliques(sizes, 1), sizes)
        norms = np.empty(len(sizes))
        for place, again in enumerate(of_again):
            more = float(part / AGAIN) - 1
            precision = one_way.measured[place].deviation ** -2 + more * float(again) ** -2
            norms[place] = expected_noise(precision**-0.5, one_way.declared_sizes[place])
        first, second = np.array(self.pairs).T
        return np.hypot(norms[first], norms[second])

    def _noise_left(self, slots: int, one_way: OneWay) -> Floats:
        """Return the noise that each pair would leave in the records if it had one of so many slots, in records."""
        multiplier = part_multiplier(self.multiplier, PAIRS / slots)
        deviation = float(marginal_sigma(multiplier, self.noise.stability))
        sizes = one_way.declared_sizes
        norms = [expected_noise(deviation, cells(pair, sizes)) for pair in self.pairs]
        return NOISE_LEFT * np.array(norms)

    def _farthest(self, gains: Floats, slots: int) -> list[int]:
        """Return the places of the pairs that gain most, at most one a slot, the first the most; none that gains nothing.

        As in rounds, the first are of ordinary columns.
        """
        attributes = self.drawn.configuration.attributes
        for_ordinary = shares_of_ordinary_columns(attributes, slots)
        of_sets = [place for place, attribute in enumerate(attributes) if attribute.of_set]
        chosen: list[int] = []
        for slot in range(min(slots, len(self.pairs))):
            taken = [self.pairs[place] for place in chosen]
            places = open_places(self.pairs, taken, of_sets if slot < for_ordinary else ())
            best = int(places[gains[places].argmax()])
            if gains[best] <= 0:
                break
            chosen.append(best)
        return chosen


def one_way_of_both(drawn: Drawn, again: Sequence[Observation]) -> OneWay:
    """Return what follows from the single attributes of both draws. DP: post-processing."""
    first = drawn_one_way(drawn)
    return one_way_of(drawn, (*merge_observations([*first.measured, *again]), *first.of_sets))


def records_of(one_way: OneWay) -> float:
    """Return the number of records by single attributes, at least 1. DP: post-processing."""
    return max(1.0, estimate_total(one_way.measured))


def pair_scores(pairs: Sequence[Clique], tables: Sequence[Counts], one_way: OneWay) -> Integers:
    """Return the distance of every pair from independent attributes, in whole records, shape (pairs,). Private.

    Tables are over merged codes, without those that estimates ignore; cells that rules forbid are expected to be empty.
    """
    sizes = one_way.estimated_sizes
    compression = one_way.estimated_compression
    masks = [compress_mask(mask, compression) for mask in one_way.masks]
    single = [
        compress_observation(observation, compression).counts.clip(min=0)
        for observation in one_way.estimated
    ]
    scores = []
    for pair, table in zip(pairs, tables, strict=True):
        merged = merged_table(table, [one_way.compression.codes[a] for a in pair])
        exact = merged[tuple(slice(sizes[a]) for a in pair)]
        allowed = allowed_cells(pair, exact.shape, masks)
        product = np.outer(single[pair[0]], single[pair[1]]) * allowed
        expected = records_of(one_way) * product / max(product.sum(), 1.0)
        scores.append(distance(exact, expected))
    return np.array(scores, np.int64)


def distance(exact: Counts, expected: Floats) -> int:
    """Return the L1 distance of an exact table from a released one, rounded to whole records; exact integers. Private.

    Expected counts are rounded to multiples of 1/1024 before they meet exact ones.
    """
    steps = np.rint(expected * STEPS).astype(np.int64)
    moved = int(np.abs(exact * STEPS - steps).sum())
    return (2 * moved + STEPS) // (2 * STEPS)
