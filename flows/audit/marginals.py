"""The audit of marginals: mechanism by mechanism, and the pipeline from encoded rows to the last draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.flows.audit.made_up import MadeUpRelease
from marginweave.flows.audit.tuples import TEST_DELTA
from marginweave.schemas.arrays import Counts, Floats
from marginweave.schemas.budget import BudgetPlan, DrawKind, PlannedDraw, Stability
from marginweave.schemas.configuration.marginals import AdaptiveCliques, MarginalSettings
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Domain
from marginweave.schemas.released.measurements import Clique, Measurement
from marginweave.tasks.aggregate.domain import (
    compress_codes,
    count_values,
    discover_labels,
    discovery,
    domain_sizes,
    recode,
    released_compression,
)
from marginweave.tasks.aggregate.marginals import (
    Split,
    all_cliques,
    count_marginals,
    laplace_noises,
    measure_marginals,
    measure_with_laplace,
    split_deviations,
    split_epsilons,
)
from marginweave.tasks.aggregate.rounds import candidate_scores, score_sensitivity
from marginweave.tasks.aggregate.selection import (
    declared_cliques,
    fitting,
    indif_scores,
    measure_indif,
    most_cells,
    plan_indif,
    scored_pairs,
    scoring,
    selected_cliques,
    synthesizable,
)
from marginweave.tasks.empirical.findings import Hits, Scores, separation, shift_score, split_cut
from marginweave.tasks.evaluate.paid import mean_count_error
from marginweave.tasks.mechanisms.gaussian import add_noise, error_deviation, select_candidate
from marginweave.tasks.mechanisms.randomness import fresh_bits

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
            return [np.concatenate([b, np.full(unit, v, np.uint8)]) for b, v in zip(base, values, strict=True)]

        replaces = stability.neighbors == "replace-one"
        return cls(
            present=with_unit([size - 1 for size in sizes]),
            absent=with_unit(other) if replaces else base,
            sizes=tuple(sizes),
        )


def marginal_scores(draw: PlannedDraw, length: int, split: Split, stability: Stability, trials: int) -> Scores:
    """Log-likelihood ratios of all marginals of `length` attributes with Gaussian noise, as they are counted and drawn."""
    tables = Neighbors.of(SIZES, stability)
    cliques = all_cliques(SIZES, length)
    deviations = split_deviations(draw.parameter, cliques, SIZES, split, stability)
    present, absent = (count_marginals([table], SIZES, cliques) for table in (tables.present, tables.absent))
    shifts = [one - other for one, other in zip(present, absent, strict=True)]
    cut = separation(zip(shifts, deviations, strict=True)) / 2

    def scores(exact: Sequence[Counts], trials: int) -> Floats:
        measured = measure_marginals(_repeated(exact, trials), cliques, deviations, fresh_bits())
        parts = zip(measured, absent, shifts, deviations, strict=True)
        scores = [shift_score(_trials(m, trials), base, shift, sd) for m, base, shift, sd in parts]
        total: Floats = np.sum(scores, axis=0)
        return total

    return Scores(present=_in_chunks(scores, present, trials), absent=_in_chunks(scores, absent, trials), cut=cut)


def laplace_scores(draw: PlannedDraw, length: int, split: Split, stability: Stability, trials: int) -> Scores:
    """1 where all cells that a unit moves are as far as it moves them: the event of the largest loss, all of epsilon."""
    tables = Neighbors.of(FEW_SIZES, stability)
    cliques = all_cliques(FEW_SIZES, length)
    epsilons = split_epsilons(draw.parameter, cliques, FEW_SIZES, split)
    present, absent = (count_marginals([table], FEW_SIZES, cliques) for table in (tables.present, tables.absent))

    def far(exact: Sequence[Counts]) -> Floats:
        repeated = _repeated(exact, trials)
        noises = laplace_noises([counts.size for counts in repeated], epsilons, stability)
        measured = measure_with_laplace(repeated, cliques, epsilons, stability, noises)
        drawn = (_trials(measurement, trials) for measurement in measured)
        everywhere: Floats = np.all(list(_beyond(drawn, present, absent)), axis=0).astype(np.float64)
        return everywhere

    return Scores(present=far(present), absent=far(absent), cut=0.5)


def _beyond(
    drawn: Iterable[Counts], present: Sequence[Counts], absent: Sequence[Counts]
) -> Iterator[NDArray[np.bool_]]:
    """For each marginal, in which trials every cell that the unit moves is at least as far as it moves it."""
    for noisy, one, other in zip(drawn, present, absent, strict=True):
        beyond = (noisy - one.ravel()) * np.sign(one - other).ravel() >= 0
        yield beyond[:, (one != other).ravel()].all(axis=1)


def _in_chunks(scores: Callable[[Sequence[Counts], int], Floats], exact: Sequence[Counts], trials: int) -> Floats:
    """The scores of all trials, a part of them drawn at a time."""
    return np.concatenate([scores(exact, min(_CHUNK, trials - done)) for done in range(0, trials, _CHUNK)])


def _repeated(exact: Sequence[Counts], trials: int) -> list[Counts]:
    """Each marginal `trials` times, one after the other along its first attribute: as many draws in one."""
    return [np.tile(counts, (trials, *[1] * (counts.ndim - 1))) for counts in exact]


def _trials(measurement: Measurement, trials: int) -> Counts:
    """The draws of a repeated marginal, shape (trials, cells)."""
    return drawn_counts(measurement).reshape(trials, -1)


def drawn_counts(measurement: Measurement) -> Counts:
    """The noisy counts as drawn: whole numbers."""
    return measurement.counts.astype(np.int64)


def choice_scores(draw: PlannedDraw, stability: Stability, trials: int) -> Scores:
    """1 where the first of two marginals was chosen, by the shipped scores and choice, from the worst models there are.

    The model has one marginal as it is without the unit, the other as it is with it: their distances are 0 and the whole
    sensitivity without the unit, the other way round with it, so that the odds move by epsilon.
    """
    tables, cliques, settings = Neighbors.of(SIZES, stability), ((0, 1), (0, 2)), AdaptiveCliques(adaptive=2)
    present, absent = (count_marginals([table], SIZES, cliques) for table in (tables.present, tables.absent))
    model: dict[Clique, Floats] = {cliques[0]: absent[0].astype(np.float64), cliques[1]: present[1].astype(np.float64)}
    sensitivity = score_sensitivity(settings, cliques, stability)
    chosen = []
    for exact in (present, absent):
        scores = candidate_scores(zip(cliques, exact, strict=True), model.__getitem__, settings, 0.0)
        picks = (select_candidate(scores, sensitivity, draw.parameter, fresh_bits()) for _ in range(trials))
        chosen.append(np.array([pick == 0 for pick in picks]))
    return Scores(present=chosen[0].astype(np.float64), absent=chosen[1].astype(np.float64), cut=0.5)


def selection_scores(draw: PlannedDraw, stability: Stability, trials: int) -> Scores:
    """Log-likelihood ratios of the noisy scores of all pairs: the unit's values are new in every attribute."""
    tables = Neighbors.of(SIZES, stability, rows=2000 * stability.records)
    pairs: Sequence[Clique] = all_cliques(SIZES, 2)
    noise = plan_indif(len(pairs), draw.parameter, stability)
    exact = [indif_scores([table], SIZES, pairs, noise.steps) for table in (tables.present, tables.absent)]
    shift, sd = exact[0] - exact[1], float(noise.deviation)
    present, absent = (
        shift_score(
            np.rint(measure_indif(repeated, noise, fresh_bits()) * noise.steps).astype(np.int64), exact[1], shift, sd
        )
        for repeated in (np.broadcast_to(scores, (trials, len(pairs))) for scores in exact)
    )
    return Scores(present=present, absent=absent, cut=separation([(shift, sd)]) / 2)


def evaluation_scores(draw: PlannedDraw, length: int, stability: Stability, trials: int) -> Scores:
    """Log-likelihood ratios of the noisy mean count error: the unit leaves cells of synthetic records for empty ones."""
    tables = Neighbors.of(SIZES, stability, rows=10)
    domain = Domain(names=("a", "b", "c"), labels=tuple(tuple(map(str, range(size))) for size in SIZES))
    made = [np.full(10 + 4 * stability.records, max(0, size - 2), np.uint8) for size in SIZES]
    marginals = all_cliques(SIZES, min(length, len(SIZES)))
    sd = error_deviation(draw.parameter, stability)
    present, absent = (
        np.array([mean_count_error([table], [made], domain, marginals, len(made[0]))], np.int64)
        for table in (tables.present, tables.absent)
    )
    shift = present - absent
    noisy = (add_noise(np.repeat(exact, trials), sd, fresh_bits())[:, None] for exact in (present, absent))
    scores = [shift_score(counts, absent, shift, sd) for counts in noisy]
    return Scores(present=scores[0], absent=scores[1], cut=separation([(shift, sd)]) / 2)


def exposed_values(configuration: Configuration, plan: BudgetPlan, units: int) -> Hits:
    """How many of `units` units have a value that only they have discovered, at `TEST_DELTA`; as `exposed_units`."""
    sd, threshold = discovery(configuration, replace(plan, delta_threshold=TEST_DELTA))
    rows, held = configuration.stability.records, len(configuration.private_columns)

    def exposed(values: int, count: int) -> int:
        counts = {j: np.full(units * values, count, np.int64) for j in range(held)}
        labels = [tuple(map(str, range(units * values)))] * held
        found = discover_labels(counts, labels, sd, threshold, fresh_bits())
        return len({int(text) // values for texts in found.values() for text in texts})

    return Hits(present=exposed(rows, 1), absent=exposed(1, rows), trials=units)


def values_scores(configuration: Configuration, plan: BudgetPlan, trials: int) -> Scores:
    """How many of a unit's values, which others have as well, are discovered; where half of them are."""
    sd, threshold = discovery(configuration, plan)
    held = len(configuration.private_columns)
    labels = [tuple(map(str, range(trials)))] * held

    def discovered(count: int) -> Floats:
        counts = {j: np.full(trials, count, np.int64) for j in range(held)}
        found = discover_labels(counts, labels, sd, threshold, fresh_bits())
        hits = np.concatenate([np.array([int(text) for text in texts], np.int64) for texts in found.values()])
        return np.bincount(hits, minlength=trials).astype(np.float64)

    base = max(1, threshold - configuration.stability.records // 2)
    return Scores(
        present=discovered(base + configuration.stability.records), absent=discovered(base), cut=(held - 1) / 2 + 0.25
    )


Rows = tuple[NDArray[np.unsignedinteger], ...]


def marginal_pipeline_scores(release: MadeUpRelease, trials: int) -> Scores:
    """Log-likelihood ratios of everything that a release of marginals tells before it is normalised, run by run.

    The cut is from a fifth of the trials, which are left out then.
    """
    present, absent = (np.array([_run(release, side) for _ in range(trials)]) for side in (0, 1))
    return split_cut(present, absent)


def _run(release: MadeUpRelease, side: int) -> float:
    """One release of the table with the unit (`side` 0) or without it (1), scored."""
    configuration, plan = release.configuration, release.plan
    settings = configuration.marginals
    assert settings is not None
    both = [blocks.whole() for blocks in (release.present, release.absent)]
    found: dict[int, tuple[str, ...]] = {}
    if configuration.private_columns:
        private = [j for j, attribute in enumerate(configuration.attributes) if attribute.private]
        counts = count_values([both[side]], private)
        found = discover_labels(counts, both[side].labels, *discovery(configuration, plan), fresh_bits())
    labels = [found.get(j, attribute.labels) for j, attribute in enumerate(configuration.attributes)]
    sizes = domain_sizes(configuration.attributes, labels)
    tables: list[Rows] = [recode(table, found).codes for table in both]
    one_way, score = _measured(release, DrawKind.ONE_WAY, tables, side, sizes, all_cliques(sizes, 1))
    if not plan.has(DrawKind.MARGINALS):
        return score
    compression = released_compression(one_way, settings, ())
    tables = [compress_codes(rows, compression) for rows in tables]
    cliques, more = _chosen(release, settings, tables, side, compression.sizes, sizes)
    if cliques:
        more += _measured(release, DrawKind.MARGINALS, tables, side, compression.sizes, cliques)[1]
    return score + more


def _measured(
    release: MadeUpRelease,
    kind: DrawKind,
    tables: Sequence[Rows],
    side: int,
    sizes: Sequence[int],
    cliques: Sequence[Clique],
) -> tuple[list[Measurement], float]:
    """The marginals of one draw, and what they say of the unit."""
    settings, stability = release.configuration.marginals, release.configuration.stability
    assert settings is not None
    deviations = split_deviations(release.plan.draw(kind).parameter, cliques, sizes, settings.allocation, stability)
    present, absent = (count_marginals([rows], sizes, cliques) for rows in tables)
    measured = list(measure_marginals((present, absent)[side], cliques, deviations, fresh_bits()))
    parts = zip(measured, present, absent, deviations, strict=True)
    score = sum(shift_score(drawn_counts(m)[None], other, one - other, sd)[0] for m, one, other, sd in parts)
    return measured, float(score)


def _chosen(
    release: MadeUpRelease, settings: MarginalSettings, tables: Sequence[Rows], side: int, sizes: Sequence[int],
    domain: Sequence[int],
) -> tuple[Sequence[Clique], float]:  # fmt: skip
    """The larger marginals of a release, and what their choice says of the unit."""
    configuration, draw = release.configuration, release.plan.draw(DrawKind.MARGINALS)
    if not settings.selects(len(sizes)):
        return fitting(declared_cliques(settings, configuration.names, domain), sizes, most_cells(draw)), 0.0
    noise, pairs = scoring(configuration, release.plan), scored_pairs(sizes, draw)
    present, absent = (indif_scores([rows], sizes, pairs, noise.steps) for rows in tables)
    scores = measure_indif((present, absent)[side], noise, fresh_bits())
    on_grid = np.rint(scores * noise.steps).astype(np.int64)[None]
    cliques = selected_cliques(
        settings, sizes, scores, draw, configuration.stability, synthesizable(configuration, sizes, ())
    )
    return cliques, float(shift_score(on_grid, absent, present - absent, noise.deviation)[0])
