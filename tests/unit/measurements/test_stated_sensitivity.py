"""The sensitivity that a measurement states is the one that its noise is made for: both relations, one row and several."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from marginweave.configuration.release import Configuration
from marginweave.measurements.base import Measurement
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.kinds import KINDS
from marginweave.measurements.linked_counts import LinkedHistograms
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.private_values import PrivateValues
from marginweave.measurements.quantile_bounds import QuantileBound
from marginweave.measurements.record_count import RecordCount
from marginweave.measurements.round_draws import RoundChoice
from marginweave.measurements.rounds import candidate_sets, score_sensitivity
from marginweave.measurements.rows_beyond_cap import RowsBeyondCap
from marginweave.measurements.split import plan_budget
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.measurements.whole_marginals import SharedNoise, public_sizes
from marginweave.mechanisms.gaussian import RoundedGaussian, gaussian_sigma
from marginweave.mechanisms.laplace import DiscreteLaplace, laplace_scale
from tests.support.configurations import PRIVATE, configuration
from tests.support.linked_counts import counted_hospital

BOUGHT = {"type": "number", "bounds": "private", "within": [0, 120], "bins": 6, "decimals": 0}
MARGINALS: dict[str, Any] = {"aggregate__method": "marginals"}
SHAPES: dict[str, dict[str, Any]] = {
    "k-tuples": {
        "aggregate__percentile": "none",
        "columns__region": PRIVATE,
        "columns__age": BOUGHT,
    },
    "percentiles": {"aggregate__percentile": 90},
    "selected": {**MARGINALS, "columns__region": PRIVATE},
    "Laplace": {**MARGINALS, "aggregate__noise": "laplace", "aggregate__cliques": {"all": 2}},
    "rounds": {
        **MARGINALS,
        "aggregate__cliques": {"adaptive": 3, "rounds": 3},
        "synthesize": {"method": "mixture"},
    },
}
UNITS: dict[str, dict[str, Any]] = {
    "a row": {},
    "replaced": {"privacy__neighbors": "replace-one"},
    "three rows": {"privacy__unit": {"column": "id", "max_records": 3}},
    "three rows, replaced": {
        "privacy__unit": {"column": "id", "max_records": 3},
        "privacy__neighbors": "replace-one",
    },
}


def check(draw: Measurement[Any], config: Configuration) -> None:
    """Each kind as its mechanism has it."""
    stated = draw.sensitivity(config)
    match draw:
        case RecordCount() | TupleLevel() | PrivateValues() | RowsBeyondCap():
            assert draw.sigma(config) == gaussian_sigma(draw.noise_multiplier, stated)
        case PairScores():  # on every grid of a sensitivity that is a step larger on the finest one
            assert draw.grid(config).steps == stated.steps
            assert draw.grid(config).sigma >= gaussian_sigma(draw.noise_multiplier, stated)
        case SharedNoise():
            noise = draw.count_noise(config)
            (part,) = noise.parts(draw.parameter, [1.0])
            if draw.mechanism is RoundedGaussian:
                assert part == gaussian_sigma(draw.parameter, stated)
            else:
                assert draw.mechanism is DiscreteLaplace
                assert laplace_scale(part, noise.stability) >= Fraction(stated.l1) / part
        case QuantileBound() | ContributionBound():
            assert draw.terms(config)["sensitivity"] == stated.l1
        case RoundChoice():
            assert config.rounds is not None
            sets = candidate_sets(config.rounds, public_sizes(config))
            assert score_sensitivity(config.rounds, sets, draw.view.stability(config)) == stated.l1
        case LinkedHistograms():
            sigmas = [gaussian_sigma(each, stated) for each in draw.multipliers(config)]
            assert list(draw.parts(config)) == sigmas
        case _:
            raise AssertionError(f"{draw.name} has no law here")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_noise_is_made_for_the_stated_sensitivity(shape: str, unit: str) -> None:
    config = configuration(**SHAPES[shape], **UNITS[unit])
    for draw in plan_budget(config).draws:
        check(draw, config)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_noise_on_linked_rows_is_made_for_the_stated_sensitivity(relation: str) -> None:
    config = counted_hospital(relation)
    for draw in plan_budget(config).draws:
        check(draw, config)


def test_every_kind_is_looked_at() -> None:
    several = UNITS["three rows"]
    plans = [plan_budget(configuration(**changes, **several)) for changes in SHAPES.values()]
    plans.append(plan_budget(counted_hospital()))
    assert {type(draw) for plan in plans for draw in plan.draws} == set(KINDS)
