"""What is known of columns together: computed from others, or never found together."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Set
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from marginweave.configuration.columns import Column, Texts
from marginweave.configuration.rules.computed import (
    ComputedColumn,
    DeterminedColumn,
    DifferenceColumn,
    SumColumn,
    TotalColumn,
    check_computed,
)
from marginweave.configuration.rules.conditions import Allowed, label_limits, step_of
from marginweave.configuration.values import FrozenModel


def _combination(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) < 2:
        raise ValueError("must be a mapping of two or more columns to a value, or to a list of values")
    return {str(name): item for name, item in value.items()}


class AppliesRule(FrozenModel):
    """Columns that apply only `where` others have given values: elsewhere they are `otherwise`, and there they never are.

    `otherwise` is one of their values, or a text that means "no value"; the missing value if it is left out.
    """

    columns: Annotated[Texts, Field(min_length=1)]
    where: Annotated[dict[str, Allowed], Field(min_length=1)]
    otherwise: Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))] = None


class OrderedColumns(FrozenModel):
    """Numbers, or dates, none of which is less than one that stands before it; nor equal, without `ties`."""

    columns: Annotated[Texts, Field(min_length=2)]
    ties: bool = True


# Left out where there is nothing, so that digests stay as they were.
_NOT_EMPTY = AfterValidator(lambda rules: rules or None)


Orders: TypeAlias = Mapping[tuple[str, str], int]
"""By how many steps at least the second column lies above the first."""


class Structure(FrozenModel):
    """Public knowledge of columns together.

    `forbidden` lists combinations that cannot be, as {column: value, …}; a list of values stands for each of them, and so does
    a condition. They are never candidates and never synthesized; nor is what breaks `applies` or `ordered`. What `determined`,
    `difference` and `sum` compute is not counted. A record of the source that breaks a rule becomes one that keeps all
    (`Repair`).
    """

    determined: tuple[DeterminedColumn, ...] = ()
    forbidden: tuple[Annotated[dict[str, Allowed], BeforeValidator(_combination)], ...] = ()
    applies: Annotated[tuple[AppliesRule, ...] | None, _NOT_EMPTY] = None
    ordered: Annotated[tuple[OrderedColumns, ...] | None, _NOT_EMPTY] = None
    difference: Annotated[tuple[DifferenceColumn, ...] | None, _NOT_EMPTY] = None
    sum: Annotated[tuple[SumColumn, ...] | None, _NOT_EMPTY] = None

    @cached_property
    def orders(self) -> Orders:
        """Which column comes before which, directly or through others."""
        found: dict[tuple[str, str], int] = {}
        for order in self.ordered or ():
            for low, high in pairwise(order.columns):
                found[low, high] = max(found.get((low, high), 0), int(not order.ties))
        for middle in {name for pair in found for name in pair}:  # the longest way through others (Floyd and Warshall)
            for (low, one), (other, high) in itertools.product(list(found), repeat=2):
                if one == other == middle:
                    found[low, high] = max(found.get((low, high), 0), found[low, one] + found[other, high])
        return found

    @property
    def can_be_broken(self) -> bool:
        """Whether there are rules that a row of the source can break; what is computed follows from its columns."""
        return bool(self.forbidden or self.applies or self.ordered)

    @property
    def computed(self) -> tuple[ComputedColumn, ...]:
        """The rules by which columns are computed in the output."""
        return (*self.determined, *self.totals)

    @property
    def totals(self) -> tuple[TotalColumn, ...]:
        """Those by which one is the sum of others."""
        return (*(self.difference or ()), *(self.sum or ()))

    def computed_among(self, present: Collection[str]) -> tuple[str, ...]:
        """The columns `present` that are computed in the output: rows can be held against their rules."""
        return tuple(rule.computed for rule in self.computed if rule.computed in present)

    def rule_of(self, column: str) -> ComputedColumn | None:
        """The rule by which a column is computed in the output."""
        return next((rule for rule in self.computed if rule.computed == column), None)

    def difference_of(self, column: str) -> DifferenceColumn | None:
        """The difference that a counted column is."""
        return next((rule for rule in self.difference or () if rule.column == column), None)


def check_structure(structure: Structure, columns: Mapping[str, Column]) -> None:
    """Refuse a structure that does not fit the declared columns."""
    ruled = [("forbidden", name) for combination in structure.forbidden for name in combination]
    ruled += [("applies", name) for rule in structure.applies or () for name in (*rule.where, *rule.columns)]
    ruled += [("ordered", name) for order in structure.ordered or () for name in order.columns]
    computed = _once((rule.computed for rule in structure.computed), "determined, difference and sum")
    _once((rule.column for rule in structure.difference or ()), "difference")
    sources = [name for rule in structure.computed for name in rule.sources]
    for name in (*computed, *sources, *(name for _, name in ruled)):
        if name not in columns:
            raise ValueError(f"structure names {name!r}, which is not among columns")
    check_computed(structure.computed, columns)
    for key, name in ruled:
        _check_ruled(key, name, columns, set(computed))
    _once((name for universe in structure.applies or () for name in universe.columns), "applies")
    for universe in structure.applies or ():
        _once((*universe.where, *universe.columns), "applies")
    for order in structure.ordered or ():
        _check_order(order, columns)
    for low, high in structure.orders:
        if low == high:
            raise ValueError(f"structure.ordered has {low!r} before itself, through others")


def _check_ruled(key: str, name: str, columns: Mapping[str, Column], elsewhere: Set[str]) -> None:
    column = columns[name]
    if not column.measured or name in elsewhere or column.buys_bounds:
        raise ValueError(
            f"structure.{key} names {name!r}, which rules cannot name. That is a column that is dropped or computed "
            "(name the column that it follows from), or one with private bounds"
        )
    if key != "forbidden" and not column.public_cells:
        raise ValueError(f"structure.{key} names {name!r}, which must be a column with one public value a cell")


def _check_order(order: OrderedColumns, columns: Mapping[str, Column]) -> None:
    _once(order.columns, "ordered")
    kinds = {(columns[name].type, step_of(columns[name])) for name in order.columns}
    if len(kinds) > 1 or not all(any(label_limits(columns[name])) for name in order.columns):
        raise ValueError(
            f"structure.ordered has {', '.join(order.columns)}, which must be numbers of as many decimals, or dates of one type"
        )


def _once(names: Iterable[str], key: str) -> tuple[str, ...]:
    given = tuple(names)
    for name in given:
        if given.count(name) > 1:
            raise ValueError(f"structure.{key} names {name!r} twice")
    return given
