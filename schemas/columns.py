"""What a configuration says of one column: its kind, its public domain, and what counts as missing or outside."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from marginweave.schemas.numbers import FROZEN, Number, Whole, to_number, to_whole
from marginweave.schemas.values import first_duplicate

MAX_BINS = 100_000
OTHER = "other"


def _texts(value: Any) -> Any:
    if not isinstance(value, list | tuple) or any(isinstance(item, dict | list | tuple) for item in value):
        raise ValueError("must be a list of texts")
    return tuple(str(item) for item in value)


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class Category(BaseModel):
    """A column of codes or names.

    `values` is its public domain; `domain: private` instead has the values discovered under the budget. A value outside
    the domain follows `outside`: it becomes missing (`null`), the value `other`, or stops the run (`error`).
    """

    model_config = FROZEN
    type: Literal["category"]
    values: Texts | None = None
    domain: Literal["public", "private"] = "public"
    missing: Texts | None = None
    outside: Literal["null", "other", "error"] = "null"

    @model_validator(mode="after")
    def _check(self) -> Category:
        if self.domain == "private":
            if self.values is not None:
                raise ValueError("has both values and domain: private; a private domain is discovered, not declared")
            if self.outside != "null":
                raise ValueError("has outside, which needs declared values: a private domain has no outside")
        elif not self.values:
            raise ValueError("needs values (its public domain) or domain: private")
        else:
            pair = first_duplicate(self.values)
            if pair:
                raise ValueError(f"declares a value twice: {pair[0]!r} and {pair[1]!r}")
        return self

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The public domain in declared order (trimmed), with `other` last where values outside become it."""
        declared = tuple(text.strip() for text in self.values or ())
        return (*declared, OTHER) if self.outside == OTHER and OTHER not in declared else declared


def _bins(value: Any) -> int | tuple[float, ...]:
    if isinstance(value, list | tuple):
        if len(value) < 2:
            raise ValueError("must be a count or a list of at least two edges")
        return tuple(to_number(edge) for edge in value)
    count = to_whole(value)
    if not 1 <= count <= MAX_BINS:
        raise ValueError(f"must be between 1 and {MAX_BINS}")
    return count


class NumberColumn(BaseModel):
    """A number, clamped to public `bounds` and released in `bins`.

    `bins` is a count of equal widths or a list of edges e_0 < … < e_n; a bin is [e_i, e_i+1), the last one [e_n-1, e_n].
    `decimals` fixes how many decimals a synthetic value has; 0 makes the column whole numbers.
    """

    model_config = FROZEN
    type: Literal["number"]
    bounds: tuple[Number, Number] | None = None
    bins: Annotated[int | tuple[float, ...], BeforeValidator(_bins)]
    decimals: Whole | None = None
    missing: Texts | None = None
    outside: Literal["null", "error"] = "null"

    @field_validator("bounds", mode="before")
    @classmethod
    def _bounds(cls, value: Any) -> Any:
        if value is not None and (not isinstance(value, list | tuple) or len(value) != 2):
            raise ValueError("must be [minimum, maximum]")
        return value

    @model_validator(mode="after")
    def _check(self) -> NumberColumn:
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError(
                f"has bounds ({self.bounds[0]:g}, {self.bounds[1]:g}): the minimum must be below the maximum"
            )
        if isinstance(self.bins, int):
            if self.bounds is None:
                raise ValueError("needs bounds [minimum, maximum] for a count of bins")
        else:
            for low, high in zip(self.bins, self.bins[1:], strict=False):
                if not low < high:
                    raise ValueError(f"has bins out of order: {low:g} stands before {high:g}; edges must increase")
            if self.bounds is not None and (self.bins[0], self.bins[-1]) != self.bounds:
                raise ValueError("has bins that do not begin and end at its bounds")
        if self.finest < 0:
            raise ValueError("has an edge beyond 2^53, where whole numbers are no longer exact")
        if self.decimals is not None and not 0 <= self.decimals <= self.finest:
            raise ValueError(
                f"has decimals ({self.decimals}), which must lie between 0 and {self.finest} for its bounds"
            )
        self._check_grid()
        return self

    def _check_grid(self) -> None:
        for index in range(len(self.edges) - 1):
            low, high = self.grid(index)
            if high < low:
                raise ValueError(f"has a bin, {self.labels[index]}, without any number of {self.resolution} decimals")

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """The bin edges, increasing; shape (bins + 1,)."""
        if not isinstance(self.bins, int):
            return self.bins
        assert self.bounds is not None  # _check has refused a count without bounds
        low, high = self.bounds
        return (*(low + (high - low) * i / self.bins for i in range(self.bins)), high)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the bins, such as `[0, 5)`; the last one is closed."""
        texts = [format(edge, ".12g") for edge in self.edges]
        last = len(texts) - 2
        return tuple(f"[{texts[i]}, {texts[i + 1]}{']' if i == last else ')'}" for i in range(len(texts) - 1))

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
        width = min(high - low for low, high in zip(self.edges, self.edges[1:], strict=False))
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


Column = Annotated[Category | NumberColumn, Field(discriminator="type")]
