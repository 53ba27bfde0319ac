"""Records that hold a forbidden combination exchange values with others, so that every value stays as frequent as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Flags, Records
from marginweave.schemas.released.measurements import Clique, Mask
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.synthesize.gum.start import Drawing

_ROUNDS = 50


def mend_records(records: Records, owners: NDArray[np.int64], model: Mixture, generator: np.random.Generator) -> None:
    """Remove the combinations that the masks of the model forbid, in place; those inside a block are not there anyway.

    A forbidden record swaps the values of a block with a random record of its component, where that leaves both allowed:
    components, and so the model, stay as they are. What is left after some rounds become copies of random other records. DP:
    post-processing.

    Args:
        records: codes, shape (records, attributes), component by component.
        owners: the component of each, ascending.
        model: what the records were dealt from.
        generator: public choices.

    Raises:
        InputError: the masks leave no record.
    """
    if not model.masks:
        return
    blocks = [block.attributes for block in model.blocks if _tied(block.attributes, model.masks)]
    for _ in range(_ROUNDS):
        bad = np.flatnonzero(~allowed_records(records, model.masks))
        if not len(bad):
            return
        block = list(blocks[generator.integers(len(blocks))])
        _swap(records, bad, _partners(bad, owners, generator), block, model.masks)
    drawing = Drawing(
        records=records,
        one_way=[model.marginal((a,)) for a in range(len(model.sizes))],
        masks=[*model.masks, *model.inside],
        generator=generator,
    )
    drawing.dead[:] = ~allowed_records(records, model.masks)
    drawing.revive()


def allowed_records(records: Records, masks: Sequence[Mask]) -> Flags:
    """Which records no mask forbids, shape (records,)."""
    allowed = np.ones(len(records), np.bool_)
    for mask in masks:
        allowed &= mask.allowed[tuple(records[:, a] for a in mask.attributes)]
    return allowed


def _tied(attributes: Clique, masks: Sequence[Mask]) -> bool:
    return any(set(attributes) & set(mask.attributes) for mask in masks)


def _partners(bad: NDArray[np.int64], owners: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """A random record of the component of each, which may be itself."""
    first, last = (np.searchsorted(owners, owners[bad], side) for side in ("left", "right"))
    return first + np.floor(generator.random(len(bad)) * (last - first)).astype(np.int64)


def _swap(
    records: Records, bad: NDArray[np.int64], partners: NDArray[np.int64], block: list[int], masks: Sequence[Mask]
) -> None:
    """Exchange the values of a block where both records are allowed then; nobody is asked twice, and no two of `bad`."""
    _, once = np.unique(partners, return_index=True)
    once = once[~np.isin(partners[once], bad)]
    one, other = bad[once], partners[once]
    left, right = records[one], records[other]
    left[:, block], right[:, block] = right[:, block], left[:, block]
    kept = allowed_records(left, masks) & allowed_records(right, masks)
    records[one[kept]], records[other[kept]] = left[kept], right[kept]
