"""Columns of numbers, released in bins."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from marginweave.schemas.configuration.columns.base import RULE_BOUNDS, Rule
from marginweave.schemas.configuration.columns.binned import (
    MAX_BINS,
    BinnedColumn,
    BinSteps,
    Gap,
    Run,
    longest_gap,
    open_runs,
)
from marginweave.schemas.configuration.values import Whole, declared_number, number, to_number, to_whole

MAX_CANDIDATES = 10_000


def _bins(value: Any) -> Any:
    if isinstance(value, list | tuple):
        if len(value) < 2:
            raise ValueError("must be a count or a list of at least two edges")
        return tuple(to_number(edge) for edge in value)
    if isinstance(value, dict | BinSteps):
        return BinSteps.model_validate(value)
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


class NumberColumn(BinnedColumn, frozen=True):
    """A number, clamped to public `bounds` and released in `bins`.

    `bins` is a count of equal widths, a list of edges e_0 < … < e_n, or {min, max, step}; a bin is [e_i, e_i+1), the last
    one [e_n-1, e_n]. `outer: open` adds a bin below e_0 and one above e_n; they reach to the bounds, or, where these do not
    reach beyond the bins, one neighboring bin's width. `bounds: private` buys two quantiles inside the public range `within`.
    `decimals` fixes how many decimals a synthetic value has; 0 makes the column whole numbers. `draw` says how a synthetic
    value is chosen inside its bin: `uniform`, its `midpoint`, or by a public distribution.
    """

    input_rule: ClassVar[str] = "every value is a number"
    imputations: ClassVar[tuple[str, ...]] = ("uniform", "gaussian")
    type: Literal["number"]
    bounds: Annotated[tuple[float, float] | Literal["private"] | None, BeforeValidator(_bounds)] = None
    within: Annotated[tuple[float, float] | None, BeforeValidator(_pair)] = None
    bins: Annotated[int | BinSteps | tuple[float, ...], BeforeValidator(_bins)]
    outer: Literal["clamp", "open"] | None = None
    decimals: Whole | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_order("bounds", self.bounds)
        _check_order("within", self.within)
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
        return self

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
        """Bins are."""
        return True

    @property
    def clean_rules(self) -> tuple[Rule, ...]:
        """Every number lies within the bounds."""
        return (Rule(name=RULE_BOUNDS, limits=self.clamp),)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Every number lies within the bounds."""
        return self.clean_rules

    def value_key(self, text: str) -> Hashable | None:
        """The number that a text spells."""
        return declared_number(text.strip())

    def uniform_weights(self, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ARG002 - the bins are public
        """The widths of the bins inside the bounds."""
        low, high = self.bounds if isinstance(self.bounds, tuple) else (self.edges[0], self.edges[-1])
        inside = [min(max(edge, low), high) for edge in self.edges]
        return tuple(float(above - below) for below, above in pairwise(inside))

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
        """What the missing codes leave of the grids of the bins; None where none of them lies on a grid."""
        gaps = _gaps(missing, self.edges[0], self.edges[-1], self.resolution)
        return open_runs(((i, *self.grid(i)) for i in range(len(self.labels))), gaps) if gaps else None

    def accepts(self, text: str) -> bool:
        """Whether the text is a number; its bounds clamp it."""
        return number(text) is not None

    def check_bins(self, missing: Sequence[str]) -> None:
        """As for every binned column; of private bounds, wherever they may come to lie inside `within`."""
        if self.within is None:
            super().check_bins(missing)
            return
        low, high = self.within
        codes = (declared_number(text.strip()) for text in missing)
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
            steps = 2 + longest_gap(_gaps(missing, *self.within, self.decimals))
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


def _check_order(name: str, pair: tuple[float, float] | str | None) -> None:
    if isinstance(pair, tuple) and not pair[0] < pair[1]:
        raise ValueError(f"has {name} ({pair[0]:g}, {pair[1]:g}): the minimum must be below the maximum")


def _gaps(missing: Sequence[str], low: float, high: float, resolution: int) -> list[Gap]:
    """Multiples of 10^-resolution inside [low, high] that are missing codes; beyond doubles several spell one code."""
    scale = 10**resolution
    codes = [float(code) for text in missing if (code := declared_number(text.strip())) is not None]
    near = [(code, round(code * scale)) for code in codes if low <= code <= high]
    return [(g, g) for code, place in near for g in range(place - 2, place + 3) if g / scale == code]
