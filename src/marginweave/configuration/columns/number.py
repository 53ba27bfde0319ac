"""Columns of numbers, released in bins."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal, Self

from pydantic import ValidationError, model_validator

from marginweave.configuration.columns.base import RULE_BOUNDS, Limits, Rule
from marginweave.configuration.columns.binned import longest_gap
from marginweave.configuration.columns.number_grid import NumberGrid
from marginweave.configuration.columns.number_parts import check_order, gaps_on_grid
from marginweave.configuration.columns.scales import LogBins
from marginweave.configuration.values import declared_number, number
from marginweave.texts.sentences import counts_sentence

MAX_CANDIDATES = 10_000
EXACT = 2**53  # beyond, doubles are coarser than whole numbers


class NumberColumn(NumberGrid, frozen=True):
    """A number, clamped to public `bounds` and released in `bins`.

    `bins` is a count of equal widths, a list of edges e_0 < … < e_n, {min, max, step} or {log: n}; a bin is [e_i, e_i+1), the
    last one [e_n-1, e_n]. `outer: open` adds a bin below e_0 and one above e_n; they reach to the bounds, or, where these do
    not reach beyond the bins, one neighboring bin's width. `bounds: private` buys two quantiles inside the public range
    `within`. `decimals` fixes how many decimals its numbers have: cells are rounded to them, and 0 makes whole numbers. `draw`
    says how a synthetic value is chosen inside its bin: `smooth`, as the counts of its neighbors suggest, `uniform`,
    `log-uniform`, its `midpoint`, or by a public distribution. `codes` are numbers that mean something else, each with its
    label: they are recognized before cells are clamped to the bounds, and each is a separate value. `text` says how its cells
    spell numbers, with a unit or in brackets: a cell that is spelled otherwise is not as declared.
    """

    value_form: ClassVar[str | None] = "a number"
    beyond: ClassVar[Literal["numbers", "dates"]] = "numbers"
    imputations: ClassVar[tuple[str, ...]] = ("uniform", "gaussian")
    type: Literal["number"]

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_order("bounds", self.bounds)
        check_order("within", self.within)
        if (self.bounds == "private") != (self.within is not None):
            raise ValueError(
                "needs within [minimum, maximum] for bounds: private, and has no use for it otherwise"
            )
        if isinstance(self.bins, int):
            if self.bounds is None:
                raise ValueError("needs bounds [minimum, maximum] for a count of bins")
        elif isinstance(self.bins, LogBins):
            self._check_scale(self.bins)
        elif self.bounds == "private":
            raise ValueError(
                "needs a count of bins for bounds: private, whose edges are not known before"
            )
        else:
            self._check_edges()
        self._check_decimals()
        if self.within is None:
            self._check_resolution()
        else:
            self._check_within(*self.within)
        self._check_codes()
        return self

    def _check_codes(self) -> None:
        """Refuse special codes that are inexact, or whose label is taken (ValueError)."""
        for text in self.codes or ():
            code = declared_number(text)
            assert code is not None
            if abs(code) > EXACT or (
                self.decimals is not None and code != round(code, self.decimals)
            ):
                raise ValueError(
                    f"has a code ({text}) beyond 2^53, or with more decimals than the column"
                )
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("has a code whose label is that of another code or of a bin")

    def _check_edges(self) -> None:
        """Refuse edges that do not increase, or do not fit the bounds (ValueError)."""
        edges = self._inner
        for low, high in pairwise(edges):
            if not low < high:
                raise ValueError(
                    f"has bins out of order: {low:g} is before {high:g}; edges must increase"
                )
        if isinstance(self.bounds, tuple):
            low, high = self.bounds
            if self.outer == "open" and not (low <= edges[0] and edges[-1] <= high):
                raise ValueError("has bins that do not lie within its bounds")
            if self.outer != "open" and (edges[0], edges[-1]) != self.bounds:
                raise ValueError(
                    f"has bins that do not begin and end at its bounds, {low:g} and {high:g}"
                )

    def _check_scale(self, bins: LogBins) -> None:
        """Refuse log bins without public bounds, or with open bins or a `smallest` that has no use (ValueError)."""
        if not isinstance(self.bounds, tuple) or self.outer == "open":
            raise ValueError(
                "needs public bounds [minimum, maximum], and no outer: open, for bins: log"
            )
        if bins.smallest is not None and not self.bounds[0] <= 0 <= self.bounds[1]:
            raise ValueError("has smallest, which must stand beside bounds that include 0 alone")

    def _check_decimals(self) -> None:
        if self.finest < 0:
            raise ValueError("has an edge beyond 2^53, where whole numbers are no longer exact")
        if self.decimals is not None and not 0 <= self.decimals <= self.finest:
            raise ValueError(
                f"has decimals ({self.decimals}), which must lie between 0 and {self.finest} for its bounds"
            )

    def _check_resolution(self) -> None:
        for index in range(len(self.edges) - 1):
            low, high = self.grid(index)
            if high < low:
                raise ValueError(
                    f"has a bin, {self.labels[index]}, without any number of {self.resolution} decimals"
                )

    def _check_within(self, low: float, high: float) -> None:
        """Refuse a public range for private bounds that may be too narrow to be divided into bins (ValueError)."""
        if self.least_width() > high - low:
            raise ValueError(
                f"has a range within ({low:g}, {high:g}) too narrow for its bins and decimals"
            )
        # where the released bounds are hardest to divide
        for bounds in ((low, low), (high, high), (low, high)):
            self.with_bounds(*bounds)

    @property
    def ordered(self) -> bool:
        """Return whether the labels are in the order of their values; a special code has no place among the bins."""
        return not self.codes

    @property
    def type_words(self) -> str:
        """Words for the type, with all that two columns must share whose values are compared."""
        return f"number, decimals: {self.decimals}"

    @cached_property
    def label_limits(self) -> tuple[Limits | None, ...]:
        """First and last number of each bin on the grid; None for a special code."""
        grids = (self.grid(place) for place in range(self.bin_count))
        limits = [(first * self.step, last * self.step) for first, last in grids]
        return (*limits, *([None] * len(self.special)))

    @property
    def step(self) -> Fraction:
        """One unit of the last decimal."""
        return Fraction(1, 10**self.resolution)

    @property
    def clean_rules(self) -> tuple[Rule, ...]:
        """Rule that every number lies within the bounds, or is a special code."""
        return (Rule(name=RULE_BOUNDS, limits=self.clamp, values=self.special or None),)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Rule that every number lies within the bounds, or is a special code."""
        return self.clean_rules

    def value_key(self, text: str) -> Hashable | None:
        """Return the number that a text spells; None for a text that spells no number."""
        return declared_number(text.strip())

    def uniform_weights(self, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ARG002 - the bins are public
        """Return the widths of the bins inside the bounds, and 0 for each special code."""
        low, high = (
            self.bounds if isinstance(self.bounds, tuple) else (self.edges[0], self.edges[-1])
        )
        clamped = [min(max(edge, low), high) for edge in self.edges]
        widths = [float(above - below) for below, above in pairwise(clamped)]
        return (*widths, *([0.0] * len(self.special)))

    @property
    def rounding_words(self) -> str:
        """Words for what numbers are rounded to; empty where no decimals are declared."""
        if self.decimals is None:
            return ""
        key = "clamped.rounded" if self.decimals else "clamped.whole"
        return str(counts_sentence(key, decimals=self.decimals))

    @property
    def clamp(self) -> tuple[float, float]:
        """Public range to which every number is clamped first."""
        return (self.edges[0], self.edges[-1]) if self.within is None else self.within

    @property
    def clamp_texts(self) -> tuple[str, str]:
        """The ends of `clamp` as a configuration has them."""
        low, high = self.clamp
        return f"{low:.15g}", f"{high:.15g}"

    def accepts(self, text: str) -> bool:
        """Return whether the text is a number; its bounds clamp it."""
        return number(text) is not None

    def check_bins(self, missing: Sequence[str]) -> None:
        """Refuse a bin in which every value that could be drawn is a missing code; raises ValueError.

        Private bounds are checked wherever they may be within the public range.
        """
        if self.within is None:
            super().check_bins(missing)
            return
        low, high = self.within
        too_narrow = ValueError(
            f"has a range within ({low:g}, {high:g}) too narrow for its bins beside its missing codes"
        )
        if self.least_width(missing) > high - low:
            raise too_narrow
        hardest = [low, high]  # released bounds near these are the hardest to divide
        for text in (*missing, *self.explicit):
            code = declared_number(text.strip())
            if code is not None and low <= code <= high:
                hardest.append(float(code))
        for bound in hardest:
            try:
                bounded = self.with_bounds(bound, bound, missing)
            except ValidationError:
                raise too_narrow from None
            bounded.check_bins(missing)

    @cached_property
    def bound_candidates(self) -> tuple[float, ...]:
        """Public grid from which private bounds are chosen: at most 10,000 increasing points of `within`."""
        assert self.within is not None
        low, high = self.within
        points = int(min(MAX_CANDIDATES, self._possible_numbers))
        candidates = [low + (high - low) * i / (points - 1) for i in range(points)]
        if self.decimals is not None:
            candidates = [round(candidate, self.decimals) for candidate in candidates]
        return tuple(dict.fromkeys(candidates))

    @property
    def has_all_candidates(self) -> bool:
        """Return whether each number of `within` that the column can have, with its `decimals`, is a candidate."""
        return self._possible_numbers <= MAX_CANDIDATES

    @property
    def _possible_numbers(self) -> float:
        """Return how many numbers `within` has with the declared `decimals`; infinite without them."""
        if self.decimals is None:
            return math.inf
        assert self.within is not None
        low, high = self.within
        return math.floor((high - low) * 10**self.decimals) + 1

    def least_width(self, missing: Sequence[str] = ()) -> float:
        """Return the least width of released bounds that can be divided into bins.

        It is two steps of the grid a bin with `decimals`, otherwise the distance of two candidates. Each bin is wider by the
        longest run of consecutive missing codes, so that no bin is without a value.
        """
        assert self.within is not None
        assert isinstance(self.bins, int)
        if self.decimals is not None:
            gaps = gaps_on_grid((*missing, *self.explicit), *self.within, self.decimals)
            steps = 2 + longest_gap(gaps)
            return steps * self.bins / float(10**self.decimals)
        return (self.within[1] - self.within[0]) / (MAX_CANDIDATES - 1)

    def with_bounds(self, low: float, high: float, missing: Sequence[str] = ()) -> NumberColumn:
        """Return the column with the released bounds low <= high in the place of private ones.

        Where they are too narrow for the bins they are widened inside `within`, by a rule that depends only on them and
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
