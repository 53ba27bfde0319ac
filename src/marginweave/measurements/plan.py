"""Plan of a release: its measurements in the order of their draws, and the (epsilon, delta) that it states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from marginweave.accounting.charges import Charge, ChargedPlan
from marginweave.base.budget import BasicAmount, Cost, Neighbors
from marginweave.configuration.release import Configuration
from marginweave.measurements.base import Measurement, Measurements
from marginweave.mechanisms.base import CountNoise


@dataclass(frozen=True, kw_only=True)
class Plan(Measurements):
    """The whole split of (epsilon, delta), a function of the configuration alone; see `ChargedPlan`."""

    epsilon: float
    delta: float
    neighbors: Neighbors
    delta_threshold: float
    spent_epsilon: float
    unit: str = "row"

    @property
    def cost(self) -> Cost:
        """Sum of the draws: the release's guarantee follows from it, and it is reserved."""
        return self.prices.cost

    @property
    def statement(self) -> BasicAmount:
        """Pair (epsilon, delta) that the release states."""
        return self.prices.statement

    @cached_property
    def prices(self) -> ChargedPlan:
        """Price of the plan, without the terms of its draws."""
        return self._charged(measurement.price for measurement in self.draws)

    def charged(self, configuration: Configuration) -> ChargedPlan:
        """Return all that the ledger records of it: its price, with the terms of its draws."""
        return self._charged(measurement.charge(configuration) for measurement in self.draws)

    def _charged(self, charges: Iterable[Charge]) -> ChargedPlan:
        return ChargedPlan(
            epsilon=self.epsilon,
            delta=self.delta,
            neighbors=self.neighbors,
            delta_threshold=self.delta_threshold,
            spent_epsilon=self.spent_epsilon,
            charges=tuple(charges),
            unit=self.unit,
        )

    def reserved(self, charged: ChargedPlan) -> Plan:
        """Return this plan with the numbers of `charged`, which has the same draws: the plan that is drawn."""
        measurements = (self.by_name[charge.name].charged(charge) for charge in charged.charges)
        return replace(
            self,
            epsilon=charged.epsilon,
            delta=charged.delta,
            neighbors=charged.neighbors,
            delta_threshold=charged.delta_threshold,
            spent_epsilon=charged.spent_epsilon,
            draws=tuple(measurements),
            unit=charged.unit,
        )

    @property
    def pure_noise(self) -> type[CountNoise] | None:
        """Noise on marginals that is charged in plain epsilon, if any: one kind in a release."""
        return pure_noise(self.draws)


def pure_noise(measurements: Iterable[Measurement[Any]]) -> type[CountNoise] | None:
    """Return the noise on counts that is charged in plain epsilon, if some measurement has it."""
    for measurement in measurements:
        mechanism = measurement.mechanism
        if issubclass(mechanism, CountNoise) and mechanism.is_pure:
            return mechanism
    return None
