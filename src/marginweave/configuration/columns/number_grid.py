"""Where the bins of a number lie: their edges, their names, and the grid inside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BeforeValidator

from marginweave.configuration.columns.binned import BinnedColumn, BinSteps, Run, open_runs
from marginweave.configuration.columns.number_parts import gaps_on_grid, read_bins, read_bounds, read_codes, read_pair
from marginweave.configuration.columns.scales import LogBins, log_edges, smallest_of, zero_bin
from marginweave.configuration.values import ValueMatcher, Whole


class NumberGrid(BinnedColumn, frozen=True):
    """The bins of a number column whose edges are known, and what lies inside them."""

    bounds: Annotated[tuple[float, float] | Literal["private"] | None, BeforeValidator(read_bounds)] = None
    within: Annotated[tuple[float, float] | None, BeforeValidator(read_pair)] = None
    bins: Annotated[int | BinSteps | LogBins | tuple[float, ...], BeforeValidator(read_bins)]
    outer: Literal["clamp", "open"] | None = None
    decimals: Whole | None = None
    codes: Annotated[dict[str, str] | None, BeforeValidator(read_codes)] = None

    @cached_property
    def _inner(self) -> tuple[float, ...]:
        """Edges without the open bins."""
        if isinstance(self.bins, tuple):
            return self.bins
        if isinstance(self.bins, BinSteps):
            return self.bins.edges
        assert isinstance(self.bounds, tuple)  # _check has refused a count without; private bounds have no edges yet
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
    def ends(self) -> tuple[tuple[float, float], ...]:
        """Between which the numbers of each bin lay before they were clamped to its edges: a bin that is open has no end.

        One that reaches to bounds beyond the bins has these, as `bounds` say that numbers count as the nearest of them.
        """
        below, *inner, above = self.edges
        if self.outer == "open":
            low, high = self.bounds if isinstance(self.bounds, tuple) else (self._inner[0], self._inner[-1])
            below = below if low < self._inner[0] else -math.inf
            above = above if high > self._inner[-1] else math.inf
        return tuple(pairwise((below, *inner, above)))

    @cached_property
    def held(self) -> tuple[tuple[float, float], ...]:
        """The least and the largest number that each bin holds: of the declared decimals, else its ends.

        Of whole numbers [0, 10) holds 0 to 9. The outermost ends stay, as numbers beyond them count as these.
        """
        if self.decimals is None:
            return self.ends
        scale = 10**self.decimals
        inner = [(first / scale, last / scale) for first, last in map(self.grid, range(len(self.bin_labels)))]
        lows = (self.ends[0][0], *(low for low, _ in inner[1:]))
        highs = (*(high for _, high in inner[:-1]), self.ends[-1][1])
        return tuple(zip(lows, highs, strict=True))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the bins, and then of the codes."""
        return (*self.bin_labels, *(self.codes or {}).values())

    @cached_property
    def special(self) -> tuple[float, ...]:
        """The numbers that are codes, in the order of their labels."""
        return tuple(map(float, self.codes or ()))

    @property
    def explicit(self) -> tuple[str, ...]:
        """The codes."""
        return tuple(self.codes or ())

    def code_of(self, text: str) -> int:
        """Position of the label that a text names, or of the code that it spells, or -1."""
        place = ValueMatcher(self.explicit).index(text)
        return super().code_of(text) if place < 0 else len(self.bin_labels) + place

    @cached_property
    def bin_labels(self) -> tuple[str, ...]:
        """Names of the bins, such as `[0, 5)`; the last one is closed. Before the bounds are bought they are only numbered."""
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

    @property
    def _outermost(self) -> tuple[float, float]:
        """The first and the last edge, or what they lie within; of log bins their bounds, as decimals place their edges."""
        if self.within is not None:
            return self.within
        if isinstance(self.bins, LogBins) and isinstance(self.bounds, tuple):
            return self.bounds
        return self.edges[0], self.edges[-1]

    @cached_property
    def finest(self) -> int:
        """The most decimals at which every multiple of 10^-decimals inside the edges is an exact double."""
        largest = max(1.0, *map(abs, self._outermost))
        return min(12, math.floor(math.log10(2**53 / largest)))

    @cached_property
    def resolution(self) -> int:
        """Decimals of a synthetic value: declared, or enough for about a thousand steps in the narrowest bin."""
        if self.decimals is not None:
            return self.decimals
        width = min(high - low for low, high in pairwise(self.edges))
        return min(self.finest, max(0, math.ceil(3 - math.log10(width))))

    def grid(self, index: int, resolution: int | None = None) -> tuple[int, int]:
        """First and last multiple of 10^-resolution inside bin `index`, as integers; of the column's unless one is given."""
        scale = 10 ** (self.resolution if resolution is None else resolution)
        first = round(self.edges[index] * scale) - 1  # the product may be rounded past the edge
        while first / scale < self.edges[index]:
            first += 1
        closed = index == len(self.edges) - 2
        last = round(self.edges[index + 1] * scale) + 1
        while last / scale > self.edges[index + 1] or (not closed and last / scale >= self.edges[index + 1]):
            last -= 1
        return first, last

    def runs(self, missing: Sequence[str], resolution: int | None = None) -> tuple[Run, ...] | None:
        """What missing and special codes leave of the grids of the bins; None where none of them lies on a grid."""
        resolution = self.resolution if resolution is None else resolution
        gaps = gaps_on_grid((*missing, *self.explicit), self.edges[0], self.edges[-1], resolution)
        return open_runs(((i, *self.grid(i, resolution)) for i in range(len(self.bin_labels))), gaps) if gaps else None
