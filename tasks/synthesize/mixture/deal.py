"""Records dealt from a mixture: every value as often as the model says, up to rounding, and only its place by chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Integers, Records
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.estimate.rounding import apportion, round_shares

Array = NDArray[np.float64]


def deal_records(model: Mixture, records: int, generator: np.random.Generator) -> tuple[Records, Integers]:
    """Records, shape (records, attributes), component by component, and the component of each.

    A component gets its share of the records by systematic sampling, each of its cells the share of these by `round_shares`;
    within a component the cells of every block are in random order. DP: post-processing.
    """
    made = np.zeros((records, len(model.sizes)), np.int32, order="F")
    numbers = apportion(model.weights, records, generator)
    owners = np.repeat(np.arange(model.components), numbers)
    for block, shares in zip(model.blocks, model.shares, strict=True):
        counts = round_shares(shares, numbers, generator)
        cells = np.repeat(np.tile(np.arange(shares.shape[1]), len(counts)), counts.ravel())
        shuffled = generator.permutation(records)
        cells = cells[shuffled[np.argsort(owners[shuffled], kind="stable")]]
        made[:, block.attributes] = block.cells[cells]
    return made, owners
