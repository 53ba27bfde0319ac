"""Released combinations of every length, and the noise they carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from marginweave.counts.candidates import MOST_COUNTED
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain


@dataclass(frozen=True, kw_only=True)
class LevelNoise:
    """The noise of one length: contribution bound Delta_k, standard deviation, and the threshold.

    A combination was kept when its noisy count was at least `threshold`; `private_threshold` is the larger integer T that
    values of private domains had to reach at length 1 (0 elsewhere). `candidates` is the number of combinations that got noise
    (an upper bound where it is not `exact`), or None at length 1 when a private domain is among them (their number is not
    public). `raised_from` is the configured threshold, where a larger one replaced it because more combinations than
    `aggregate.max_combinations` might have been kept, or too many drawn to choose them from.
    """

    length: int
    contribution_bound: int
    deviation: float
    threshold: int
    private_threshold: int
    candidates: int | None
    raised_from: int | None = None

    @property
    def exact(self) -> bool:
        """True if `candidates` is their exact number: from length 3 on, more than MOST_COUNTED are not counted."""
        return self.length <= 2 or self.candidates is None or self.candidates <= MOST_COUNTED


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """A set of released counts. `record_count` is the noisy number of records, never below 0.

    `measured` is None where all sets of columns were counted; from marginals it has the sets that were measured, or are part of
    one that was, with the standard deviation of the noise of a cell.
    """

    domain: Domain
    record_count: int
    record_deviation: float
    levels: tuple[Level, ...]
    noise: tuple[LevelNoise, ...]
    measured: Mapping[tuple[int, ...], float] | None = None

    @property
    def reporting_length(self) -> int:
        """Length R of the longest combination."""
        return len(self.levels)

    @property
    def bounds(self) -> dict[int, int]:
        """Most combinations of each length in which a record was counted."""
        return {noise.length: noise.contribution_bound for noise in self.noise}
