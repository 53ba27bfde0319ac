"""All records of a synthesis at once, by each of the methods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Records
from marginweave.base.parallel import LocalEngine
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import AnySynthesis, GumSynthesis, SynthesisSettings
from marginweave.domain.masks import Mask
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Marginals, Observation
from marginweave.records import synthesize
from marginweave.records.gum.synthesize import Gum
from marginweave.records.release import synthesize_blocks
from marginweave.records.shards import SHARD, RecordSampler, ShardPlan
from marginweave.records.synthesize import SeededSynthesis


def every_record(maker: RecordSampler | SeededSynthesis) -> Records:
    """All records, shard after shard, made on all cores."""
    return np.concatenate(list(LocalEngine().map(maker.records, range(maker.plan.shards))))


def seeded(
    aggregates: Aggregates,
    settings: SynthesisSettings,
    optional: Sequence[bool] | None = None,
    forbidden: Sequence[Sequence[tuple[int, int]]] = (),
    most: int = SHARD,
) -> SeededSynthesis:
    """What grows records from released combinations without sets; every column can be missing unless `optional` says so."""
    columns = len(aggregates.domain.sizes)
    optional = [True] * columns if optional is None else optional
    with mock.patch.object(synthesize, "ShardPlan", mock.Mock(of=partial(ShardPlan.of, most=most))):
        return SeededSynthesis(aggregates, settings, optional, forbidden, [-1] * columns)


def synthesize_records(*arguments: Any, **named: Any) -> Records:
    """All records of `seeded`, whose arguments these are."""
    return every_record(seeded(*arguments, **named))


def synthesize_gum(
    measurements: Sequence[Observation],
    sizes: Sequence[int],
    records: int,
    settings: GumSynthesis,
    masks: Sequence[Mask] = (),
) -> Records:
    """Records that GUM makes of marginals."""
    return every_record(
        RecordSampler(
            sample=Gum(measurements, sizes, settings, masks).sample,
            number=records,
            seed=settings.seed,
        )
    )


def synthesize_codes(
    counts: Aggregates | Marginals, configuration: Configuration, settings: AnySynthesis
) -> tuple[NDArray[np.integer], ...]:
    """All of `synthesize_blocks` at once."""
    return tuple(
        np.concatenate(parts)
        for parts in zip(*synthesize_blocks(counts, configuration, settings), strict=True)
    )
