"""Private bounds: two quantiles of each column that has them, drawn before anything is binned."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.base.digests import counts_digest
from marginweave.checkpoints.codecs import pack_number, unpack_number
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.number import MAX_CANDIDATES
from marginweave.configuration.release import Configuration
from marginweave.measurements.base import (
    CLEAN,
    Drawn,
    Exact,
    Forecast,
    Measurement,
    PrivateRows,
    Terms,
)
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import select_percentile
from marginweave.mechanisms.percentile import rank_error, score_sensitivity
from marginweave.mechanisms.randomness import DrawBits

LOW_PERCENTILE = 1.0
HIGH_PERCENTILE = 99.0


class QuantileBound(Measurement[tuple[Integers, Configuration]], ABC):
    """One quantile of the values of the column at the public position `place[0]` (from 1), on a public grid.

    Exponential mechanism on ranks (`select_percentile`). DP: epsilon-DP.
    """

    title = "bounds of columns"
    share_key = "aggregate.bounds_share"
    heading = "bounds"
    view = CLEAN
    percentile: ClassVar[float]

    def column(self, configuration: Configuration) -> tuple[str, NumberColumn]:
        """Return the name of the column, and its declaration."""
        name, column = list(configuration.columns.items())[self.place[0] - 1]
        assert isinstance(column, NumberColumn)
        return name, column

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return how far a unit moves any score."""
        moved = score_sensitivity(self.percentile, self.view.stability(configuration))
        return Sensitivity(l1=moved, l2_squared=moved**2)

    def terms(self, configuration: Configuration) -> Terms:
        """Return the quantile, the number of candidates, and the sensitivity of the scores."""
        return {
            "percentile": str(self.percentile),
            "candidates": len(self.column(configuration)[1].bound_candidates),
            "sensitivity": self.sensitivity(configuration).l1,
        }

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return by how many ranks the choice may be off."""
        return Forecast(short=f"rank ± {self.ranks_off(configuration):.0f}")

    def ranks_off(self, configuration: Configuration) -> float:
        """Return by how many rows the choice may be off; the same for both bounds, as 1 % and 99 % are symmetric."""
        unit = self.view.stability(configuration)
        return rank_error(HIGH_PERCENTILE, unit, self.epsilon, MAX_CANDIDATES)

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[tuple[Integers, Configuration]]:
        """Return how many values each candidate covers (`candidate_histogram`); private."""
        configuration = drawn.configuration
        histograms = rows.remember(
            "values by candidate", lambda: _candidate_histograms(rows, configuration)
        )
        name, _ = self.column(configuration)
        histogram = histograms[name]
        used = {
            "percentile": str(self.percentile),
            "sensitivity": self.sensitivity(configuration).l1,
        }
        return Exact(
            counts=(histogram, configuration),  # `draw` needs both
            digest=counts_digest([histogram]),
            used=used,
        )

    def draw(
        self,
        exact: Exact[tuple[Integers, Configuration]],
        bits: DrawBits,
        sealed: bytes,  # noqa: ARG002 - none
    ) -> bytes:
        """Return the number of the chosen candidate, from 1."""
        histogram, configuration = exact.counts
        unit = self.view.stability(configuration)
        return pack_number(select_percentile(histogram, self.percentile, self.epsilon, unit, bits))


class LowBound(QuantileBound):
    """The lower quantile."""

    template = "bounds-{}-low"
    percentile = LOW_PERCENTILE


class HighBound(QuantileBound):
    """The upper quantile."""

    template = "bounds-{}-high"
    percentile = HIGH_PERCENTILE


BOUNDS = (LowBound, HighBound)
"""Both quantiles of a column, in the order of their draws."""


def drawn_bounds(drawn: Drawn) -> dict[str, tuple[float, float]]:
    """Return the released bounds of every column that has private ones. DP: post-processing."""
    bounds = {}
    for name in drawn.configuration.private_bounds:
        place = column_position(drawn.configuration, name)
        low_bound = drawn.plan.draw(LowBound, place)
        low = unpack_number(drawn.payload(low_bound))
        high = unpack_number(drawn.payload(drawn.plan.draw(HighBound, place)))
        _, column = low_bound.column(drawn.configuration)
        bounds[name] = released_bounds(low, high, column)
    return bounds


def column_position(configuration: Configuration, column: str) -> int:
    """Return the position of a column, from 1: public, and fit for a file name."""
    return list(configuration.columns).index(column) + 1


def candidate_histogram(values: pa.Array, candidates: tuple[float, ...]) -> Integers:
    """Count the values above candidate i - 1 and up to candidate i, i = 1 … candidates; shape (candidates + 1,).

    Entry 0 is empty: candidates are counted from 1, as `select_percentile` does, and values outside the public range were
    clamped to it. Values above the last candidate count in it. Nulls are left out. F(i), the sum up to entry i, is the number
    of values at most candidate i exactly. A row is in one entry at most. Private.
    """
    numbers = to_numpy(values.drop_null())
    index = np.searchsorted(np.asarray(candidates), numbers, side="left")
    index = np.minimum(index, len(candidates) - 1)
    return np.bincount(index + 1, minlength=len(candidates) + 1).astype(np.int64)


def _candidate_histograms(rows: PrivateRows, configuration: Configuration) -> dict[str, Integers]:
    """Return the `candidate_histogram` of every column with private bounds, in one pass over the rows. Private."""
    columns = {
        name: column
        for name, column in configuration.columns.items()
        if isinstance(column, NumberColumn) and name in configuration.private_bounds
    }
    histograms: dict[str, Integers] = {}
    for name, column in columns.items():
        histograms[name] = np.zeros(len(column.bound_candidates) + 1, np.int64)
    for block in rows.clean():
        for name, column in columns.items():
            values = _without_codes(block.table.column(name).combine_chunks(), column)
            histograms[name] += candidate_histogram(values, column.bound_candidates)
    return histograms


def released_bounds(low: int, high: int, column: NumberColumn) -> tuple[float, float]:
    """Return the bounds from the numbers (from 1) of the two chosen candidates; swapped if they are in the wrong order.

    Candidate i covers the numbers above candidate i - 1 and up to its own. So the lower bound is candidate i - 1, which is
    below all that i covers: i itself may lie above every value. It is i where the column can have no other number than the
    candidates.
    Equal ones remain equal: the column itself widens an interval that is too narrow for its bins (`NumberColumn.with_bounds`).
    DP: post-processing.
    """
    candidates = column.bound_candidates
    least = min(low, high)
    if not column.has_all_candidates and least > 1:
        least -= 1
    return candidates[least - 1], candidates[max(low, high) - 1]


def _without_codes(values: pa.Array, column: NumberColumn) -> pa.Array:
    """Return the values with null in place of special codes. Private."""
    special = pa.array(column.special, pa.float64())
    return pc.if_else(pc.is_in(values, value_set=special), None, values)
