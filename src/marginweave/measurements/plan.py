"""Planned draws, each with its kind, its place, its mechanism and its price, and the plan of them all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from marginweave.base.budget import BasicAmount, Cost, MechanismName, Neighbors, ParameterName


class DrawKind(StrEnum):
    """What a draw is for. The value is its name, with the numbers that tell draws of a kind apart left open.

    In the order of release: the two quantiles of a column with private bounds (by its position, from 1); of k-tuples the record
    count, and of each length its percentile and its counts; of marginals the private values, the single columns, the scores of
    pairs and the larger marginals; in rounds the choices (by round and place in it) and the measurements (by share); and the
    comparison of the release with the table.
    """

    BOUND_LOW = "bounds-{}-low"
    BOUND_HIGH = "bounds-{}-high"
    COUNT = "count"
    PERCENTILE = "percentile-{}"
    LEVEL = "level-{}"
    VALUES = "values"
    ONE_WAY = "one-way"
    SCORES = "selection"
    MARGINALS = "marginals"
    SELECT = "select-{}-{}"
    MEASURE = "measure-{}"

    @classmethod
    def of(cls, name: str) -> DrawKind | None:
        """The kind of a draw that was recorded by its name, or None."""
        open_name = re.sub(r"-[0-9]+", "-{}", name)
        return next((kind for kind in cls if kind == open_name), None)


@dataclass(frozen=True, kw_only=True)
class PlannedDraw:
    """One draw, known before any data is read. Its name is `str(draw)`, which nothing parses: `kind` and `place` say it.

    `place` are the numbers in the name. `mechanism` says how it draws, with a `parameter`: of Gaussian noise the multiplier,
    by which its sigma is larger than the L2 sensitivity, or epsilon; of several marginals that of all together. One record adds
    1 to at most `width` of the counts; of a length whose contributions a percentile bounds, `width` is the public cap. `terms`
    are the other public facts that it draws by (`src/marginweave/counts/noise.py`): they are reserved with it, and are empty
    before.
    """

    kind: DrawKind
    place: tuple[int, ...] = ()
    mechanism: MechanismName
    parameter: float
    parameter_name: ParameterName = "noise_multiplier"
    width: int = 1
    cost: Cost
    terms: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.kind.value.format(*self.place)

    @property
    def name(self) -> str:
        """Its name, as rows of the ledger and released files have it."""
        return str(self)

    @property
    def noise_multiplier(self) -> float:
        """The parameter of noise that is a multiple of the sensitivity. Raises TypeError for a draw with an epsilon."""
        return self._parameter("noise_multiplier")

    @property
    def epsilon(self) -> float:
        """The parameter of a draw with an epsilon. Raises TypeError for one with a noise multiplier."""
        return self._parameter("epsilon")

    def _parameter(self, name: ParameterName) -> float:
        if name != self.parameter_name:
            raise TypeError(f"draw {self} has no {name}")
        return self.parameter

    @property
    def length(self) -> int:
        """Attributes of the combinations that it is about, of k-tuples; else 0."""
        return self.place[0] if self.kind in (DrawKind.LEVEL, DrawKind.PERCENTILE) else 0

    @property
    def facts(self) -> dict[str, Any]:
        """What rows of the ledger say of it, but its cost."""
        return {
            "name": self.name,
            "mechanism": self.mechanism,
            "length": self.length,
            "parameter": self.parameter,
            "terms": dict(self.terms),
        }


@dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """The whole split of (epsilon, delta), a function of the configuration alone.

    `delta_threshold` pays for the discovery of private domains (0 when every domain is public) and is part of the cost of
    `level-1`, or of `values`. `spent_epsilon` is the epsilon at
    `delta` of the draws together, at most `epsilon`. `unit` is the unit of privacy as the account knows it.
    """

    epsilon: float
    delta: float
    neighbors: Neighbors
    delta_threshold: float
    spent_epsilon: float
    draws: tuple[PlannedDraw, ...]
    unit: str = "row"

    @property
    def cost(self) -> Cost:
        """Sum of the draws: what the release is guaranteed by, and what is reserved for it."""
        return sum((draw.cost for draw in self.draws), Cost())

    @property
    def statement(self) -> BasicAmount:
        """The (epsilon, delta) that the release states."""
        return BasicAmount.stated(self.epsilon, self.delta)

    @cached_property
    def by_name(self) -> dict[str, PlannedDraw]:
        """The draws by their names, for what was recorded by name."""
        return {str(draw): draw for draw in self.draws}

    def has(self, kind: DrawKind) -> bool:
        """Whether there is a draw of this kind."""
        return any(draw.kind is kind for draw in self.draws)

    def draw(self, kind: DrawKind, *place: int) -> PlannedDraw:
        """The draw of this kind at this place. Raises KeyError where the plan has none."""
        return self.by_name[kind.value.format(*place)]
