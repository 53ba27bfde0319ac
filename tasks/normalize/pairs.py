"""Counts of every pair of columns from consistent marginals, for a synthesis that looks up each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Aggregates, Level
from marginweave.schemas.released.measurements import Clique, Marginals
from marginweave.tasks.normalize.holders import Holders
from marginweave.tasks.normalize.marginals import Spread, capped, compression_of, level_of, marginal_counts
from marginweave.tasks.normalize.normalize import combination_keys


def all_pairs(marginals: Marginals, configuration: Configuration) -> Aggregates:
    """Counts of single values and of all pairs, and of longer sets up to the longest length of which all lie in marginals.

    Counts of a set inside marginals are their sums, no more than any part of it has. A pair of columns in no marginal has
    the counts that independence implies, n_ab = n_a n_b / n; where neither value is without a record, at least 1, as nothing
    was measured that would rule the combination out. DP: post-processing.

    Args:
        marginals: normalized ones.
        configuration: what is declared, bounds resolved.

    Returns:
        Counts of lengths 1..R, R at least 2 where there are two columns; `noise` and `measured` as `marginal_counts` has
        them.
    """
    counts = marginal_counts(marginals, configuration)
    columns, sizes = range(len(counts.domain.names)), counts.domain.sizes
    holders = Holders([m.attributes for m in marginals.consistent])
    told: set[Clique] = {pair for pair in itertools.combinations(columns, 2) if holders.of(pair)}
    others = [pair for pair in itertools.combinations(columns, 2) if pair not in told]
    known = [level for level in counts.levels if level.length == 2]
    if others:
        known = [_together([*known, *_independent(counts, others)], sizes)]
    levels = [counts.levels[0], *known]
    spread = Spread.of(compression_of(marginals, configuration)[1])
    for length in range(3, len(counts.levels) + 1):
        sets = list(itertools.combinations(columns, length))
        if not all(map(holders.of, sets)):
            break
        told.update(sets)
        levels.append(capped(level_of(length, sets, marginals.consistent, spread, sizes), levels, told, sizes))
    return replace(counts, levels=tuple(levels), noise=counts.noise[: len(levels)])


def _independent(counts: Aggregates, pairs: Sequence[Clique]) -> Iterator[Level]:
    """What single counts alone say of pairs of columns."""
    singles = {columns[0]: rows for columns, rows in counts.levels[0].by_columns()}
    values, number = counts.levels[0].values[:, 0], counts.levels[0].counts
    for first, second in pairs:
        if not (first in singles and second in singles):
            continue
        a, b = (singles[column] for column in (first, second))
        product = np.multiply.outer(number[a].astype(np.float64), number[b]) / max(counts.record_count, 1)
        expected = np.maximum(np.rint(product).astype(np.int64), 1).ravel()  # no value has more records than there are
        held = np.stack([np.repeat(values[a], len(values[b])), np.tile(values[b], len(values[a]))], axis=1)
        yield Level(
            length=2, columns=np.broadcast_to(np.array([first, second]), held.shape), values=held, counts=expected
        )


def _together(levels: Sequence[Level], sizes: tuple[int, ...]) -> Level:
    """Levels of pairs as one, in canonical order."""
    if not levels:
        return Level.empty(2)
    columns, values, counts = (
        np.concatenate([getattr(level, part) for level in levels]) for part in ("columns", "values", "counts")
    )
    order = np.argsort(combination_keys(columns, values, sizes), kind="stable")
    return Level(length=2, columns=columns[order], values=values[order], counts=counts[order])
