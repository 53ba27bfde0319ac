"""Where the bins of a number lie: their edges, their names, and the grid inside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from marginweave.schemas.configuration.columns.binned import MAX_BINS, BinnedColumn, BinSteps, Gap, Run, open_runs
from marginweave.schemas.configuration.columns.scales import (
    BoughtBins,
    LogBins,
    QuantileBins,
    log_edges,
    smallest_of,
    zero_bin,
)
from marginweave.schemas.configuration.values import Whole, declared_number, to_number, to_whole


def _bins(value: Any) -> Any:
    if isinstance(value, list | tuple):
        if len(value) < 2:
            raise ValueError("must be a count or a list of at least two edges")
        return tuple(to_number(edge) for edge in value)
    if isinstance(value, dict):
        if "log" in value:
            return LogBins.model_validate(value)
        return (QuantileBins if "quantiles" in value else BinSteps).model_validate(value)
    if isinstance(value, BinSteps | LogBins | QuantileBins | BoughtBins):
        return value
    count = to_whole(value)
    if not 1 <= count <= MAX_BINS:
        raise ValueError(f"must be between 1 and {MAX_BINS}")
    return count


def _pair(value: Any) -> Any:
    if value is not None and (not isinstance(value, list | tuple) or len(value) != 2):
        raise ValueError("must be [minimum, maximum]")
    return None if value is None else (to_number(value[0]), to_number(value[1]))


def _bounds(value: Any) -> Any:
    return value if value == "private" else _pair(value)


class NumberGrid(BinnedColumn, frozen=True):
    """The bins of a number column whose edges are known, and what lies inside them."""

    bounds: Annotated[tuple[float, float] | Literal["private"] | None, BeforeValidator(_bounds)] = None
    within: Annotated[tuple[float, float] | None, BeforeValidator(_pair)] = None
    bins: Annotated[int | BinSteps | LogBins | QuantileBins | BoughtBins | tuple[float, ...], BeforeValidator(_bins)]
    outer: Literal["clamp", "open"] | None = None
    decimals: Whole | None = None

    @cached_property
    def _inner(self) -> tuple[float, ...]:
        """Edges without the open bins."""
        if isinstance(self.bins, tuple):
            return self.bins
        if isinstance(self.bins, BinSteps | BoughtBins):
            return self.bins.edges
        assert isinstance(self.bounds, tuple)  # _check has refused a count without; private bounds have no edges yet
        assert not isinstance(self.bins, QuantileBins)  # nor have quantiles
        low, high = self.bounds
        if isinstance(self.bins, LogBins):
            smallest = smallest_of(self.bounds, self.bins.smallest, self.decimals)
            return log_edges(self.bounds, self.bins.log, smallest, self.decimals)
        return (*(low + (high - low) * i / self.bins for i in range(self.bins)), high)

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """The bin edges, increasing, open bins included; shape (bins + 1,). Not defined before they are bought."""
        inner = self._inner
        if self.outer != "open":
            return inner
        low, high = self.bounds if isinstance(self.bounds, tuple) else (inner[0], inner[-1])
        below = low if low < inner[0] else 2 * inner[0] - inner[1]
        above = high if high > inner[-1] else 2 * inner[-1] - inner[-2]
        return (below, *inner, above)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the bins, such as `[0, 5)`; the last one is closed. Before their edges are bought they are only numbered."""
        if isinstance(self.bins, QuantileBins):
            return tuple(f"bin {i + 1}" for i in range(self.bins.quantiles))
        if self.bounds == "private":
            assert isinstance(self.bins, int)
            return tuple(f"bin {i + 1}" for i in range(self.bins + (2 if self.outer == "open" else 0)))
        texts = [format(edge, ".12g") for edge in self._inner]
        inner = [f"[{low}, {high})" for low, high in pairwise(texts)]
        if self.outer == "open":
            return (f"< {texts[0]}", *inner, f"≥ {texts[-1]}")
        return (*inner[:-1], f"{inner[-1][:-1]}]")

    @cached_property
    def zero(self) -> int | None:
        """The bin that log bins keep for 0; None of other bins."""
        if not isinstance(self.bins, LogBins) or not isinstance(self.bounds, tuple):
            return None
        return zero_bin(self.edges, smallest_of(self.bounds, self.bins.smallest, self.decimals))

    @cached_property
    def finest(self) -> int:
        """The most decimals at which every multiple of 10^-decimals inside the edges is an exact double."""
        largest = max(1.0, abs(self.edges[0]), abs(self.edges[-1]))
        return min(12, math.floor(math.log10(2**53 / largest)))

    @cached_property
    def resolution(self) -> int:
        """Decimals of a synthetic value: declared, or enough for about a thousand steps in the narrowest bin."""
        if self.decimals is not None:
            return self.decimals
        width = min(high - low for low, high in pairwise(self.edges))
        return min(self.finest, max(0, math.ceil(3 - math.log10(width))))

    def grid(self, index: int) -> tuple[int, int]:
        """First and last multiple of 10^-resolution inside bin `index`, as integers."""
        scale = 10**self.resolution
        first = math.ceil(self.edges[index] * scale)
        while first / scale < self.edges[index]:
            first += 1
        closed = index == len(self.edges) - 2
        last = math.floor(self.edges[index + 1] * scale)
        while last / scale > self.edges[index + 1] or (not closed and last / scale >= self.edges[index + 1]):
            last -= 1
        return first, last

    def runs(self, missing: Sequence[str]) -> tuple[Run, ...] | None:
        """What the missing codes leave of the grids of the bins; None where none of them lies on a grid."""
        gaps = number_gaps(missing, self.edges[0], self.edges[-1], self.resolution)
        return open_runs(((i, *self.grid(i)) for i in range(len(self.labels))), gaps) if gaps else None


def number_gaps(missing: Sequence[str], low: float, high: float, resolution: int) -> list[Gap]:
    """Multiples of 10^-resolution inside [low, high] that are missing codes; beyond doubles several spell one code."""
    scale = 10**resolution
    codes = [float(code) for text in missing if (code := declared_number(text.strip())) is not None]
    near = [(code, round(code * scale)) for code in codes if low <= code <= high]
    return [(g, g) for code, place in near for g in range(place - 2, place + 3) if g / scale == code]
