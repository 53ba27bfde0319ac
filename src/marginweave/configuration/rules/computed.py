"""Columns that are not counted, as they follow from counted ones: by a mapping, as a difference or as a sum."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field

from marginweave.base.errors import MustError
from marginweave.configuration.columns import (
    BooleanColumn,
    Category,
    Column,
    DateColumn,
    NumberColumn,
    Texts,
)
from marginweave.configuration.columns.base import Limits
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.columns.periods import moment_of
from marginweave.configuration.rules.drafted import DraftedRule


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise MustError("be a mapping of values to values")
    return {str(key): str(item) for key, item in value.items()}


class _Computed(DraftedRule):
    key: ClassVar[str]
    """Its key in the section `structure`."""
    column: str

    @property
    def computed(self) -> str:
        """Name of the column that is computed in the output; it is not counted."""
        return self.column

    @property
    def leaves_gaps(self) -> bool:
        """Return whether the computed column can be missing where its sources are not."""
        return False


class DeterminedColumn(_Computed):
    """A column that is not measured: the output has `mapping[value of by]`, or `default`; nothing where `by` is missing."""

    key: ClassVar[str] = "determined"
    by: str
    mapping: Annotated[dict[str, str], BeforeValidator(_mapping)]
    default: Annotated[
        str | None, BeforeValidator(lambda value: None if value is None else str(value))
    ] = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Name of the counted column that it follows from."""
        return (self.by,)

    @property
    def leaves_gaps(self) -> bool:
        """Return whether it is missing for values of `by` that `mapping` does not name."""
        return self.default is None


class DifferenceColumn(_Computed):
    """A number that is counted, computed from each row as `of` minus `since`, whatever the source has in its place.

    `of` is not counted: the output has `since` plus the number, nothing where either is missing.
    """

    key: ClassVar[str] = "difference"
    of: str
    since: str

    @property
    def computed(self) -> str:
        """Name of the later column, which the output computes."""
        return self.of

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the counted columns whose sum it is."""
        return self.since, self.column


class SumColumn(_Computed):
    """A number that is not counted: the output has the sum of the columns `of`, nothing where one of them is missing."""

    key: ClassVar[str] = "sum"
    of: Annotated[Texts, Field(min_length=2)]

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the counted columns whose sum it is."""
        return self.of


TotalColumn: TypeAlias = DifferenceColumn | SumColumn
ComputedColumn: TypeAlias = DeterminedColumn | TotalColumn


def check_computed(rules: Iterable[ComputedColumn], columns: Mapping[str, Column]) -> None:
    """Refuse rules that do not fit the declared columns (ValueError); `columns` has every column that they name."""
    all_rules = tuple(rules)
    computed = {rule.computed for rule in all_rules}
    differences = {rule.column for rule in all_rules if isinstance(rule, DifferenceColumn)}
    for rule in all_rules:
        if isinstance(rule, DeterminedColumn):
            _check_determined(rule, columns, computed)
        else:
            _check_total(rule, columns, computed)
        if isinstance(rule, DifferenceColumn) and rule.since in differences:
            raise ValueError(
                f"structure.difference has since: {rule.since}, which must not be a difference itself"
            )


def _check_determined(
    rule: DeterminedColumn, columns: Mapping[str, Column], computed: Collection[str]
) -> None:
    """Refuse a mapping from or to values that its columns do not have, or of columns that cannot be mapped (ValueError)."""
    column = columns[rule.column]
    by = columns[rule.by]
    if not column.public_cells:
        raise ValueError(
            f"structure.determined has {rule.column!r}, which must be a column with its own public values"
        )
    is_whole_number = isinstance(by, NumberColumn) and by.decimals == 0
    if rule.by in computed or not (is_whole_number or isinstance(by, Category | BooleanColumn)):
        raise ValueError(
            f"structure.determined computes {rule.column!r} by {rule.by!r}, which must be a measured category, boolean or "
            "number of 0 decimals"
        )
    texts = list(rule.mapping.values())
    if rule.default is not None:
        texts.append(rule.default)
    for text in texts:
        if not column.accepts(text.strip()):
            raise ValueError(
                f"structure.determined gives {rule.column!r} the value {text!r}, which it does not declare"
            )
    mapped: dict[Hashable, str] = {}
    for text in rule.mapping:
        key = by.value_key(text)
        if key is None:
            raise ValueError(
                f"structure.determined maps {text!r}, which is no value of {rule.by!r}"
            )
        earlier = mapped.setdefault(key, text)
        if earlier is not text:
            raise ValueError(
                f"structure.determined maps {earlier!r} and {text!r}, which are one value of {rule.by!r}; keep one"
            )


def _check_total(
    rule: TotalColumn, columns: Mapping[str, Column], computed: Collection[str]
) -> None:
    """Refuse a sum or difference that is not exact, or of columns that are not counted (ValueError)."""
    names = (rule.computed, *rule.sources)
    place = f"structure.{rule.key}"
    if len(set(names)) < len(names):
        raise ValueError(f"{place} has a column twice among {', '.join(names)}")
    for name in names:
        column = columns[name]
        computed_elsewhere = name != rule.computed and name in computed
        if not column.public_cells or computed_elsewhere:
            raise ValueError(
                f"{place} has {name!r}, which must be a separate column with public bounds, not computed from others"
            )
        if not isinstance(column, NumberColumn | DateColumn):
            raise ValueError(
                f"{place} has {name!r} of the type {column.type}, and takes number, date and datetime alone"
            )
        if isinstance(column, NumberColumn) and column.codes:
            raise ValueError(f"{place} has {name!r}, whose codes are no amounts; leave codes out")
        if isinstance(column, DateColumn) and not column.exact:
            raise ValueError(
                f"{place} has {name!r}, whose format must write each {column.type} in its own way"
            )
    is_difference = isinstance(rule, DifferenceColumn)
    types = [columns[name].type for name in names]
    expected = [types[0], types[0], "number"] if is_difference else ["number"] * len(types)
    if types != expected or len({columns[name].step for name in names}) > 1:
        needed = (
            "dates of one type and a number of 0 decimals, or numbers"
            if is_difference
            else "numbers"
        )
        raise ValueError(
            f"{place} has {with_types(names, columns)}, which must be {needed} of as many decimals"
        )
    _check_bounds(rule, columns)


def with_types(names: Sequence[str], columns: Mapping[str, Column]) -> str:
    """Return the names of columns, each with its type."""
    return ", ".join(f"{name} ({columns[name].type_words})" for name in names)


def _check_bounds(rule: TotalColumn, columns: Mapping[str, Column]) -> None:
    """Refuse sums beyond the bounds of the computed column (ValueError): they would be clamped, and not be the sum."""
    column = columns[rule.computed]
    spans: dict[str, Limits] = {}
    for name in (rule.computed, *rule.sources):
        binned = columns[name]
        assert isinstance(binned, BinnedColumn)  # _check_total has refused all others
        spans[name] = binned.span
    first, last = spans[rule.computed]
    least = sum((spans[name][0] for name in rule.sources), Fraction())
    most = sum((spans[name][1] for name in rule.sources), Fraction())
    if not first <= least <= most <= last:
        raise ValueError(
            f"structure.{rule.key} computes {rule.computed!r} from {' and '.join(rule.sources)}; its bounds must hold "
            f"{_text(column, least)} to {_text(column, most)}"
        )


def _text(column: Column, point: Fraction) -> str:
    """Return a number, or a moment of a date, as a message shows it."""
    if not isinstance(column, DateColumn):
        return format(float(point), ".12g")
    with suppress(OverflowError):
        return moment_of(int(point) * column.seconds).isoformat()[
            : 10 if column.type == "date" else None
        ]
    return "a date outside of the years 1 to 9999"
