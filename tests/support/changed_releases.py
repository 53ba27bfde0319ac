"""Releases of one made-up table with noise of their own, as k-tuples and as marginals, to be compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from marginweave.base.arrays import Counts
from marginweave.domain.combinations import Level
from marginweave.estimate.intervals import marginal_intervals, release_intervals
from marginweave.estimate.marginals import (
    compression_of,
    listed_counts,
    marginal_counts,
    normalize_marginals,
)
from marginweave.observations.tables import Marginals, Observation
from marginweave.publish.reader import PublishedRelease
from tests.support.configurations import configuration
from tests.support.published import published

SIZES = (2, 40, 60)
COLUMNS = {
    f"c{j}": {"type": "category", "values": [f"v{v}" for v in range(n)]}
    for j, n in enumerate(SIZES)
}
DEVIATION, THRESHOLD, RECORDS = 6.0, 14, 6000
Truth = dict[tuple[int, ...], Counts]
Make = Callable[[np.random.Generator, Truth], PublishedRelease]


def truth() -> Truth:
    """Counts of all cells, some about as large as the threshold."""
    rng = np.random.default_rng(4)
    found: Truth = {(j,): rng.integers(0, 300, size) for j, size in enumerate(SIZES)}
    return found | {
        (a, b): rng.integers(0, 90, (SIZES[a], SIZES[b]))
        for a, b in itertools.combinations(range(len(SIZES)), 2)
    }


@cache
def base(method: str) -> PublishedRelease:
    """A release of three records whose counts are put in its place."""
    release = published(
        [np.zeros(3, np.uint8)] * 3, columns=COLUMNS, aggregate__reporting_length=2
    )[0]
    # none is cut
    noise = tuple(
        one.model_copy(update={"contribution_bound": len(SIZES)}) for one in release.statement.noise
    )
    release = replace(release, statement=release.statement.model_copy(update={"noise": noise}))
    if method == "k-tuples":
        return release
    return replace(
        release,
        configuration=configuration(
            columns=COLUMNS, aggregate={"method": method, "cliques": {"all": 2}}
        ),
    )


def named(
    release: PublishedRelease, rng: np.random.Generator, records: int = RECORDS
) -> PublishedRelease:
    """With an identifier of its own and a noisy number of records."""
    count = round(records + rng.normal(0, DEVIATION))
    aggregates = replace(release.aggregates, record_count=count, record_deviation=DEVIATION)
    statement = release.statement.model_copy(
        update={"release": str(rng.integers(1 << 60)), "begun": "2026-03-01"}
    )
    return replace(release, aggregates=aggregates, statement=statement)


def noisy(rng: np.random.Generator, counts: Counts) -> Counts:
    return counts + np.rint(rng.normal(0, DEVIATION, counts.shape)).astype(np.int64)


def tuples_of(rng: np.random.Generator, counts: Truth) -> PublishedRelease:
    """k-tuples: what reached the threshold."""
    release, levels, noise = named(base("k-tuples"), rng), [], []
    for length in (1, 2):
        parts = []
        for columns, table in counts.items():
            if len(columns) == length:
                drawn = noisy(rng, table)
                values = np.argwhere(drawn >= THRESHOLD)
                parts.append((columns, values, drawn[tuple(values.T)]))
        levels.append(Level.join(length, parts))
        noise.append(
            replace(release.aggregates.noise[length - 1], deviation=DEVIATION, threshold=THRESHOLD)
        )
    aggregates = replace(release.aggregates, levels=tuple(levels), noise=tuple(noise))
    return replace(
        release,
        aggregates=aggregates,
        intervals=release_intervals(aggregates, aggregates, release.configuration),
    )


def marginals_of(rng: np.random.Generator, counts: Truth) -> PublishedRelease:
    """Marginals: every cell, rare values merged as a run would."""
    release, config = named(base("marginals"), rng), base("marginals").configuration
    one_way = tuple(
        Observation(attributes=(j,), counts=noisy(rng, counts[j,]), deviation=DEVIATION)
        for j in range(len(SIZES))
    )
    plain = Marginals(domain=release.aggregates.domain, one_way=one_way, larger=())
    merged = compression_of(plain, config)[1]
    larger = []
    for columns, table in counts.items():
        if len(columns) == 2:
            together = np.zeros([merged.sizes[a] for a in columns], np.int64)
            np.add.at(together, np.ix_(*(merged.codes[a] for a in columns)), table)
            larger.append(
                Observation(attributes=columns, counts=noisy(rng, together), deviation=DEVIATION)
            )
    found = normalize_marginals(replace(plain, larger=tuple(larger)), config)
    aggregates = listed_counts(marginal_counts(found, config), 1)[0]
    aggregates = replace(
        aggregates, record_count=release.aggregates.record_count, record_deviation=DEVIATION
    )
    return replace(
        release,
        aggregates=aggregates,
        marginals=found,
        intervals=marginal_intervals(aggregates, found, config),
    )
