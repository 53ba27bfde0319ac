"""Bytes of a fitted mixture."""

from __future__ import annotations

from marginweave.schemas.released.measurements import Mask
from marginweave.tasks.checkpoint.codecs import pack_arrays, unpack_arrays
from marginweave.tasks.estimate.mixture.model import Mixture


def pack_mixture(model: Mixture) -> bytes:
    """Weights and shares in float64, as they were fitted, with all masks: the model again, bit for bit."""
    masks = [*model.masks, *model.inside, *model.codes]
    shares = {f"shares-{b:05d}": shares for b, shares in enumerate(model.shares)}
    allowed = {f"mask-{m:05d}": mask.allowed for m, mask in enumerate(masks)}
    return pack_arrays(
        {"weights": model.weights, **shares, **allowed},
        {"sizes": model.sizes, "total": model.total, "masks": [mask.attributes for mask in masks]},
    )


def unpack_mixture(payload: bytes) -> Mixture:
    """The model that `pack_mixture` packed."""
    arrays, meta = unpack_arrays(payload)
    masks = [
        Mask(attributes=tuple(attributes), allowed=arrays[f"mask-{m:05d}"])
        for m, attributes in enumerate(meta["masks"])
    ]
    shares = [arrays[name] for name in sorted(arrays) if name.startswith("shares-")]
    return Mixture.of(arrays["weights"], shares, meta["sizes"], meta["total"], masks)
