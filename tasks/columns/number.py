"""Numbers: float64 inside the bounds, codes of bins, and draws on the grid of a bin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from marginweave.schemas.arrays import Codes
from marginweave.schemas.configuration.columns import NumberColumn
from marginweave.schemas.configuration.values import NUMBER_PATTERN, declared_number
from marginweave.tasks.arrow import compute as pc
from marginweave.tasks.arrow import is_text
from marginweave.tasks.columns.base import ColumnValues, Uniform, binned
from marginweave.tasks.columns.draws import draw_among, draw_inside
from marginweave.tasks.columns.shapes import number_shape
from marginweave.tasks.mechanisms.randomness import CellWords

_NUMBER = f"^{NUMBER_PATTERN}$"


class NumberValues(ColumnValues[NumberColumn]):
    """Numbers in bins."""

    def clean(self, values: pa.Array) -> pa.Array:
        """Texts or numbers to float64 inside the bounds: x -> min(max(x, lower), upper).

        docs/sources/data-processing.md. Nulls are preserved; NaN, infinity and a text that is no number are missing
        (`outside: error` stopped before). Private bounds clamp to their public range.
        """
        kind = values.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            numbers = pc.cast(values, pa.float64(), safe=False)
        else:
            numbers = _parse(values, self.missing)
        array = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
        if not is_text(
            values.type
        ):  # a text that spells a number beyond the range of doubles is clamped like any other
            array[~np.isfinite(array)] = np.nan
        absent = [float(value) for text in self.missing if (value := declared_number(text.strip())) is not None]
        if absent:
            array[np.isin(array, absent)] = np.nan
        np.clip(array, *self.column.clamp, out=array)
        return pa.array(array, mask=np.isnan(array))

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        """The bin of each number: x has the bin i with e_i <= x < e_i+1, the last bin closed above."""
        edges = self.column.edges
        return binned(values, values.fill_null(edges[0]).to_numpy(zero_copy_only=False), edges)

    def decode(self, codes: Codes, labels: tuple[str, ...], uniform: Uniform) -> pa.Array:
        """Draws on {g / 10^resolution : first <= g <= last}, the grid of the bin: the float64 nearest to the decimal."""
        column, runs = self.column, self.column.runs(self.missing)
        missing = codes == len(labels)
        codes, scale = np.where(missing, 0, codes), 10**column.resolution
        first, last = np.array([column.grid(i) for i in range(len(column.labels))], np.float64).T
        # The quotient of two integers below 2^53 is the correctly rounded decimal; beyond, doubles are coarser than the grid,
        # and the clip keeps what is rounded inside the bin.
        shape = number_shape(column, self.counts)
        if runs is None:
            points = draw_inside(first, last, codes, shape, uniform)
        else:
            points = draw_among(runs, np.floor((first + last) / 2), codes, shape, uniform)
        return pa.array(np.clip(points / scale, (first / scale)[codes], (last / scale)[codes]), mask=missing)

    def declare(self, values: pa.Array) -> pa.Array:
        """int64 for a number of 0 decimals, otherwise float64."""
        return values.cast(pa.int64()) if self.column.decimals == 0 else values


def _parse(values: pa.Array, missing: Sequence[str]) -> pa.Array:
    """Texts to numbers; null for what is missing or no number."""
    if pa.types.is_dictionary(values.type):
        return _parse(values.dictionary, missing).take(values.indices)
    texts = pc.utf8_trim_whitespace(pc.cast(values, pa.string()))
    known = pc.match_substring_regex(texts, _NUMBER)
    given = pa.array([text.strip() for text in missing], pa.string())
    known = pc.and_not(known, pc.is_in(texts, value_set=given))
    return pc.cast(pc.if_else(known, texts, None), pa.float64())
