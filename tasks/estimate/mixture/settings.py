"""What steers the fit of a mixture."""

from __future__ import annotations

import math
from dataclasses import dataclass

from marginweave.schemas.errors import InputError


@dataclass(frozen=True, kw_only=True)
class MixtureSettings:
    """Parameters of the fit.

    `components`: how many products of independent columns one fit mixes. `fits`: how many fits are averaged, each from a
    start of its own; they disagree about what the counts do not say, and the average does not claim it. `iterations`: most
    steps of Adam. `rate`: length of the first steps, in logits; it falls to 0 as a cosine. `held`: which share of a first
    component lies on one record; the smaller, the closer the fit stays to independence where the counts say little. `noise`:
    a fit ends where its mean squared distance to the counts, over their variance, is at most this, in all and nearly so for
    single attributes, pairs and larger sets each, as what is nearer follows the noise; 0 never ends early. `seed`: public, for
    the starts. Raises InputError for a value out of range.
    """

    components: int = 300
    fits: int = 8
    iterations: int = 1000
    rate: float = 0.1
    held: float = 0.2
    noise: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("components", "fits"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} ({getattr(self, name)}) must be at least 1")
        if self.iterations < 0:
            raise InputError(f"iterations ({self.iterations}) must not be negative")
        if not 0 < self.rate < math.inf:
            raise InputError(f"rate ({self.rate}) must be positive")
        if not 0 < self.held < 1:
            raise InputError(f"held ({self.held}) must lie in (0, 1)")
        if not 0 <= self.noise < math.inf:
            raise InputError(f"noise ({self.noise}) must be finite and not negative")
