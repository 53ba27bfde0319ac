"""Synthetic records from noisy marginals by way of a fitted mixture of products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.errors import InputError
from marginweave.schemas.measurements import Mask, Measurement
from marginweave.tasks.mixture.fit import fit_mixture
from marginweave.tasks.mixture.model import Mixture
from marginweave.tasks.mixture.settings import MixtureSettings
from marginweave.tasks.synthesize.mixture.deal import deal_records
from marginweave.tasks.synthesize.mixture.mend import mend_records
from marginweave.tasks.synthesize.shards import SHARD, ShardPlan, stream

Records = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class MixtureSynthesis:
    """What the shards of one synthesis share: the model, fitted once; every shard deals records of its own from it."""

    model: Mixture
    number: int
    seed: int
    plan: ShardPlan

    @classmethod
    def of(
        cls,
        measurements: Sequence[Measurement],
        sizes: Sequence[int],
        records: int,
        total: float,
        settings: MixtureSettings,
        masks: Sequence[Mask] = (),
        *,
        most: int = SHARD,
    ) -> MixtureSynthesis:
        """Fit the model to measurements of `total` records; the arguments are those of `fit_mixture`.

        Args:
            measurements: noisy marginals that together hold every attribute.
            sizes: number of codes of each attribute, a missing value included.
            records: how many to make.
            total: of how many records the measurements tell.
            settings: the same settings and marginals make the same records.
            masks: structural zeros.
            most: records of a shard at most.

        Raises:
            InputError: a negative number of records, or as `fit_mixture`.
        """
        if records < 0:
            raise InputError(f"records ({records}) must not be negative")
        model = fit_mixture(measurements, sizes, max(total, 1.0), masks, settings)
        return cls(model=model.conditioned(), number=records, seed=settings.seed, plan=ShardPlan.of(records, most=most))

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self.plan.shards

    def records(self, shard: int) -> Records:
        """The records of a shard, shape (n, attributes), in random order; none is forbidden. DP: post-processing.

        Raises:
            InputError: the masks leave no record.
        """
        generator = stream(self.seed, shard)  # post-processing
        number = self.plan.records(self.number, shard)
        if number == 0:
            return np.zeros((0, len(self.model.sizes)), np.int32)
        records, owners = deal_records(self.model, number, generator)
        mend_records(records, owners, self.model, generator)
        return records[generator.permutation(number)]
