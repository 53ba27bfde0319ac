"""A noise mechanism is its object in the catalogue: one that only this test knows is planned, priced, drawn and told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from marginweave.answers.intervals import Reach
from marginweave.answers.tables import tables_of
from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.estimate.intervals import count_interval
from marginweave.estimate.mixture import draws
from marginweave.forecast.noise import forecast, noise_forecast, observer_chance
from marginweave.ledger.plans import check_plan
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.base import CountNoise, l1_sensitivity
from marginweave.mechanisms.catalogue import MECHANISMS
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.payloads import unpack_observations
from marginweave.observations.tables import Observation
from tests.support.configurations import configuration
from tests.support.level_draws import category, table_of
from tests.support.stage_draws import MARGINALS, MeasuredTable

SIZE = 20_000


class Geometric(CountNoise):
    """The difference of two geometric numbers, by inversion in floats: for this test alone."""

    name = "made-up-noise"  # pyright: ignore[reportAssignmentType]
    parameter = "epsilon"
    words = "two-sided geometric noise, epsilon {parameter:.6g}"
    setting = "made-up"  # pyright: ignore[reportAssignmentType]
    title = "geometric"
    is_pure = True
    share_power = 1 / 2
    mean_error = math.sqrt(1 / 2)
    kurtosis = 6.0
    most_cells = 1 << 20

    @staticmethod
    def price(parameter: float) -> Cost:
        return Cost(plain=BasicAmount(epsilon=Decimal(repr(parameter))))

    def parts(self, parameter: float, shares: Sequence[float]) -> tuple[Fraction, ...]:
        return tuple(
            Fraction(repr(parameter)) * Fraction(share) / sum(map(Fraction, shares))
            for share in shares
        )

    def sigma(self, part: Fraction) -> float:
        return 1 / (math.sqrt(2) * math.sinh(self._rate(part) / 2))

    def cell_error(self, parameter: float) -> float:
        return l1_sensitivity(self.stability) / parameter

    def add(self, counts: Integers, part: Fraction, bits: DrawBits, table: int) -> Integers:
        uniform = (bits.words(table, 0, 2 * counts.size).reshape(2, -1) + 0.5) / 2.0**64
        one, other = np.floor(-np.log(uniform) / self._rate(part)).astype(np.int64)
        noisy: Integers = counts + (one - other).reshape(counts.shape)
        return noisy

    @staticmethod
    def log_tail(sigma: float, least: Integers) -> Floats:
        return -least / sigma

    @staticmethod
    def reach(sigma: float, level: float) -> int:
        return math.ceil(-math.log(1 - level) * sigma)

    def _rate(self, part: Fraction) -> float:
        return float(part) / l1_sensitivity(self.stability)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, Geometric.name, Geometric)


def geometric() -> Configuration:
    """A configuration whose `aggregate.noise` is the new one.

    The other registration is its name in `src/marginweave/base/budget.py`.
    """
    columns = {
        name: {**category(size), "impute": {"distribution": "uniform"}}
        for name, size in (("a", SIZE), ("b", 3))
    }
    found = configuration(columns=columns, **MARGINALS, aggregate__cliques={"all": 2})
    return found.model_copy(
        update={"aggregate": found.aggregate.model_copy(update={"noise": Geometric.setting})}
    )


def test_it_is_planned_priced_and_told() -> None:
    """All of epsilon, in plain, for its draws; the ledger refuses one that costs less; forecasts call it by its title."""
    config = geometric()
    plan = plan_budget(config)
    one_way, larger = plan.draw(OneWayMarginals), plan.draw(LargerMarginals)
    assert one_way.mechanism is larger.mechanism is Geometric
    assert plan.cost.plain.epsilon == Decimal(repr(config.privacy.epsilon))
    assert {"allocation", "marginals", "noise"} <= one_way.terms(config).keys()
    check_plan(plan.prices)
    less = replace(larger, cost=Cost(plain=BasicAmount(epsilon=larger.cost.plain.epsilon / 2)))
    with pytest.raises(InputError, match=f"draw marginals costs less than {Geometric.name}"):
        check_plan(replace(plan, draws=(one_way, less)).prices)
    assert str(noise_forecast(config)[0]).startswith(
        "Noise: geometric, charged to the account's allowance"
    )
    assert all(str(row.noise).startswith("geometric, sd ") for row in forecast(config)[0])


def test_its_noise_is_drawn_as_it_says(tmp_path: Path) -> None:
    """20,000 cells of one record or none: the standard deviation that the marginal claims, within 5 of its standard errors.

    The mean square of so many cells is within 5.1 sqrt(5 / 20000) of itself (kurtosis 6) but for 5e-7.
    """
    table = MeasuredTable(geometric(), table_of([[1], [2]], (SIZE, 3)), tmp_path)
    wide, narrow = unpack_observations(table.draw("one-way"))
    assert wide.noise == narrow.noise == Geometric.name
    assert abs(float((wide.counts**2).mean()) / wide.deviation**2 - 1) < 5.1 * math.sqrt(5 / SIZE)
    inside = count_interval(np.array([100]), 4.0, noise=wide.noise)
    assert int(inside.high[0]) - 100 == Geometric.reach(4.0, 0.95)


def test_who_reads_its_counts_asks_it_for_its_tails() -> None:
    """Intervals of answers, replicates of a fit, and the chance of an observer in a plan."""
    counts = np.array([[500.0, 20.0], [20.0, 500.0]])
    measured = Observation(attributes=(0, 1), counts=counts, deviation=4.0, noise=Geometric.name)
    tails = tables_of([measured], (2, 2)).tails
    assert tails == {Geometric.name}
    assert (
        Reach(level=0.95, tails=tails).of(4.0)
        == Geometric.reach(4.0, 0.95)
        > Reach(level=0.95).of(4.0)
    )
    replicate = draws._noisy(measured, counts, 1040.0, np.random.default_rng(1))
    as_laplace = np.random.default_rng(1).laplace(0.0, 4.0 / np.sqrt(2), counts.shape)
    assert np.array_equal(replicate.counts, counts + as_laplace)
    config = geometric()
    chance = (1 + config.privacy.delta / math.e) / (1 + 1 / math.e)
    assert f"{observer_chance(config, 1.0):.1f}" == f"{100 * chance:.1f} %"
