"""Planned draws with their prices, and the range of budgets that the conversions hold for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.measurements.base import Measurement
from marginweave.measurements.quantile_bounds import (
    BOUNDS,
    LowBound,
    QuantileBound,
    column_position,
)
from marginweave.measurements.round_draws import RoundChoice, RoundMarginals
from marginweave.measurements.rows_beyond_cap import SHARE, RowsBeyondCap
from marginweave.mechanisms.exponential import Exponential
from marginweave.mechanisms.gaussian import RoundedGaussian

Kind = type[Measurement[Any]]
"""Kind of draws that a share of the budget is for."""
# Range in which the conversions hold: below, the two tails of the closed form cancel; far above, squares leave the floats.
_LEAST_EPSILON = 1e-3
_MOST_EPSILON = 1e6
_LEAST_DELTA = 1e-20
# Noise of 128 bits adds (1 + e^epsilon) 1e-22 to delta at most, which is not charged: 1 % of the least delta that is allowed.
_UNCHARGED = 1e-22
_LEAST_OF_UNCHARGED = 100


@dataclass(frozen=True, kw_only=True)
class SharedBudget:
    """The budget that all draws share: `delta` is without `delta_threshold`, which pays for the discovery of private values."""

    epsilon: float
    delta: float
    delta_threshold: float


def bounds_draws(configuration: Configuration, epsilon: float) -> list[QuantileBound]:
    """Return the two selections of each column with private bounds, `epsilon` each, by the column's public position."""
    return [
        kind.priced(Exponential, epsilon, column_position(configuration, column))
        for column in configuration.private_bounds
        for kind in BOUNDS
    ]


def bounds_shares(configuration: Configuration) -> dict[Kind, float]:
    """Return the share of all private bounds, under the kind of the first; nothing where there are none."""
    return {LowBound: configuration.bounds_share} if configuration.private_bounds else {}


def uncounted_shares(configuration: Configuration) -> dict[Kind, float]:
    """Return the share of the draw of rows that are not counted; nothing where no rows are left out."""
    return {RowsBeyondCap: SHARE} if RowsBeyondCap.is_planned(configuration) else {}


def round_draws(
    rounds: int,
    batch: int,
    epsilon: float,
    noise_multiplier: float,
) -> list[Measurement[Any]]:
    """Return the draws of rounds: `batch` selections a round, each with `epsilon`, and one share of noise.

    Prices are fixed, whatever a round selects: a round that takes more shares measures its marginals once with each.
    """
    draws: list[Measurement[Any]] = []
    for number in range(1, rounds + 1):
        draws += [
            RoundChoice.priced(Exponential, epsilon, number, pick) for pick in range(1, batch + 1)
        ]
        draws.append(RoundMarginals.priced(RoundedGaussian, noise_multiplier, number))
    return draws


def check_share_left(
    share_left: float,
    shares: Mapping[Kind, float],
    purpose: str,
) -> None:
    """Raise InputError for shares of the budget that leave nothing for `purpose`."""
    if share_left > 0:
        return
    keys: dict[str, float] = {}
    for kind, share in shares.items():
        key = kind.share_key or kind.title
        keys[key] = keys.get(key, 0.0) + share
    named = [f"{key} ({share:g})" for key, share in keys.items() if share]
    raise InputError(
        f"{', '.join(named[:-1])} and {named[-1]} must leave something for the {purpose}: together below 1"
    )


def check_epsilon(name: str, epsilon: float) -> None:
    """Raise InputError for an epsilon that the conversions do not hold for."""
    if not _LEAST_EPSILON <= epsilon <= _MOST_EPSILON:
        raise InputError(
            f"{name} ({epsilon:g}) must be at least {_LEAST_EPSILON:g} and at most {_MOST_EPSILON:g}"
        )


def check_delta(name: str, delta: float) -> None:
    """Raise InputError for a delta that the conversions do not hold for; 0 is for draws that need none."""
    if 0 < delta < _LEAST_DELTA:
        raise InputError(f"{name} ({delta:g}) must be at least {_LEAST_DELTA:g}")


def uncharged_delta(epsilon: float) -> float:
    """Return the most that tables of 128 bits instead of real distributions add to delta: (1 + e^epsilon) 1e-22.

    For P, Q that are (epsilon, delta)-close and drawn with errors of 1e-22 in total variation (`noise_table`): the error of P,
    and e^epsilon times that of Q. DP: arithmetic on public numbers.
    """
    return _UNCHARGED * (1 + math.exp(min(epsilon, 700.0)))


def check_uncharged(epsilon: float, delta: float) -> None:
    """Raise InputError for a stated delta of which `uncharged_delta` is more than 1 %.

    For draws from our tables; Laplace noise alone is pure, and OpenDP draws it exactly.
    """
    if delta >= _LEAST_OF_UNCHARGED * uncharged_delta(epsilon):
        return
    unit = _LEAST_OF_UNCHARGED * _UNCHARGED
    ratio = delta / unit
    advice = ""
    if ratio > 2:
        largest = math.floor(100 * math.log(ratio - 1)) / 100
        advice = f"; with this delta epsilon is at most {largest:g}"
    raise InputError(
        f"privacy.delta ({delta:g}) must be at least {unit:g} (1 + e^epsilon), with epsilon "
        f"{epsilon:g}: noise is drawn to 128 bits{advice}"
    )
