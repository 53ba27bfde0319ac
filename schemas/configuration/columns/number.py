"""Columns of numbers, released in bins."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from marginweave.schemas.configuration.columns.base import RULE_BOUNDS, Rule
from marginweave.schemas.configuration.columns.binned import BinnedColumn, BinSteps, Run, longest_gap, open_runs
from marginweave.schemas.configuration.columns.number_parts import (
    check_order,
    gaps_on_grid,
    read_bins,
    read_bounds,
    read_codes,
    read_pair,
)
from marginweave.schemas.configuration.values import ValueMatcher, Whole, declared_number, number

MAX_CANDIDATES = 10_000
EXACT = 2**53  # beyond, doubles are coarser than whole numbers


class NumberColumn(BinnedColumn, frozen=True):
    """A number, clamped to public `bounds` and released in `bins`.

    `bins` is a count of equal widths, a list of edges e_0 < … < e_n, or {min, max, step}; a bin is [e_i, e_i+1), the last
    one [e_n-1, e_n]. `outer: open` adds a bin below e_0 and one above e_n; they reach to the bounds, or, where these do not
    reach beyond the bins, one neighboring bin's width. `bounds: private` buys two quantiles inside the public range `within`.
    `decimals` fixes how many decimals a synthetic value has; 0 makes the column whole numbers. `draw` says how a synthetic
    value is chosen inside its bin: `uniform`, its `midpoint`, or by a public distribution. `codes` are numbers that stand for
    something else, each with its label: they are looked for before the bounds, and each is a value of its own.
    """

    input_rule: ClassVar[str] = "every value is a number"
    imputations: ClassVar[tuple[str, ...]] = ("uniform", "gaussian")
    type: Literal["number"]
    bounds: Annotated[tuple[float, float] | Literal["private"] | None, BeforeValidator(read_bounds)] = None
    within: Annotated[tuple[float, float] | None, BeforeValidator(read_pair)] = None
    bins: Annotated[int | BinSteps | tuple[float, ...], BeforeValidator(read_bins)]
    outer: Literal["clamp", "open"] | None = None
    decimals: Whole | None = None
    codes: Annotated[dict[str, str] | None, BeforeValidator(read_codes)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_order("bounds", self.bounds)
        check_order("within", self.within)
        if (self.bounds == "private") != (self.within is not None):
            raise ValueError("needs within [minimum, maximum] for bounds: private, and has no use for it otherwise")
        if isinstance(self.bins, int):
            if self.bounds is None:
                raise ValueError("needs bounds [minimum, maximum] for a count of bins")
        elif self.bounds == "private":
            raise ValueError("needs a count of bins for bounds: private, whose edges are not known before")
        else:
            self._check_edges()
        if self.within is None:
            self._check_resolution()
        else:
            self._check_within(*self.within)
        self._check_codes()
        return self

    def _check_codes(self) -> None:
        for text in self.codes or ():
            code = declared_number(text)
            assert code is not None
            if abs(code) > EXACT or (self.decimals is not None and code != round(code, self.decimals)):
                raise ValueError(f"has a code ({text}) beyond 2^53, or with more decimals than the column")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("has a code whose label is that of another code or of a bin")

    def _check_edges(self) -> None:
        edges = self._inner
        for low, high in pairwise(edges):
            if not low < high:
                raise ValueError(f"has bins out of order: {low:g} stands before {high:g}; edges must increase")
        if isinstance(self.bounds, tuple):
            low, high = self.bounds
            if self.outer == "open" and not (low <= edges[0] and edges[-1] <= high):
                raise ValueError("has bins that do not lie within its bounds")
            if self.outer != "open" and (edges[0], edges[-1]) != self.bounds:
                raise ValueError("has bins that do not begin and end at its bounds")

    def _check_resolution(self) -> None:
        if self.finest < 0:
            raise ValueError("has an edge beyond 2^53, where whole numbers are no longer exact")
        if self.decimals is not None and not 0 <= self.decimals <= self.finest:
            raise ValueError(
                f"has decimals ({self.decimals}), which must lie between 0 and {self.finest} for its bounds"
            )
        for index in range(len(self.edges) - 1):
            low, high = self.grid(index)
            if high < low:
                raise ValueError(f"has a bin, {self.labels[index]}, without any number of {self.resolution} decimals")

    def _check_within(self, low: float, high: float) -> None:
        if self.least_width() > high - low:
            raise ValueError(f"has a range within ({low:g}, {high:g}) too narrow for its bins and decimals")
        for bounds in ((low, low), (high, high), (low, high)):  # where the released bounds are hardest to divide
            self.with_bounds(*bounds)

    @cached_property
    def _inner(self) -> tuple[float, ...]:
        """Edges without the open bins."""
        if isinstance(self.bins, tuple):
            return self.bins
        if isinstance(self.bins, BinSteps):
            return self.bins.edges
        assert isinstance(self.bounds, tuple)  # _check has refused a count without; private bounds have no edges yet
        low, high = self.bounds
        return (*(low + (high - low) * i / self.bins for i in range(self.bins)), high)

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """The bin edges, increasing, open bins included; shape (bins + 1,). Not defined while bounds are private."""
        inner = self._inner
        if self.outer != "open":
            return inner
        low, high = self.bounds if isinstance(self.bounds, tuple) else (inner[0], inner[-1])
        below = low if low < inner[0] else 2 * inner[0] - inner[1]
        above = high if high > inner[-1] else 2 * inner[-1] - inner[-2]
        return (below, *inner, above)

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
        """Names of the bins, such as `[0, 5)`; the last one is closed. While bounds are private they are only numbered."""
        if self.bounds == "private":
            assert isinstance(self.bins, int)
            return tuple(f"bin {i + 1}" for i in range(self.bins + (2 if self.outer == "open" else 0)))
        texts = [format(edge, ".12g") for edge in self._inner]
        inner = [f"[{low}, {high})" for low, high in pairwise(texts)]
        if self.outer == "open":
            return (f"< {texts[0]}", *inner, f"≥ {texts[-1]}")
        return (*inner[:-1], f"{inner[-1][:-1]}]")

    @property
    def ordered(self) -> bool:
        """Bins are; what a code stands for has no place among them."""
        return not self.codes

    @property
    def clean_rules(self) -> tuple[Rule, ...]:
        """Every number lies within the bounds, or is a code."""
        return (Rule(name=RULE_BOUNDS, limits=self.clamp, values=self.special or None),)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Every number lies within the bounds."""
        return self.clean_rules

    def value_key(self, text: str) -> Hashable | None:
        """The number that a text spells."""
        return declared_number(text.strip())

    def uniform_weights(self, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ARG002 - the bins are public
        """The widths of the bins inside the bounds, and nothing for a code."""
        low, high = self.bounds if isinstance(self.bounds, tuple) else (self.edges[0], self.edges[-1])
        inside = [min(max(edge, low), high) for edge in self.edges]
        return (*(float(above - below) for below, above in pairwise(inside)), *(0.0 for _ in self.special))

    @property
    def clamp(self) -> tuple[float, float]:
        """The public range to which every number is clamped first."""
        return (self.edges[0], self.edges[-1]) if self.within is None else self.within

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
        """What missing and special codes leave of the grids of the bins; None where none of them lies on a grid."""
        gaps = gaps_on_grid((*missing, *self.explicit), self.edges[0], self.edges[-1], self.resolution)
        return open_runs(((i, *self.grid(i)) for i in range(len(self.bin_labels))), gaps) if gaps else None

    def accepts(self, text: str) -> bool:
        """Whether the text is a number; its bounds clamp it."""
        return number(text) is not None

    def check_bins(self, missing: Sequence[str]) -> None:
        """As for every binned column; of private bounds, wherever they may come to lie inside `within`."""
        if self.within is None:
            super().check_bins(missing)
            return
        low, high = self.within
        codes = (declared_number(text.strip()) for text in (*missing, *self.explicit))
        near = [float(code) for code in codes if code is not None and low <= code <= high]
        too_narrow = ValueError(
            f"has a range within ({low:g}, {high:g}) too narrow for its bins beside its missing codes"
        )
        if self.least_width(missing) > high - low:
            raise too_narrow
        for bound in (low, high, *near):  # where the released bounds are hardest to divide
            try:
                bounded = self.with_bounds(bound, bound, missing)
            except ValidationError:
                raise too_narrow from None
            bounded.check_bins(missing)

    @cached_property
    def bound_candidates(self) -> tuple[float, ...]:
        """The public grid on which private bounds are looked for: at most 10,000 increasing points of `within`."""
        assert self.within is not None
        low, high = self.within
        points = MAX_CANDIDATES
        if self.decimals is not None:
            points = min(points, math.floor((high - low) * 10**self.decimals) + 1)
        even = (low + (high - low) * i / (points - 1) for i in range(points))
        return tuple(dict.fromkeys(even if self.decimals is None else (round(x, self.decimals) for x in even)))

    def least_width(self, missing: Sequence[str] = ()) -> float:
        """The narrowest released bounds that can be divided: two steps of the grid a bin, or one candidate's distance.

        Missing codes that stand side by side make it as many steps a bin wider, so that no bin is without a value.
        """
        assert self.within is not None
        assert isinstance(self.bins, int)
        if self.decimals is not None:
            steps = 2 + longest_gap(gaps_on_grid((*missing, *self.explicit), *self.within, self.decimals))
            return steps * self.bins / float(10**self.decimals)
        return (self.within[1] - self.within[0]) / (MAX_CANDIDATES - 1)

    def with_bounds(self, low: float, high: float, missing: Sequence[str] = ()) -> NumberColumn:
        """The column with the released bounds low <= high in the place of private ones.

        Where they are too narrow for the bins they are widened inside `within`, by a rule that knows nothing but them and
        the declared `missing` codes.
        DP: post-processing of the released bounds.
        """
        assert self.within is not None
        least = self.least_width(missing)
        if high - low < least:
            high = min(low + least, self.within[1])
            low = high - least
        changes = {"bounds": (low, high), "within": None, "confirm": None}
        return NumberColumn.model_validate({**self.model_dump(), **changes})
