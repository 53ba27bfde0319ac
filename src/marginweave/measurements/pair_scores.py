"""Noisy scores of pairs (InDif of PrivSyn), which select the pairs that are worth their noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import Stability
from marginweave.base.digests import counts_digest
from marginweave.base.errors import InputError, StageError
from marginweave.checkpoints.codecs import pack_arrays
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import count_marginals, in_passes
from marginweave.domain.masks import Clique
from marginweave.draws.protocol import SMALL
from marginweave.measurements.base import Drawn, Exact, Forecast, Measurement, PrivateRows, Terms
from marginweave.measurements.few_records import has_few_records
from marginweave.measurements.one_way import compressed_rows, drawn_one_way
from marginweave.measurements.selection import scored_pairs
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import add_noise, gaussian_terms, noise_sigma
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.combinations import Aggregates
from marginweave.prepare.codes import Codes
from marginweave.released.statement import DrawNoise

FINEST_STEPS = 1024
# A noise table of this width is made in about a second, one of 2^17 in twenty and in 600 MB; a step of 1/8192 sigma is
# far below the noise.
_WIDEST = 8192
_MOST_ROWS = 1 << 30
# The sensitivity of a score includes theta and neighbors already.
_ONE = Stability(records=1, neighbors="add-remove")


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
    """Return how far one score, as a multiple of 1/steps, moves with one unit: 4 theta steps, or 8 theta steps.

    One record more moves InDif by at most 4 (n - a_x)(n - b_y) / (n (n + 1)) <= 4 (PrivSyn, lemma 4), theta records by
    4 theta, one after the other; a replaced unit leaves and comes, 8 theta. On the grid that is a whole number D of steps, and
    rounding adds nothing: floor(x + 1/2) is monotone and moves with whole steps, so x <= y + D has floor(x + 1/2) <=
    floor(y + 1/2) + D.
    DP: arithmetic on public numbers.
    """
    moved_by_record = 8 if stability.neighbors == "replace-one" else 4
    return moved_by_record * stability.records * steps


def plan_indif(
    pairs: int,
    multiplier: float,
    stability: Stability,
) -> IndifNoise:
    """Return grid and noise of `pairs` scores, whose L2 sensitivity is sqrt(pairs) times that of one.

    The grid is 1/1024, or coarser by powers of two, down to whole records, where the noise would need a very wide table. The
    noise, in records, is that of a sensitivity of 4 theta + 1/1024 (8 theta + 1/1024) on every grid: never less than
    `indif_sensitivity`, as it would be for rounding of any kind on the finest one.
    DP: arithmetic on public numbers. Raises InputError for a parameter out of range.
    """
    if pairs < 1:
        raise InputError(f"pairs ({pairs}) must be at least 1")
    steps = FINEST_STEPS
    moved = indif_sensitivity(steps, stability) + 1
    sigma = noise_sigma(multiplier, moved**2 * pairs, _ONE)
    while sigma > _WIDEST and steps > 1:
        steps = steps // 2
        sigma = sigma / 2
    return IndifNoise(steps=steps, sigma=sigma)


def indif_score(table: Integers, steps: int) -> int:
    """Return InDif of one pair, || M_ab - M_a x M_b / n ||_1 in records, rounded to a multiple of 1/steps; exact integers.

    `table` is the pair's exact marginal. n InDif = sum |n M_ab - M_a M_b| is an integer of at most 2 n^2. An empty table
    scores 0. Private. Raises StageError beyond 2^30 rows, where n^2 would leave 64 bits.
    """
    rows = int(table.sum())
    if rows == 0:
        return 0
    if rows > _MOST_ROWS:
        raise StageError("InDif takes at most 2^30 rows")
    # n InDif = sum |n M_ab - M_a M_b|
    product = np.outer(table.sum(axis=1), table.sum(axis=0))
    scaled = int(np.abs(rows * table - product).sum())
    return (2 * steps * scaled + rows) // (2 * rows)


def indif_scores(
    blocks: Iterable[Sequence[Codes]],
    sizes: Sequence[int],
    pairs: Sequence[Clique],
    steps: int,
) -> Integers:
    """Return InDif of every pair as a multiple of 1/steps, by few passes over the blocks; shape (pairs,). Private.

    Raises as `indif_score`.
    """
    scores: list[int] = []
    for pairs_of_pass in in_passes(pairs, sizes):
        scores += [
            indif_score(table, steps) for table in count_marginals(blocks, sizes, pairs_of_pass)
        ]
    return np.array(scores, np.int64)


def measure_indif(
    scores: Integers,
    noise: IndifNoise,
    bits: DrawBits,
) -> Floats:
    """Return noisy InDif of every pair, in records, from `indif_scores` on the grid of `noise`; may be negative.

    `add_noise` of the scores of PrivSyn (Zhang et al. 2021, section 4.2), a vector of the sensitivity of `indif_sensitivity`
    times the root of their number. DP: 1/multiplier^2 in mu^2 for the multiplier of `plan_indif`.
    """
    noisy: Floats = add_noise(scores, noise.sigma, bits) / noise.steps
    return noisy


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreCounts:
    """The exact scores of all pairs, in steps of a grid, and the noise on it. Private."""

    scores: Integers
    noise: IndifNoise


class PairScores(Measurement[ScoreCounts]):
    """A noisy score for every pair of attributes, rare values merged. DP: mu-GDP with mu = 1 / its multiplier."""

    template = "selection"
    title = "scores of pairs"
    share_key = "aggregate.selection_share"

    def grid(self, configuration: Configuration) -> IndifNoise:
        """Return grid and noise, from the number of pairs of attributes. DP: arithmetic on public numbers."""
        pairs = math.comb(len(configuration.attributes), 2)
        return plan_indif(pairs, self.noise_multiplier, self.view.stability(configuration))

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return the sensitivity: every score moves by `indif_sensitivity` at most."""
        steps = self.grid(configuration).steps
        pairs = math.comb(len(configuration.attributes), 2)
        moved = indif_sensitivity(steps, self.view.stability(configuration))
        return Sensitivity(
            l1=pairs * moved,
            l2_squared=pairs * moved**2,
            steps=steps,
        )

    def terms(self, configuration: Configuration) -> Terms:
        """Return grid and sigma."""
        grid = self.grid(configuration)
        return {"steps": grid.steps, "sigma": str(grid.sigma)}

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise of a score, in records."""
        return Forecast(sigmas=(self.grid(configuration).score_sigma,), unit="score")

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - it is planned
        """Return sigma of a score, in records, on a grid of `step` records."""
        grid = self.grid(configuration)
        return DrawNoise(sigma=grid.score_sigma, step=1 / grid.steps)

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[ScoreCounts]:
        """Return the exact scores."""
        merged = compressed_rows(rows, drawn)
        one_way = drawn_one_way(drawn)
        pairs = scored_pairs(one_way.declared_sizes, drawn.plan.by_name["marginals"].mechanism)
        noise = self.grid(drawn.configuration)
        scores = indif_scores(merged, merged.sizes, pairs, noise.steps)
        return Exact(
            counts=ScoreCounts(scores=scores, noise=noise),
            digest=counts_digest([scores]),
            used={**gaussian_terms(noise.sigma), "steps": noise.steps},
            size=SMALL + 8 * len(pairs),
        )

    def draw(self, exact: Exact[ScoreCounts], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002 - none
        """Return the scores with noise."""
        scores = measure_indif(exact.counts.scores, exact.counts.noise, bits)
        return pack_arrays({"scores": scores}, {})

    def is_needed(self, drawn: Drawn) -> bool:
        """Return whether these scores choose: with few records the draw of the marginals has other ones."""
        return not has_few_records(drawn)

    def unreached(self, drawn: Drawn) -> bytes:  # noqa: ARG002 - none of them
        """Return no scores."""
        return pack_arrays({"scores": np.zeros(0)}, {})
