"""The pipeline of marginals from encoded rows to the last draw, on made-up tables: discovery, merging, choice of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.flows.audit.made_up import MadeUpRelease
from marginweave.flows.audit.marginals import drawn_counts
from marginweave.schemas.configuration.marginals import MarginalSettings
from marginweave.schemas.released.measurements import Clique, Measurement
from marginweave.tasks.aggregate.cliques import (
    count_values,
    declared_cliques,
    discover_labels,
    discovery,
    domain_sizes,
    fitting,
    most_cells,
    released_compression,
    scored_pairs,
    scoring,
    selected_cliques,
    synthesizable,
)
from marginweave.tasks.aggregate.marginals import all_cliques, count_marginals, measure_marginals, split_deviations
from marginweave.tasks.aggregate.released import recode
from marginweave.tasks.aggregate.selection.compress import compress_codes
from marginweave.tasks.aggregate.selection.indif import indif_scores, measure_indif
from marginweave.tasks.empirical.scores import Scores, shift_score, split_cut
from marginweave.tasks.mechanisms.randomness import fresh_bits

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
    one_way, score = _measured(release, "one-way", tables, side, sizes, all_cliques(sizes, 1))
    if "marginals" not in {draw.name for draw in plan.draws}:
        return score
    compression = released_compression(one_way, settings, ())
    tables = [compress_codes(rows, compression) for rows in tables]
    cliques, more = _chosen(release, settings, tables, side, compression.sizes, sizes)
    if cliques:
        more += _measured(release, "marginals", tables, side, compression.sizes, cliques)[1]
    return score + more


def _measured(
    release: MadeUpRelease,
    name: str,
    tables: Sequence[Rows],
    side: int,
    sizes: Sequence[int],
    cliques: Sequence[Clique],
) -> tuple[list[Measurement], float]:
    """The marginals of one draw, and what they say of the unit."""
    settings, stability = release.configuration.marginals, release.configuration.stability
    assert settings is not None
    deviations = split_deviations(release.plan.draw(name).parameter, cliques, sizes, settings.allocation, stability)
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
    configuration, draw = release.configuration, release.plan.draw("marginals")
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
