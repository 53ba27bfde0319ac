"""Synthetic records from noisy marginals, by a graphical model (Private-PGM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marginweave.schemas.arrays import Records
from marginweave.schemas.configuration.synthesis import PgmSynthesis
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Mask, Measurement
from marginweave.tasks.estimate.graphical.junction import choose_measurements
from marginweave.tasks.estimate.graphical.tree import Tree, fit_tree
from marginweave.tasks.synthesize.shards import SHARD, ShardPlan, stream


@dataclass(frozen=True, kw_only=True)
class Pgm:
    """Records sampled from a graphical model, which is fitted once and shared by all shards."""

    tree: Tree
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
        settings: PgmSynthesis,
        masks: Sequence[Mask] = (),
        *,
        most: int = SHARD,
    ) -> Pgm:
        """Fit the model to measurements of `total` records; the arguments are those of `fit_tree`.

        Args:
            measurements: noisy marginals; of more than a model of `model_size` holds those that `choose_measurements` picks.
            sizes: number of codes of each attribute, a missing value included.
            records: how many to make.
            total: the number of records that was measured.
            settings: the same settings and marginals make the same records.
            masks: structural zeros.
            most: records of a shard at most.

        Raises:
            InputError: a negative number of records, masks that alone make too large a model, or as `fit_tree`.
        """
        if records < 0:
            raise InputError(f"records ({records}) must not be negative")
        total = max(total, 1.0)
        chosen = choose_measurements(measurements, sizes, total, masks, settings.model_size)
        tree = fit_tree(chosen, sizes, total, masks, settings.iterations)
        return cls(tree=tree, number=records, seed=settings.seed, plan=ShardPlan.of(records, most=most))

    def records(self, shard: int) -> Records:
        """The records of a shard, shape (n, attributes), in random order; none is forbidden. DP: post-processing."""
        return self.tree.sample(self.plan.records(self.number, shard), stream(self.seed, shard))  # post-processing
