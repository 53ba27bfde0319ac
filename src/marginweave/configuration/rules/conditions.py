"""Conditions on the values of a column: values, or a range of numbers or dates."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from operator import ge, gt, le, lt
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_serializer, model_validator

from marginweave.configuration.columns import DateColumn, NumberColumn
from marginweave.configuration.columns.base import ColumnBase, Texts
from marginweave.configuration.columns.periods import parse_instant
from marginweave.configuration.values import FrozenModel, ValueMatcher, declared_number, listed

Limits = tuple[Fraction, Fraction]
_Reached = tuple[Fraction | float, Fraction | float]
_Ends = tuple[tuple[str | None, Callable[[Fraction | float, Fraction | float], bool]], ...]


class Condition(FrozenModel):
    """What the value of one column must be, where it is not a list of values: any `but` some, or in a range.

    A range has a lower end, `from` (included) or `above`, an upper end, `to` (included) or `below`, or both. A missing value
    and a label without a number lie in no range.
    """

    but: Texts = ()
    at_least: Annotated[str | None, Field(alias="from")] = None
    above: str | None = None
    at_most: Annotated[str | None, Field(alias="to")] = None
    below: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        ends = (self.at_least, self.above), (self.at_most, self.below)
        if any(None not in pair for pair in ends):
            raise ValueError("must have from or above, and to or below, not both of two")
        if bool(self.but) == any(end is not None for pair in ends for end in pair):
            raise ValueError("must have but, or a range (from, above, to, below)")
        return self

    @model_serializer
    def _written(self) -> dict[str, str | Texts]:
        """As it is written in a configuration."""
        fields = type(self).model_fields
        return {field.alias or key: value for key, field in fields.items() if (value := getattr(self, key))}

    def labels(self, name: str, column: ColumnBase) -> tuple[str, ...]:
        """The labels of the column in the range.

        Raises ValueError for an end that lies inside a bin, and for a column whose values have no order, as days of the week.
        """
        every = label_limits(column)
        if column.labels and not any(every):  # of a private domain none is declared
            raise ValueError(
                f"structure has a range of column {name!r}, of whose values none is a number or a date; name values: "
                f"{listed(column.labels)}"
            )
        if isinstance(column, NumberColumn):
            every = _without_false_ends(column, every)
        inside = [self._holds(name, column, limits) for limits in every]
        return tuple(label for label, kept in zip(column.labels, inside, strict=True) if kept)

    def is_beyond(self, name: str, column: ColumnBase) -> bool:
        """Whether the range lies beyond the bounds of a number or date; raises as `labels`."""
        if not isinstance(column, NumberColumn | DateColumn) or (isinstance(column, DateColumn) and not column.ordered):
            return False
        first, last = span_of(column)
        lower = (_point_of(name, column, text) for text in (self.at_least, self.above) if text is not None)
        upper = (_point_of(name, column, text) for text in (self.at_most, self.below) if text is not None)
        return any(end >= last for end in lower) or any(end <= first for end in upper)

    def _holds(self, name: str, column: ColumnBase, limits: _Reached | None) -> bool:
        if limits is None:
            return False
        low, high = ((self.at_least, ge), (self.above, gt)), ((self.at_most, le), (self.below, lt))
        reached, kept = ([self._meets(name, column, value, ends) for value in limits] for ends in (low, high))
        first, last = (reached[place] and kept[place] for place in (0, 1))
        if first != last or (not first and kept[0] and reached[1]):  # an end, or both, are between its values
            below = "" if self.at_most is None else f"; to includes {self.at_most}, use below to leave it out"
            raise ValueError(
                f"structure has a range of column {name!r} that ends inside a bin; ranges must end where bins do: "
                f"{listed(column.labels)}{below}"
            )
        return first

    def _meets(self, name: str, column: ColumnBase, value: Fraction | float, ends: _Ends) -> bool:
        return all(meets(value, _point_of(name, column, text)) for text, meets in ends if text is not None)


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return Condition.model_validate(
            {k: v if isinstance(v, list | tuple) else [v] if k == "but" else str(v) for k, v in value.items()}
        )
    if isinstance(value, list | tuple) and not value:
        raise ValueError("must give each of its columns a value or a condition; a list of values must not be empty")
    return value if isinstance(value, list | tuple | Condition) else [value]


Allowed = Annotated[Condition | Texts, BeforeValidator(_read)]
"""A value, a list of values, or a condition."""


def labels_of(
    name: str, column: ColumnBase, asked: Condition | Texts, missing: Sequence[str]
) -> tuple[str | None, ...]:
    """The labels of a column that are asked for; None is the missing value. Raises ValueError for what is no value of it."""
    if isinstance(asked, Condition) and not asked.but:
        return asked.labels(name, column)
    named = [_label(name, column, text, missing) for text in (asked.but if isinstance(asked, Condition) else asked)]
    return tuple(x for x in (*column.labels, None) if x not in named) if isinstance(asked, Condition) else tuple(named)


def _point_of(name: str, column: ColumnBase, text: str) -> Fraction:
    """A number, or a date in ISO 8601 in the units in which its column counts. Raises ValueError for any other text."""
    if isinstance(column, DateColumn):
        instant = parse_instant(text.strip(), None)
        if instant is None:
            raise ValueError(
                f"structure has {text!r} as the end of a range of column {name!r}, which must be a date like 2019-12-31"
            )
        return Fraction(instant, column.seconds)
    found = declared_number(text.strip())
    if found is None:
        raise ValueError(f"structure has {text!r} as the end of a range of column {name!r}, which must be a number")
    return Fraction(found)


def label_limits(column: ColumnBase) -> list[Limits | None]:
    """The least and the largest value of each label, in order; None for one that is no number or date, as a code is not."""
    if isinstance(column, DateColumn):
        if not column.ordered:
            return [None] * len(column.labels)
        return [(Fraction(a), Fraction(b - 1)) for a, b in zip(column.edges[:-1], column.edges[1:], strict=True)]
    if isinstance(column, NumberColumn):
        scale = 10**column.resolution
        grids = [column.grid(i) for i in range(len(column.bin_labels))]
        return [*((Fraction(a, scale), Fraction(b, scale)) for a, b in grids), *(None for _ in column.special)]
    numbers = [declared_number(label) for label in column.labels]
    return [None if number is None else (Fraction(number), Fraction(number)) for number in numbers]


def _without_false_ends(column: NumberColumn, limits: Sequence[Limits | None]) -> list[_Reached | None]:
    """The limits of labels, but infinite where a bin is open: its numbers were any, before they were clamped."""
    found: list[_Reached | None] = [*limits]
    for place, ((first, last), (low, high)) in enumerate(zip(filter(None, limits), column.ends, strict=False)):
        found[place] = (low if math.isinf(low) else first, high if math.isinf(high) else last)
    return found


def labels_too_low(
    least: Sequence[tuple[str | None, Fraction]], column: ColumnBase
) -> Iterator[tuple[tuple[str | None, ...], ...]]:
    """For labels with their least values those of a column that hold nothing so large; those with the same ones together."""
    ends = zip(column.labels, label_limits(column), strict=True)
    tops = sorted((limits[1], place, label) for place, (label, limits) in enumerate(ends) if limits)
    together: defaultdict[int, list[str | None]] = defaultdict(list)
    for label, low in least:
        together[bisect_left(tops, (low,))].append(label)
    for number, labels in together.items():
        yield tuple(labels), tuple(label for *_, label in tops[:number])


def span_of(column: ColumnBase) -> Limits:
    """The least and the largest value of a number with public bounds, or of a date."""
    if isinstance(column, DateColumn):
        return Fraction(column.edges[0]), Fraction(column.edges[-1] - 1)
    assert isinstance(column, NumberColumn)
    first, last = column.grid(0), column.grid(len(column.bin_labels) - 1)
    return first[0] * step_of(column), last[1] * step_of(column)


def step_of(column: ColumnBase) -> Fraction:
    """The least distance of two values of a number or date, in the units of `label_limits`."""
    return Fraction(1, 10**column.resolution) if isinstance(column, NumberColumn) else Fraction(1)


def _label(name: str, column: ColumnBase, text: str, missing: Sequence[str]) -> str | None:
    if ValueMatcher(missing).index(text) >= 0:
        return None
    if column.private:
        return text.strip()
    code = column.code_of(text)
    if code < 0:
        known = f"column {name!r}; its values: {listed(column.labels)}"
        has_range = "; a range is written {from: , below: }" if any(label_limits(column)) else ""
        raise ValueError(f"structure names {text!r}, which is no value of {known}{has_range}")
    return column.labels[code]
