"""Conditions on the values of a column: values, or a range of numbers or dates."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_serializer, model_validator

from marginweave.base.errors import MustError
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.base import ColumnBase, Limits, Texts
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.values import FrozenModel, ValueMatcher, listed

_Span = tuple[Fraction | float, Fraction | float]


class ConditionError(ValueError):
    """A condition on a column that its values cannot meet or fail, as `structure` says it.

    `fault` is the message without its subject. `names_number` is True where a value is named of a column that has ranges, and
    `lists_values` where the message ends with the values of the column.
    """

    def __init__(
        self,
        fault: str,
        *,
        names_number: bool = False,
        lists_values: bool = False,
    ) -> None:
        hint = "; a range is written {from: , below: }" if names_number else ""
        super().__init__(f"structure {fault}{hint}")
        self.fault = fault
        self.names_number = names_number
        self.lists_values = lists_values


class Condition(FrozenModel):
    """A condition on the value of one column, instead of a list of values: any value `but` some, or a value in a range.

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
        lower = (self.at_least, self.above)
        upper = (self.at_most, self.below)
        if None not in lower or None not in upper:
            raise MustError("have from or above, and to or below, not both of two")
        has_range = any(end is not None for end in (*lower, *upper))
        if bool(self.but) == has_range:
            raise MustError("have but, or a range (from, above, to, below)")
        return self

    @model_serializer
    def _written(self) -> dict[str, str | Texts]:
        """Return the keys and values as a configuration has them, without the empty ones."""
        written = dict[str, str | Texts]()
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            if value:
                written[field.alias or key] = value
        return written

    def labels(self, name: str, column: ColumnBase) -> tuple[str, ...]:
        """Return the labels of the column in the range.

        Raises:
            ConditionError: an end lies inside a bin, or the values of the column have no order, as days of the week.
        """
        limits = column.label_limits
        if column.labels and not any(limits):  # a private domain declares no labels
            raise ConditionError(
                f"has a range of column {name!r}, {column.without_order}; name values: {listed(column.labels)}"
            )
        spans: list[_Span | None] = [*limits]
        if isinstance(column, NumberColumn):
            spans = _with_open_ends(column, limits)
        inside = [span is not None and self._holds(name, column, span) for span in spans]
        return tuple(itertools.compress(column.labels, inside))

    def is_beyond(self, name: str, column: ColumnBase) -> bool:
        """Return whether the range lies beyond the bounds of a number or date; raises as `labels`."""
        if not isinstance(column, BinnedColumn) or not any(column.label_limits):
            return False
        first, last = column.span
        lower = self.above if self.at_least is None else self.at_least
        upper = self.below if self.at_most is None else self.at_most
        if lower is not None and _point_of(name, column, lower) >= last:
            return True
        return upper is not None and _point_of(name, column, upper) <= first

    def reaches(self, *, up: bool) -> bool:
        """Return whether the condition holds for values that are ever larger (`up`), or ever smaller."""
        ends = (self.at_most, self.below) if up else (self.at_least, self.above)
        return ends == (None, None)

    def _holds(self, name: str, column: ColumnBase, span: _Span) -> bool:
        """Return whether the range has all values of a label, from the least to the largest of `span`.

        Raises ConditionError for a range that has only some of them.
        """
        low, high = span
        low_is_inside = self._is_above(name, column, low) and self._is_below(name, column, low)
        high_is_inside = self._is_above(name, column, high) and self._is_below(name, column, high)
        # A range between the two has neither, but it begins below the largest value, and ends above the least.
        is_between = (
            not low_is_inside
            and self._is_below(name, column, low)
            and self._is_above(name, column, high)
        )
        if low_is_inside != high_is_inside or is_between:
            below = (
                ""
                if self.at_most is None
                else f"; to includes {self.at_most}, use below to leave it out"
            )
            raise ConditionError(
                f"has a range of column {name!r} that ends inside a bin; ranges must end where bins do: "
                f"{listed(column.labels)}{below}"
            )
        return low_is_inside

    def _is_above(self, name: str, column: ColumnBase, value: Fraction | float) -> bool:
        """Return whether a value meets the lower end of the range, if it has one."""
        if self.at_least is not None:
            return value >= _point_of(name, column, self.at_least)
        return self.above is None or value > _point_of(name, column, self.above)

    def _is_below(self, name: str, column: ColumnBase, value: Fraction | float) -> bool:
        """Return whether a value meets the upper end of the range, if it has one."""
        if self.at_most is not None:
            return value <= _point_of(name, column, self.at_most)
        return self.below is None or value < _point_of(name, column, self.below)


def _read(value: Any) -> Any:
    """Return the condition that a mapping says, or a list of values; a single value becomes a list."""
    if isinstance(value, dict):
        return Condition.model_validate({key: _read_end(key, text) for key, text in value.items()})
    _refuse_nothing(value)
    if isinstance(value, list | tuple) and not value:
        raise MustError(
            "give each of its columns a value or a condition; a list of values must not be empty"
        )
    return value if isinstance(value, list | tuple | Condition) else [value]


def _refuse_nothing(value: Any) -> None:
    """Refuse None, alone or in a list, which would be taken for a text (MustError)."""
    if value is None or (isinstance(value, list | tuple) and None in value):
        raise MustError(
            "give each of its columns a value or a condition, which None is not: a missing value has a text, such as (missing)"
        )


def _read_end(key: Any, value: Any) -> Any:
    """Return a value of a condition: a list of values, or the text of an end."""
    _refuse_nothing(value)
    if isinstance(value, list | tuple):
        return value
    return [value] if key == "but" else str(value)


Allowed = Annotated[Condition | Texts, BeforeValidator(_read)]
"""A value, a list of values, or a condition."""


def labels_of(
    name: str, column: ColumnBase, values: Condition | Texts, missing: Sequence[str]
) -> tuple[str | None, ...]:
    """Return the labels of a column that meet a condition or are listed; None is the missing value.

    Raises ConditionError for a text that is no value of the column.
    """
    if not isinstance(values, Condition):
        return tuple(_label(name, column, text, missing) for text in values)
    if not values.but:
        return values.labels(name, column)
    excluded = [_label(name, column, text, missing) for text in values.but]
    return tuple(label for label in (*column.labels, None) if label not in excluded)


def _point_of(name: str, column: ColumnBase, text: str) -> Fraction:
    """Return the end of a range in the units of the column. Raises ConditionError for a text that is none."""
    point = column.point_of(text.strip())
    if point is None:
        raise ConditionError(
            f"has {text!r} as the end of a range of column {name!r}, which must be {column.range_end}"
        )
    return point


def _with_open_ends(column: NumberColumn, limits: Sequence[Limits | None]) -> list[_Span | None]:
    """Return the limits of labels, but infinite where a bin is open: its values were any, before they were clamped."""
    spans: list[_Span | None] = [*limits]
    bins = zip(filter(None, limits), column.ends, strict=False)
    for place, ((first, last), (low, high)) in enumerate(bins):
        spans[place] = (low if math.isinf(low) else first, high if math.isinf(high) else last)
    return spans


def labels_too_low(
    least: Sequence[tuple[str | None, Fraction]], column: ColumnBase
) -> Iterator[tuple[tuple[str | None, ...], tuple[str | None, ...]]]:
    """Yield labels with the labels of `column` that hold no value as large as their least values.

    `least` has the labels with their least values; labels that exclude the same labels are yielded as one group.
    """
    limits_of_labels = zip(column.labels, column.label_limits, strict=True)
    tops = sorted(
        (limits[1], place, label)
        for place, (label, limits) in enumerate(limits_of_labels)
        if limits
    )
    groups: defaultdict[int, list[str | None]] = defaultdict(list)
    for label, low in least:
        groups[bisect_left(tops, (low,))].append(label)
    for number, labels in groups.items():
        yield tuple(labels), tuple(label for *_, label in tops[:number])


def _label(name: str, column: ColumnBase, text: str, missing: Sequence[str]) -> str | None:
    """Return the label that a text of `structure` means, None for a text that means "no value".

    Raises ConditionError for a text that is no value of the column.
    """
    if ValueMatcher(missing).index(text) >= 0:
        return None
    if column.private:
        return text.strip()
    code = column.code_of(text)
    if code < 0:
        values = f"column {name!r}; its values: {listed(column.labels)}"
        raise ConditionError(
            f"names {text!r}, which is no value of {values}",
            names_number=any(column.label_limits),
            lists_values=True,
        )
    return column.labels[code]
