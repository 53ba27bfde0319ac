"""Columns that are not counted, as they follow from counted ones: by a mapping, as a difference or as a sum."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field

from marginweave.configuration.columns import BooleanColumn, Category, Column, DateColumn, NumberColumn, Texts
from marginweave.configuration.columns.periods import moment_of
from marginweave.configuration.rules.conditions import span_of, step_of
from marginweave.configuration.values import FrozenModel


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise ValueError("must be a mapping of values to values")
    return {str(key): str(item) for key, item in value.items()}


class _Computed(FrozenModel):
    key: ClassVar[str]
    """Where it is in the section `structure`."""
    column: str

    @property
    def computed(self) -> str:
        """The column of the output that is computed; it is not counted."""
        return self.column

    @property
    def leaves_gaps(self) -> bool:
        """Whether it can be missing where its sources are not."""
        return False


class DeterminedColumn(_Computed):
    """A column that is not measured: the output has `mapping[value of by]`, or `default`; nothing where `by` is missing."""

    key: ClassVar[str] = "determined"
    by: str
    mapping: Annotated[dict[str, str], BeforeValidator(_mapping)]
    default: Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))] = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The counted column that it follows from."""
        return (self.by,)

    @property
    def leaves_gaps(self) -> bool:
        """Whether other values of `by` have none."""
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
        """The later column."""
        return self.of

    @property
    def sources(self) -> tuple[str, ...]:
        """The counted columns that it is the sum of."""
        return self.since, self.column


class SumColumn(_Computed):
    """A number that is not counted: the output has the sum of the columns `of`, nothing where one of them is missing."""

    key: ClassVar[str] = "sum"
    of: Annotated[Texts, Field(min_length=2)]

    @property
    def sources(self) -> tuple[str, ...]:
        """The counted columns that it is the sum of."""
        return self.of


TotalColumn: TypeAlias = DifferenceColumn | SumColumn
ComputedColumn: TypeAlias = DeterminedColumn | TotalColumn


def check_computed(rules: Iterable[ComputedColumn], columns: Mapping[str, Column]) -> None:
    """Refuse rules that do not fit the declared columns, all of which are there."""
    given = tuple(rules)
    computed = {rule.computed for rule in given}
    differences = {rule.column for rule in given if isinstance(rule, DifferenceColumn)}
    for rule in given:
        if isinstance(rule, DeterminedColumn):
            _check_determined(rule, columns, computed)
        else:
            _check_total(rule, columns, computed)
        if isinstance(rule, DifferenceColumn) and rule.since in differences:
            raise ValueError(f"structure.difference has since: {rule.since}, which must not be a difference itself")


def _check_determined(rule: DeterminedColumn, columns: Mapping[str, Column], computed: Collection[str]) -> None:
    column, by = columns[rule.column], columns[rule.by]
    if not column.public_cells:
        raise ValueError(f"structure.determined has {rule.column!r}, which must be a column with its own public values")
    whole = isinstance(by, NumberColumn) and by.decimals == 0
    if rule.by in computed or not (whole or isinstance(by, Category | BooleanColumn)):
        raise ValueError(
            f"structure.determined computes {rule.column!r} by {rule.by!r}, which must be a measured category, boolean or "
            "number of 0 decimals"
        )
    for text in (*rule.mapping.values(), *(() if rule.default is None else (rule.default,))):
        if not column.accepts(text.strip()):
            raise ValueError(
                f"structure.determined gives {rule.column!r} the value {text!r}, which it does not declare"
            )
    named: dict[Hashable, str] = {}
    for text in rule.mapping:
        key = by.value_key(text)
        if key is None:
            raise ValueError(f"structure.determined maps {text!r}, which is no value of {rule.by!r}")
        earlier = named.setdefault(key, text)
        if earlier is not text:
            raise ValueError(
                f"structure.determined maps {earlier!r} and {text!r}, which are one value of {rule.by!r}; keep one"
            )


def _check_total(rule: TotalColumn, columns: Mapping[str, Column], computed: Collection[str]) -> None:
    """A sum must be exact, of columns that are counted."""
    names, place = (rule.computed, *rule.sources), f"structure.{rule.key}"
    if len(set(names)) < len(names):
        raise ValueError(f"{place} has a column twice among {', '.join(names)}")
    for name in names:
        column, counted = columns[name], name != rule.computed
        if not column.public_cells or (counted and name in computed):
            raise ValueError(
                f"{place} has {name!r}, which must be a separate column with public bounds, not computed from others"
            )
        if not isinstance(column, NumberColumn | DateColumn) or getattr(column, "codes", None):
            raise ValueError(f"{place} has {name!r}, which must be a number or date, without codes")
        if isinstance(column, DateColumn) and not column.exact:
            raise ValueError(f"{place} has {name!r}, whose format must write each {column.type} in its own way")
    dated, kinds = isinstance(rule, DifferenceColumn), [columns[name].type for name in names]
    wanted = [kinds[0], kinds[0], "number"] if dated else ["number"] * len(kinds)
    if kinds != wanted or len({step_of(columns[name]) for name in names}) > 1:
        what = "dates of one type and a number of 0 decimals, or numbers" if dated else "numbers"
        raise ValueError(f"{place} has {', '.join(names)}, which must be {what} of as many decimals")
    _check_bounds(rule, columns)


def _check_bounds(rule: TotalColumn, columns: Mapping[str, Column]) -> None:
    """Nothing that is computed may have to be clamped: then the sum would no longer be right."""
    column, limits = columns[rule.computed], [span_of(columns[name]) for name in rule.sources]
    least, most = (sum(ends, Fraction()) for ends in zip(*limits, strict=True))
    first, last = span_of(column)
    if not first <= least <= most <= last:
        raise ValueError(
            f"structure.{rule.key} computes {rule.computed!r} from {' and '.join(rule.sources)}; its bounds must hold "
            f"{_text(column, least)} to {_text(column, most)}"
        )


def _text(column: Column, point: Fraction) -> str:
    if not isinstance(column, DateColumn):
        return format(float(point), ".12g")
    with suppress(OverflowError):
        return moment_of(int(point) * column.seconds).isoformat()[: 10 if column.type == "date" else None]
    return "a date outside of the years 1 to 9999"
