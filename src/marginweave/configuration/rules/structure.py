"""Rules between columns: columns that are computed from others, and combinations of values that cannot be."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from marginweave.base.errors import MustError, UnconfirmedError
from marginweave.configuration.columns import Column, Texts
from marginweave.configuration.rules.computed import (
    ComputedColumn,
    DeterminedColumn,
    DifferenceColumn,
    SumColumn,
    TotalColumn,
    check_computed,
    with_types,
)
from marginweave.configuration.rules.conditions import Allowed
from marginweave.configuration.rules.drafted import WAITS, DraftedRule
from marginweave.configuration.values import FrozenModel


def _combination(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) < 2:
        raise MustError("be a mapping of two or more columns to a value, or to a list of values")
    if value.get("confirm") in (True, "true"):
        raise UnconfirmedError(WAITS)
    return {str(name): item for name, item in value.items()}


class AppliesRule(DraftedRule):
    """Columns that apply only `where` other columns have certain values.

    Elsewhere they are `otherwise`, and where they apply they never are. `otherwise` is one of their values, or a text that
    means "no value"; the missing value if it is left out.
    """

    columns: Annotated[Texts, Field(min_length=1)]
    where: Annotated[dict[str, Allowed], Field(min_length=1)]
    otherwise: Annotated[
        str | None, BeforeValidator(lambda value: None if value is None else str(value))
    ] = None


class OrderedColumns(DraftedRule):
    """Numbers, or dates, none of which is less than an earlier column of the list; nor equal to it, without `ties`."""

    columns: Annotated[Texts, Field(min_length=2)]
    ties: bool = True


def _entries(value: Any) -> Any:
    """Return the entries of a key: none where all were deleted, and only the key remains."""
    return () if value in (None, "") else value


_ENTRIES = BeforeValidator(_entries)
# An empty list is left out, so that digests do not change.
_NOT_EMPTY = AfterValidator(lambda rules: rules or None)


Orders: TypeAlias = Mapping[tuple[str, str], int]
"""For (low, high) columns, the least number of steps by which the second lies above the first."""


class Structure(FrozenModel):
    """Public knowledge of columns together.

    `forbidden` lists combinations that cannot be, as {column: value, …}; a list of values means each of them, and so does a
    condition. They are never candidates and never synthesized; nor is a combination that breaks `applies` or `ordered`. What
    `determined`, `difference` and `sum` compute is not counted. A record of the source that breaks a rule is changed until it
    keeps all rules (`Repair`).
    """

    determined: Annotated[tuple[DeterminedColumn, ...], _ENTRIES] = ()
    forbidden: Annotated[
        tuple[Annotated[dict[str, Allowed], BeforeValidator(_combination)], ...], _ENTRIES
    ] = ()
    applies: Annotated[tuple[AppliesRule, ...] | None, _ENTRIES, _NOT_EMPTY] = None
    ordered: Annotated[tuple[OrderedColumns, ...] | None, _ENTRIES, _NOT_EMPTY] = None
    difference: Annotated[tuple[DifferenceColumn, ...] | None, _ENTRIES, _NOT_EMPTY] = None
    sum: Annotated[tuple[SumColumn, ...] | None, _ENTRIES, _NOT_EMPTY] = None

    @cached_property
    def orders(self) -> Orders:
        """Pairs of columns of which the first comes before the second, directly or through others."""
        steps: dict[tuple[str, str], int] = {}
        for order in self.ordered or ():
            for low, high in pairwise(order.columns):
                steps[low, high] = max(steps.get((low, high), 0), int(not order.ties))
        # the longest way through others (Floyd and Warshall)
        for middle in dict.fromkeys(name for pair in steps for name in pair):
            before = [low for low, high in steps if high == middle]
            behind = [high for low, high in steps if low == middle]
            for low, high in itertools.product(before, behind):
                steps_through = steps[low, middle] + steps[middle, high]
                steps[low, high] = max(steps.get((low, high), 0), steps_through)
        return steps

    @property
    def can_be_broken(self) -> bool:
        """Return whether there are rules that a row of the source can break; rules that compute a column cannot be."""
        return bool(self.forbidden or self.applies or self.ordered)

    @property
    def conditional_columns(self) -> frozenset[str]:
        """Names of columns that apply to some records only: a gap there says nothing else."""
        return frozenset(name for rule in self.applies or () for name in rule.columns)

    @property
    def computed(self) -> tuple[ComputedColumn, ...]:
        """Rules by which columns are computed in the output."""
        return (*self.determined, *self.totals)

    @property
    def computed_columns(self) -> tuple[str, ...]:
        """Names of columns that are computed in the output, in the order of their rules."""
        return tuple(rule.computed for rule in self.computed)

    @property
    def totals(self) -> tuple[TotalColumn, ...]:
        """Rules by which a column is computed as the sum of others."""
        return (*(self.difference or ()), *(self.sum or ()))

    def computed_among(self, present: Collection[str]) -> tuple[str, ...]:
        """Return those of the columns `present` that are computed in the output: rows can be checked by their rules."""
        return tuple(name for name in self.computed_columns if name in present)

    def rule_of(self, column: str) -> ComputedColumn | None:
        """Return the rule by which a column is computed in the output, or None."""
        return next((rule for rule in self.computed if rule.computed == column), None)

    def difference_of(self, column: str) -> DifferenceColumn | None:
        """Return the rule of a counted column that is a difference, or None."""
        return next((rule for rule in self.difference or () if rule.column == column), None)


def check_structure(structure: Structure, columns: Mapping[str, Column]) -> None:
    """Refuse a structure that does not fit the declared columns; raises ValueError."""
    computed = [rule.computed for rule in structure.computed]
    _check_unique(computed, "determined, difference and sum")
    _check_unique([rule.column for rule in structure.difference or ()], "difference")
    sources = [name for rule in structure.computed for name in rule.sources]
    ruled = list(_ruled_columns(structure))
    for name in (*computed, *sources, *(name for _, name in ruled)):
        if name not in columns:
            raise ValueError(f"structure names {name!r}, which is not among columns")
    check_computed(structure.computed, columns)
    for key, name in ruled:
        _check_ruled(key, name, columns, set(computed))
    universes = structure.applies or ()
    _check_unique([name for universe in universes for name in universe.columns], "applies")
    for universe in universes:
        _check_unique([*universe.where, *universe.columns], "applies")
    for order in structure.ordered or ():
        _check_order(order, columns)
    for low, high in structure.orders:
        if low == high:
            raise ValueError(f"structure.ordered has {low!r} before itself, through others")


def _ruled_columns(structure: Structure) -> Iterator[tuple[str, str]]:
    """Yield the columns that `forbidden`, `applies` and `ordered` name, each with the key that names it."""
    for combination in structure.forbidden:
        for name in combination:
            yield "forbidden", name
    for rule in structure.applies or ():
        for name in (*rule.where, *rule.columns):
            yield "applies", name
    for order in structure.ordered or ():
        for name in order.columns:
            yield "ordered", name


def _check_ruled(key: str, name: str, columns: Mapping[str, Column], computed: Set[str]) -> None:
    """Refuse a column that a rule under `key` cannot name (ValueError)."""
    column = columns[name]
    if not column.measured or name in computed or column.buys_bounds:
        raise ValueError(
            f"structure.{key} names {name!r}, which rules cannot name. That is a column that is dropped or computed "
            "(name the column that it follows from), or one with private bounds"
        )
    if key != "forbidden" and not column.public_cells:
        raise ValueError(
            f"structure.{key} names {name!r}, which must be a column with one public value a cell"
        )


def _check_order(order: OrderedColumns, columns: Mapping[str, Column]) -> None:
    """Refuse an order of columns that cannot be compared, or that names a column twice (ValueError)."""
    _check_unique(order.columns, "ordered")
    ordered = [columns[name] for name in order.columns]
    for column, name in zip(ordered, order.columns, strict=True):
        if not any(column.label_limits):
            raise ValueError(f"structure.ordered has {name!r}, {column.without_order}")
    if len({(column.type, column.step) for column in ordered}) > 1:
        raise ValueError(
            f"structure.ordered has {with_types(order.columns, columns)}, which must be of one type, and numbers of as many "
            "decimals"
        )


def _check_unique(names: Sequence[str], key: str) -> None:
    """Refuse a name that occurs twice under `key` (ValueError)."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"structure.{key} names {name!r} twice")
