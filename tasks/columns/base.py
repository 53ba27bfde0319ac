"""What the stages ask of the values of a column: texts become clean values, these become codes, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from marginweave.schemas.arrays import Codes, Flags, Floats
from marginweave.schemas.configuration.columns import MeasuredColumn
from marginweave.tasks.mechanisms.randomness import CellWords

Kind = TypeVar("Kind", bound=MeasuredColumn)
Uniform: TypeAlias = Callable[[int], Floats]
"""So many independent uniform draws of [0, 1): of a public generator, for post-processing alone."""


@dataclass(frozen=True)
class ColumnValues(ABC, Generic[Kind]):
    """The values of one column on their way; `missing` are the texts that mean "no value".

    The code of a value is the position of its label, and that of a missing value the number of labels.
    DP: `clean` and `encode` are 1-stable, they look at one cell and public constants; `decode` and `declare` are
    post-processing.
    """

    column: Kind
    missing: Sequence[str]

    @abstractmethod
    def clean(self, values: pa.Array) -> pa.Array:
        """Cells of the source as clean values; missing is null."""

    @abstractmethod
    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:
        """Codes of clean values; where a cell can have several, `words` choose which are kept."""

    def labels(self, values: pa.Array) -> tuple[str, ...]:  # noqa: ARG002 - private domains alone look at them
        """Names of the codes of clean values: public, but for a private domain."""
        return self.column.labels

    @abstractmethod
    def decode(self, codes: Codes, labels: tuple[str, ...], uniform: Uniform) -> pa.Array:
        """Clean values that are encoded into `codes`, none of which is read back as missing."""

    @abstractmethod
    def declare(self, values: pa.Array) -> pa.Array:
        """Clean values in the declared type and format; null stays null."""


def nulls(values: pa.Array) -> Flags:
    """Where a value is null."""
    found: Flags = values.is_null().to_numpy(zero_copy_only=False)
    return found


def binned(values: pa.Array, points: np.ndarray, edges: Sequence[float]) -> Codes:
    """The bin [edges[i], edges[i+1]) of each point, the last one closed; null becomes the number of bins."""
    bins = len(edges) - 1
    codes = np.clip(np.searchsorted(np.asarray(edges), points, side="right") - 1, 0, bins - 1)
    return np.where(nulls(values), bins, codes)
