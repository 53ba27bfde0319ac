"""Noisy histograms of linked tables between stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Floats

CountOf = Literal["units", "rows"]
"""What a histogram counts: units, each spread over its rows, or rows."""


class LinkedAxis(NamedTuple):
    """A column of a histogram: of the linked `table`, or of the source where that is empty; and the text of each code.

    None is the text of a missing value; `NOT_DECLARED`, the last one, of a cell that is not as declared.
    """

    table: str
    column: str
    texts: tuple[str | None, ...]

    @property
    def name(self) -> str:
        """Name of the column, behind that of its table, if it is of a linked one."""
        return f"{self.table}.{self.column}" if self.table else self.column


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkedObservation:
    """A dense noisy histogram of the rows of `table`, with an axis for each of `axes`, by the draw of this name.

    With `count_of` "units" the rows of a unit weigh 1 together, in whole numbers of 1/`steps`; with "rows" each row that was
    kept weighs 1. `deviation` is the standard deviation of the noise of a cell, in units or rows.
    """

    draw: str
    table: str
    count_of: CountOf
    axes: tuple[LinkedAxis, ...]
    counts: Floats
    deviation: float
    steps: int

    @property
    def spread(self) -> float:
        """Standard deviation of each cell that has all that chance adds (`spread_of`)."""
        is_of_units = self.count_of == "units"
        return spread_of(self.deviation, self.counts, self.steps if is_of_units else None)


def spread_of(deviation: float, counts: Floats, steps: int | None) -> float:
    """Return a standard deviation that has the noise of a cell, and the chance by which units lie on a grid of `steps`, if any.

    Of a unit with n rows, k of them in a cell, k/n of it are in the cell, and on the grid as much on average. The n rows share
    D steps: each has one of two neighboring numbers of steps, D mod n of them the larger one, without replacement. With
    p = k/n the variance of their sum is at most p/D for any n, so that of a cell with h units is at most h/D, and h at most
    the sum of all cells.
    """
    total = max(float(counts.sum()), 0.0)
    return math.sqrt(deviation**2 + (total / steps if steps else 0.0))


def linked_fields(
    observations: Sequence[LinkedObservation],
) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    """Return the counts by the numbers of the histograms, and all else of them, to be packed."""
    arrays: dict[str, NDArray[Any]] = {}
    fields = []
    for i, seen in enumerate(observations):
        arrays[f"linked-{i:06d}"] = seen.counts
        fields.append([seen.draw, seen.table, seen.count_of, seen.axes, seen.deviation, seen.steps])
    return arrays, fields


def linked_of_fields(
    arrays: Mapping[str, NDArray[Any]], fields: Sequence[Any]
) -> tuple[LinkedObservation, ...]:
    """Return the histograms that `linked_fields` took apart."""
    observations = []
    for i, (draw, table, count_of, axes, deviation, steps) in enumerate(fields):
        observations.append(
            LinkedObservation(
                draw=draw,
                table=table,
                count_of=count_of,
                axes=tuple(LinkedAxis(t, name, tuple(texts)) for t, name, texts in axes),
                counts=np.asarray(arrays[f"linked-{i:06d}"], np.float64),
                deviation=deviation,
                steps=steps,
            )
        )
    return tuple(observations)
