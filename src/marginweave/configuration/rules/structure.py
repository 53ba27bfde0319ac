"""What is known of columns together: released as one, computed from others, or never found together."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Set
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from marginweave.configuration.columns import Column, Texts
from marginweave.configuration.preparation import UniformImputation
from marginweave.configuration.rules.computed import (
    ComputedColumn,
    DeterminedColumn,
    DifferenceColumn,
    SumColumn,
    TotalColumn,
    check_computed,
)
from marginweave.configuration.rules.conditions import Allowed, label_limits, step_of
from marginweave.configuration.rules.levels import LevelColumn, check_level
from marginweave.configuration.values import FrozenModel

SEPARATOR = " | "


def _combination(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) < 2:
        raise ValueError("must be a mapping of two or more columns to a value, or to a list of values")
    return {str(name): item for name, item in value.items()}


class GroupedColumns(FrozenModel):
    """Columns that are released as one attribute `name`, whose values are the public `combinations` of theirs.

    A combination names one value a column, in the order of `columns`: a declared value, the label of a bin, or a text that
    means "no value". Any other follows `outside`: it becomes missing (`null`) or stops the run (`error`); without it, it is
    counted as not as declared, or becomes missing where each column can be. With `impute` it becomes one of the combinations,
    each as likely, and the group is never missing.
    """

    name: Annotated[str, Field(min_length=1)]
    columns: Annotated[Texts, Field(min_length=2)]
    combinations: Annotated[tuple[Texts, ...], Field(min_length=1)]
    outside: Literal["null", "error"] | None = None
    impute: UniformImputation | None = None

    @property
    def lacks_values(self) -> bool:
        """Whether a record can lack a combination, for whatever reason."""
        return self.outside != "error" and self.impute is None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the combinations: the values of the columns, in order."""
        return tuple(SEPARATOR.join(text.strip() for text in texts) for texts in self.combinations)


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
    `difference` and `sum` compute is not counted; what `levels` compute is, in marginals. A record of the source that breaks a
    rule becomes one that keeps all (`Repair`).
    """

    grouped: tuple[GroupedColumns, ...] = ()
    determined: tuple[DeterminedColumn, ...] = ()
    forbidden: tuple[Annotated[dict[str, Allowed], BeforeValidator(_combination)], ...] = ()
    applies: Annotated[tuple[AppliesRule, ...] | None, _NOT_EMPTY] = None
    ordered: Annotated[tuple[OrderedColumns, ...] | None, _NOT_EMPTY] = None
    difference: Annotated[tuple[DifferenceColumn, ...] | None, _NOT_EMPTY] = None
    sum: Annotated[tuple[SumColumn, ...] | None, _NOT_EMPTY] = None
    levels: Annotated[tuple[LevelColumn, ...] | None, _NOT_EMPTY] = None

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

    def group_of(self, column: str) -> GroupedColumns | None:
        """The group that a column belongs to."""
        return next((group for group in self.grouped if column in group.columns), None)

    @property
    def computed(self) -> tuple[ComputedColumn, ...]:
        """The rules by which columns are computed in the output."""
        return (*self.determined, *self.totals, *(self.levels or ()))

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

    def level_of(self, column: str) -> LevelColumn | None:
        """The level that a column is of another."""
        return next((rule for rule in self.levels or () if rule.column == column), None)

    def difference_of(self, column: str) -> DifferenceColumn | None:
        """The difference that a counted column is."""
        return next((rule for rule in self.difference or () if rule.column == column), None)


def check_structure(structure: Structure, columns: Mapping[str, Column]) -> None:
    """Refuse a structure that does not fit the declared columns."""
    ruled = [("forbidden", name) for combination in structure.forbidden for name in combination]
    ruled += [("applies", name) for rule in structure.applies or () for name in (*rule.where, *rule.columns)]
    ruled += [("ordered", name) for order in structure.ordered or () for name in order.columns]
    computed = _once((rule.computed for rule in structure.computed), "determined, difference, sum and levels")
    _once((rule.column for rule in structure.difference or ()), "difference")
    grouped = _once((name for group in structure.grouped for name in group.columns), "grouped")
    _once((group.name for group in structure.grouped), "grouped")
    sources = [name for rule in structure.computed for name in rule.sources]
    for name in (*computed, *grouped, *sources, *(name for _, name in ruled)):
        if name not in columns:
            raise ValueError(f"structure names {name!r}, which is not among columns")
    for group in structure.grouped:
        _check_group(group, columns, computed)
    check_computed(structure.computed, columns, grouped)
    for level in structure.levels or ():
        check_level(level, columns, computed, grouped)
    for key, name in ruled:
        _check_ruled(key, name, columns, {*computed, *grouped})
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
            f"structure.{key} names {name!r}, which rules cannot name. That is a column in a group (which lists its own "
            "combinations), one that is dropped or computed, such as a level (name the column that it is of), or one with "
            "private bounds"
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


def _check_group(group: GroupedColumns, columns: Mapping[str, Column], computed: tuple[str, ...]) -> None:
    if group.name in columns:
        raise ValueError(f"structure.grouped has the name {group.name!r}, which is a column's; give the group its own")
    for name in group.columns:
        if name in computed or not columns[name].public_cells:
            raise ValueError(
                f"group {group.name!r} has column {name!r}; only measured columns with one public value a cell can be grouped"
            )
    if any(len(texts) != len(group.columns) for texts in group.combinations):
        raise ValueError(f"group {group.name!r} needs one value a column in every combination")
    if len(set(group.labels)) < len(group.labels):
        raise ValueError(f"group {group.name!r} names a combination twice")
