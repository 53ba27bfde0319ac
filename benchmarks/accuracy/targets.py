"""What is asked of accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.accuracy.measures import MEASURES
from benchmarks.accuracy.summaries import Summary


@dataclass(frozen=True, kw_only=True)
class Target:
    """At most so much of each measure, by one method on a table at an epsilon."""

    table: str
    epsilon: float
    most: Mapping[str, float]

    @property
    def key(self) -> str:
        """The measure that the best method is picked by: the last one."""
        return list(self.most)[-1]

    @property
    def what(self) -> str:
        """In words."""
        return f"{self.table}, epsilon {self.epsilon:g}: {', '.join(MEASURES[key] for key in self.most)}"

    @property
    def asked(self) -> str:
        """The limits."""
        return " / ".join(f"{value:.3f}" for value in self.most.values())

    def shown(self, found: Summary) -> str:
        """What was reached."""
        return " / ".join(str(found.of(key)) for key in self.most)

    def reached(self, found: Summary) -> bool:
        """Whether every mean is within its limit."""
        return all(found.of(key).mean <= value for key, value in self.most.items())


TARGETS = (
    Target(table="adult", epsilon=1.0, most={"l1_2": 0.060, "l1_3": 0.145}),
    Target(table="adult", epsilon=10.0, most={"l1_2": 0.020, "l1_3": 0.077}),
    Target(table="adult_cat", epsilon=1.0, most={"tvd3": 0.032}),
    Target(table="ma2019_cat", epsilon=1.0, most={"tvd3": 0.060}),
    Target(table="drug_deaths_cat", epsilon=1.0, most={"tvd3": 0.024}),
)
