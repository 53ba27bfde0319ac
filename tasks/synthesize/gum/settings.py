"""What steers GUM, with the constants of the paper beside ours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from marginweave.schemas.errors import InputError

Shape = Literal["step", "exponential", "linear", "root"]

# The constants of PrivSyn's code; the step also falls every 20 rounds.
RATES: dict[Shape, float] = {"step": 0.84, "exponential": 0.008, "linear": 0.02, "root": 0.12}
_STEP_ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class GumSettings:
    """Parameters of GUM.

    `start`: rows from a maximum spanning tree of the pairs (by mutual information), or each attribute by itself.
    `rounds`: most passes over all marginals; fewer if one moves nothing. `schedule`: how the update rate alpha falls, see
    `update_rate`. `tolerance`: a cell is left alone while it is within this many standard deviations of its target, because
    that far it is noise; 0 follows every count. `duplicate`: share of the records added to a cell that are copies of whole
    records, by round, again and again; the others only take the values of the marginal. `seed`: public, for these choices.
    Raises InputError for a value out of range.
    """

    start: Literal["tree", "one-way"] = "tree"
    rounds: int = 30
    schedule: Shape = "step"
    tolerance: float = 1.0
    duplicate: tuple[float, ...] = (0.5, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise InputError(f"rounds ({self.rounds}) must not be negative")
        if not 0 <= self.tolerance < math.inf:
            raise InputError(f"tolerance ({self.tolerance}) must be finite and not negative")
        if not self.duplicate or not all(0 <= share <= 1 for share in self.duplicate):
            raise InputError(f"duplicate ({self.duplicate}) must be shares between 0 and 1")


# Singleton start, about a hundred rounds, every count followed: PrivSyn, section 5.2, appendices I and J.
PAPER = GumSettings(start="one-way", rounds=100, tolerance=0.0)


def update_rate(schedule: Shape, done: int) -> float:
    """Alpha after `done` rounds, at most 1: an under-full cell of n records takes at most alpha n more.

    PrivSyn, appendix J, alpha_0 = 1: step k^floor(t/s), exponential e^(-kt), linear 1/(1 + kt), root 1/sqrt(1 + kt).
    """
    k = RATES[schedule]
    if schedule == "step":
        return float(k ** (done // _STEP_ROUNDS))
    if schedule == "exponential":
        return math.exp(-k * done)
    if schedule == "linear":
        return 1 / (1 + k * done)
    return 1 / math.sqrt(1 + k * done)
