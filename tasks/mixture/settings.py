"""What steers the fit of a mixture."""

from __future__ import annotations

import math
from dataclasses import dataclass

from marginweave.schemas.errors import InputError


@dataclass(frozen=True, kw_only=True)
class MixtureSettings:
    """Parameters of the fit.

    `components`: how many products of independent columns are mixed. `iterations`: most steps of Adam. `rate`: length of the
    first steps, in logits; it falls to 0 as a cosine. `spread`: standard deviation of the logits of the first components around
    independent columns; the smaller, the closer the fit stays to independence where the counts say little. `noise`: the fit
    ends where its mean squared distance to the counts, over their variance, is below this; 0 never ends early. `seed`:
    public, for the first components. Raises InputError for a value out of range.
    """

    components: int = 300
    iterations: int = 300
    rate: float = 0.05
    spread: float = 0.1
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.components < 1:
            raise InputError(f"components ({self.components}) must be at least 1")
        if self.iterations < 0:
            raise InputError(f"iterations ({self.iterations}) must not be negative")
        for name in ("rate", "spread"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} ({getattr(self, name)}) must be positive")
        if not 0 <= self.noise < math.inf:
            raise InputError(f"noise ({self.noise}) must be finite and not negative")
