"""The audit of marginals: mechanism by mechanism, and the pipeline from encoded rows to the last draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Counts, Flags, Floats, Integers
from marginweave.base.budget import Stability
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.marginals import AdaptiveCliques, MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.counts.released_rows import count_values, recode
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import domain_sizes
from marginweave.measurements import pair_scores, private_values, selection
from marginweave.measurements.base import Measurement
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.marginals import Split, measure_marginals, split_noise
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.plan import Plan
from marginweave.measurements.private_values import PrivateValues
from marginweave.measurements.round_candidates import Candidates
from marginweave.measurements.rounds import candidate_scores, score_sensitivity
from marginweave.measurements.whole_marginals import WholeMarginals
from marginweave.mechanisms.base import CountNoise
from marginweave.mechanisms.gaussian import select_candidate
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.observations.compression import compress_codes, released_compression
from marginweave.observations.tables import Observation
from tests.audit.findings import (
    Hits,
    TrialScores,
    event_scores,
    noise_scores,
    separation,
    shift_score,
)
from tests.audit.made_up import MadeUpRelease
from tests.audit.tuples import TEST_DELTA

Table = list[NDArray[np.uint8]]
# Made-up domains, no two of a size; Laplace noise is drawn slowly.
SIZES = (2, 3, 4)
FEW_SIZES = (2, 3)
_CHUNK = 50_000


@dataclass(frozen=True, kw_only=True)
class Neighbors:
    """Two made-up tables that differ in one unit, whose rows are alike: the worst it can do to marginals."""

    present: Table
    absent: Table
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Sequence[int], stability: Stability, rows: int = 20) -> Neighbors:
        """`rows` rows of first values, and a unit of last values; replaced, one of the values before the last."""
        base = [np.zeros(rows, np.uint8) for _ in sizes]
        other = [size - 2 for size in sizes]

        def with_unit(values: Sequence[int]) -> Table:
            unit = stability.records
            return [
                np.concatenate([b, np.full(unit, v, np.uint8)])
                for b, v in zip(base, values, strict=True)
            ]

        replaces = stability.neighbors == "replace-one"
        return cls(
            present=with_unit([size - 1 for size in sizes]),
            absent=with_unit(other) if replaces else base,
            sizes=tuple(sizes),
        )

    def counts(self, cliques: Sequence[Clique]) -> tuple[list[Counts], list[Counts]]:
        """The exact marginals of both tables."""
        present, absent = (
            list(count_marginals([table], self.sizes, cliques))
            for table in (self.present, self.absent)
        )
        return present, absent


def _noise(draw: Measurement[Any], stability: Stability) -> CountNoise:
    assert issubclass(draw.mechanism, CountNoise)
    return draw.mechanism(stability)


def marginal_scores(
    draw: Measurement[Any], length: int, split: Split, stability: Stability, trials: int
) -> TrialScores:
    """Log-likelihood ratios of all marginals of `length` attributes with Gaussian noise, as they are counted and drawn."""
    cliques, noise = all_cliques(SIZES, length), _noise(draw, stability)
    sigmas = split_noise(noise, draw.parameter, cliques, SIZES, split)
    present, absent = Neighbors.of(SIZES, stability).counts(cliques)
    shifts = [one - other for one, other in zip(present, absent, strict=True)]

    def scores(exact: Sequence[Counts], trials: int) -> Floats:
        measured = measure_marginals(noise, _repeated(exact, trials), cliques, sigmas, fresh_bits())
        parts = zip(measured, absent, shifts, sigmas, strict=True)
        return sum(
            (shift_score(_trials(m, trials), base, shift, sd) for m, base, shift, sd in parts),
            np.zeros(trials),
        )

    cut = separation(zip(shifts, sigmas, strict=True)) / 2
    return TrialScores(
        present=_in_chunks(scores, present, trials),
        absent=_in_chunks(scores, absent, trials),
        cut=cut,
    )


def pure_scores(
    draw: Measurement[Any], length: int, split: Split, stability: Stability, trials: int
) -> TrialScores:
    """1 where all cells that a unit moves are as far as it moves them: the event of the largest loss, all of epsilon."""
    cliques, noise = all_cliques(FEW_SIZES, length), _noise(draw, stability)
    parts = split_noise(noise, draw.parameter, cliques, FEW_SIZES, split)
    present, absent = Neighbors.of(FEW_SIZES, stability).counts(cliques)

    def far(exact: Sequence[Counts]) -> Flags:
        repeated, everywhere = _repeated(exact, trials), np.ones(trials, np.bool_)
        ready = (
            noise.presample([counts.size for counts in repeated], parts)
            if noise.takes_no_key
            else None
        )
        measured = measure_marginals(noise, repeated, cliques, parts, fresh_bits(), ready)
        for measurement, one, other in zip(measured, present, absent, strict=True):
            moved = (one != other).ravel()
            further = (_trials(measurement, trials) - one.ravel()) * np.sign(one - other).ravel()
            everywhere &= (further >= 0)[:, moved].all(axis=1)
        return everywhere

    return event_scores(far(present), far(absent))


def _in_chunks(
    scores: Callable[[Sequence[Counts], int], Floats], exact: Sequence[Counts], trials: int
) -> Floats:
    """The scores of all trials, a part of them drawn at a time."""
    return np.concatenate(
        [scores(exact, min(_CHUNK, trials - done)) for done in range(0, trials, _CHUNK)]
    )


def _repeated(exact: Sequence[Counts], trials: int) -> list[Counts]:
    """Each marginal `trials` times, one after the other along its first attribute: as many draws in one."""
    return [np.tile(counts, (trials, *[1] * (counts.ndim - 1))) for counts in exact]


def _trials(measurement: Observation, trials: int) -> Counts:
    """The draws of a repeated marginal, whole numbers, shape (trials, cells)."""
    return measurement.counts.astype(np.int64).reshape(trials, -1)


def choice_scores(draw: Measurement[Any], stability: Stability, trials: int) -> TrialScores:
    """1 where the first of two marginals was chosen, by the shipped scores and choice, from the worst models there are.

    The model has one marginal as it is without the unit, the other as it is with it: their distances are 0 and the whole
    sensitivity without the unit, the other way round with it, so that the odds move by epsilon.
    """
    tables, cliques, settings = (
        Neighbors.of(SIZES, stability),
        ((0, 1), (0, 2)),
        AdaptiveCliques(adaptive=2),
    )
    present, absent = tables.counts(cliques)
    model: dict[Clique, Floats] = {
        cliques[0]: absent[0].astype(np.float64),
        cliques[1]: present[1].astype(np.float64),
    }
    sensitivity = score_sensitivity(settings, cliques, stability)
    chosen = []
    for exact in (present, absent):
        scores = candidate_scores(
            [dict(zip(cliques, exact, strict=True))],
            lambda sets: [model[clique] for clique in sets],
            Candidates(sets=cliques, levels=BinLevels(sizes=SIZES), codes=()),
            settings,
            0.0,
        )
        picks = (
            select_candidate(scores, sensitivity, draw.epsilon, fresh_bits()) for _ in range(trials)
        )
        chosen.append(np.array([pick == 0 for pick in picks]))
    return event_scores(*chosen)


def selection_scores(draw: Measurement[Any], stability: Stability, trials: int) -> TrialScores:
    """Log-likelihood ratios of the noisy scores of all pairs: the unit's values are new in every attribute."""
    tables = Neighbors.of(SIZES, stability, rows=2000 * stability.records)
    pairs: Sequence[Clique] = all_cliques(SIZES, 2)
    noise = pair_scores.plan_indif(len(pairs), draw.noise_multiplier, stability)
    exact = [
        pair_scores.indif_scores([table], SIZES, pairs, noise.steps)
        for table in (tables.present, tables.absent)
    ]

    def noisy(scores: Counts) -> Counts:
        repeated = np.broadcast_to(scores, (trials, len(pairs)))
        return np.rint(
            pair_scores.measure_indif(repeated, noise, fresh_bits()) * noise.steps
        ).astype(np.int64)

    return noise_scores(noisy, exact[0], exact[1], float(noise.sigma))


def exposed_values(configuration: Configuration, plan: Plan, units: int) -> Hits:
    """How many of `units` units have a value that only they have discovered, at `TEST_DELTA`; as `exposed_units`."""
    test = replace(plan.draw(PrivateValues), threshold_delta=TEST_DELTA)
    rows = configuration.stability.records
    present = np.unique(_discovered(configuration, test, units * rows, 1) // rows)
    absent = np.unique(_discovered(configuration, test, units, rows))
    return Hits(present=len(present), absent=len(absent), trials=units)


def _discovered(
    configuration: Configuration, draw: PrivateValues, values: int, count: int
) -> Integers:
    """The values 0 … `values` - 1 that are discovered, of every private column, where each of them is in `count` rows."""
    columns, labels = range(len(configuration.private_columns)), tuple(map(str, range(values)))
    counts = {j: np.full(values, count, np.int64) for j in columns}
    found = private_values.discover_labels(
        counts,
        [labels for _ in columns],
        draw.sigma(configuration),
        draw.threshold(configuration),
        fresh_bits(),
    )
    return np.array([int(text) for texts in found.values() for text in texts], np.int64)


def values_scores(configuration: Configuration, plan: Plan, trials: int) -> TrialScores:
    """How many of a unit's values, which others have as well, are discovered; where half of them are."""
    records = configuration.stability.records
    draw = plan.draw(PrivateValues)
    base = max(1, draw.threshold(configuration) - records // 2)
    present, absent = (
        np.bincount(_discovered(configuration, draw, trials, count), minlength=trials).astype(
            np.float64
        )
        for count in (base + records, base)
    )
    return TrialScores(
        present=present, absent=absent, cut=(len(configuration.private_columns) - 1) / 2 + 0.25
    )


Tables = Sequence[tuple[NDArray[np.unsignedinteger], ...]]


def marginal_pipeline_score(release: MadeUpRelease, side: int) -> float:
    """Log-likelihood ratio of everything that one release of marginals publishes before it is normalised.

    It is of the table with the unit (`side` 0) or without it (1).
    """
    configuration, plan = release.configuration, release.plan
    settings = configuration.marginal_settings
    both = [blocks.whole() for blocks in (release.present, release.absent)]
    found: dict[int, tuple[str, ...]] = {}
    if configuration.private_columns:
        private = [j for j, attribute in enumerate(configuration.attributes) if attribute.private]
        counts, draw = count_values([both[side]], private), plan.draw(PrivateValues)
        found = private_values.discover_labels(
            counts,
            both[side].labels,
            draw.sigma(configuration),
            draw.threshold(configuration),
            fresh_bits(),
        )
    labels = [
        found.get(j, attribute.labels) for j, attribute in enumerate(configuration.attributes)
    ]
    sizes = domain_sizes(configuration.attributes, labels)
    tables: Tables = [recode(table, found).codes for table in both]
    one_way, score = _measured(release, OneWayMarginals, tables, side, sizes, all_cliques(sizes, 1))
    if not plan.of(LargerMarginals):
        return score
    compression = released_compression(one_way, settings, ())
    tables = [compress_codes(rows, compression) for rows in tables]
    cliques, more = _chosen(release, settings, tables, side, compression.sizes, sizes)
    if cliques:
        more += _measured(release, LargerMarginals, tables, side, compression.sizes, cliques)[1]
    return score + more


def _measured(
    release: MadeUpRelease,
    kind: type[WholeMarginals],
    tables: Tables,
    side: int,
    sizes: Sequence[int],
    cliques: Sequence[Clique],
) -> tuple[list[Observation], float]:
    """The marginals of one draw, and what they say of the unit."""
    settings, stability = release.configuration.marginal_settings, release.configuration.stability
    noise = _noise(release.plan.draw(kind), stability)
    sigmas = split_noise(
        noise, release.plan.draw(kind).parameter, cliques, sizes, settings.allocation
    )
    present, absent = (count_marginals([rows], sizes, cliques) for rows in tables)
    measured = list(
        measure_marginals(noise, (present, absent)[side], cliques, sigmas, fresh_bits())
    )
    parts = zip(measured, present, absent, sigmas, strict=True)
    score = sum(
        shift_score(_trials(m, 1), other, one - other, sd)[0] for m, one, other, sd in parts
    )
    return measured, float(score)


def _chosen(
    release: MadeUpRelease, settings: MarginalSettings, tables: Tables, side: int, sizes: Sequence[int],
    full_sizes: Sequence[int],
) -> tuple[Sequence[Clique], float]:  # fmt: skip
    """The larger marginals of a release, and what their choice says of the unit."""
    configuration, draw = release.configuration, release.plan.draw(LargerMarginals)
    if not settings.selects(len(configuration.attributes)):
        return selection.fitting(
            selection.declared_cliques(settings, configuration.attributes, full_sizes),
            sizes,
            selection.most_cells(draw.mechanism),
        ), 0.0
    noise = release.plan.draw(pair_scores.PairScores).grid(configuration)
    pairs = selection.scored_pairs(sizes, draw.mechanism)
    present, absent = (
        pair_scores.indif_scores([rows], sizes, pairs, noise.steps) for rows in tables
    )
    scores = pair_scores.measure_indif((present, absent)[side], noise, fresh_bits())
    on_grid = np.rint(scores * noise.steps).astype(np.int64)[None]
    cliques = selection.selected_cliques(
        settings, sizes, scores, draw.count_noise(configuration), draw.parameter
    )
    return cliques, float(shift_score(on_grid, absent, present - absent, noise.sigma)[0])
