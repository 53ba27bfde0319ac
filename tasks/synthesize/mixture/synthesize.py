"""Synthetic records from a fitted mixture of products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marginweave.schemas.arrays import Records
from marginweave.schemas.errors import InputError
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.synthesize.mixture.arrange import arrange_records
from marginweave.tasks.synthesize.mixture.deal import deal_records
from marginweave.tasks.synthesize.mixture.mend import mend_records
from marginweave.tasks.synthesize.shards import SHARD, ShardPlan, stream


@dataclass(frozen=True, kw_only=True)
class MixtureSynthesis:
    """What the shards of one synthesis share: the model; every shard deals records of its own from it."""

    model: Mixture
    number: int
    seed: int
    plan: ShardPlan

    @classmethod
    def of(cls, model: Mixture, records: int, seed: int, *, most: int = SHARD) -> MixtureSynthesis:
        """Prepare `records` records from a fitted model, in shards of at most `most`; the same seed makes the same records.

        Raises:
            InputError: a negative number of records, or as `Mixture.conditioned`.
        """
        if records < 0:
            raise InputError(f"records ({records}) must not be negative")
        return cls(model=model.conditioned(), number=records, seed=seed, plan=ShardPlan.of(records, most=most))

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
        arrange_records(records, owners, self.model, generator)
        mend_records(records, owners, self.model, generator)
        return records[generator.permutation(number)]
