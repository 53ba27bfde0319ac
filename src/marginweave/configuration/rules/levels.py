"""Coarser levels of columns that are counted: an industry's sector, a county's state, bands of age."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import ClassVar, TypeAlias

from marginweave.configuration.columns import BooleanColumn, Category, Column, NumberColumn
from marginweave.configuration.rules.computed import DeterminedColumn
from marginweave.configuration.values import listed

Labels: TypeAlias = tuple[str | None, ...]


class LevelColumn(DeterminedColumn):
    """A coarser level of a counted column: computed from it in every row and record, and counted in its place in larger sets.

    The `mapping` has values of `by`, of which a number stands for its bin, or labels of its bins.
    """

    key: ClassVar[str] = "levels"

    def codes(self, columns: Mapping[str, Column]) -> tuple[int, ...]:
        """The code for each code of `by`, the missing one last."""
        column, by = columns[self.column], columns[self.by]
        missing = len(column.labels)
        found = [missing if self.default is None else column.code_of(self.default)] * len(by.labels) + [missing]
        for text, value in self.mapping.items():
            found[_code(by, text)] = column.code_of(value)
        return tuple(found)

    def leaves_gaps(self, columns: Mapping[str, Column]) -> bool:
        """Whether a value of `by` has none."""
        return len(columns[self.column].labels) in self.codes(columns)[:-1]

    def excluded(
        self, columns: Mapping[str, Column], counted: Mapping[str, tuple[int, bool]]
    ) -> Iterator[tuple[tuple[int, Labels], tuple[int, Labels]]]:
        """For each of its values the labels of `by` that have it, and beside them all other values; where it is counted.

        `counted` has the place of each counted column, and whether it can be missing.
        """
        if self.column not in counted:
            return
        (fine, lacks), (coarse, gaps) = counted[self.by], counted[self.column]
        given = (*columns[self.by].labels, *([None] if lacks else []))
        every = (*columns[self.column].labels, *([None] if gaps else []))
        codes = self.codes(columns)[: len(given)]
        for own in sorted(set(codes)):
            mine = tuple(label for label, code in zip(given, codes, strict=True) if code == own)
            yield (fine, mine), (coarse, tuple(label for code, label in enumerate(every) if code != own))


def _code(by: Column, text: str) -> int:
    """The code of a value or label, or of the bin of a number; -1 for none."""
    code = by.code_of(text)
    if code < 0 and isinstance(by, NumberColumn):
        with suppress(ValueError):
            number, edges = float(text), by.edges
            return min(bisect_right(edges, number), len(edges) - 1) - 1 if edges[0] <= number <= edges[-1] else -1
    return code


def check_level(rule: LevelColumn, columns: Mapping[str, Column], computed: Collection[str]) -> None:
    """Refuse a level that does not fit the declared columns, which are there; raises ValueError."""
    column, by = columns[rule.column], columns[rule.by]
    if not isinstance(column, Category | BooleanColumn) or not column.public_cells:
        raise ValueError(
            f"structure.levels has {rule.column!r}, which must be a category or boolean with public values"
        )
    if rule.by in computed or not by.public_cells:
        raise ValueError(
            f"structure.levels has {rule.column!r} by {rule.by!r}, which must be a separate counted column with public "
            "values, and no level itself"
        )
    for value in (*rule.mapping.values(), *(() if rule.default is None else (rule.default,))):
        if column.code_of(value) < 0:
            raise ValueError(f"structure.levels gives {rule.column!r} the value {value!r}, which it does not declare")
    given: dict[int, str] = {}
    for text, value in rule.mapping.items():
        if (code := _code(by, text)) < 0:
            raise ValueError(f"structure.levels maps {text!r}, which is no value or bin of {rule.by!r}")
        if column.code_of(rule.mapping[given.setdefault(code, text)]) != column.code_of(value):
            raise ValueError(
                f"structure.levels maps {given[code]!r} and {text!r}, which are one value or bin of {rule.by!r}, to two "
                "values; keep one"
            )
    _check_bins(rule, by)
    _check_whole(rule, columns)


def _check_whole(rule: LevelColumn, columns: Mapping[str, Column]) -> None:
    """Every value has a level, and every level a value, but what is said."""
    column, by = columns[rule.column], columns[rule.by]
    assert isinstance(column, Category | BooleanColumn)
    unused = sorted({*range(len(column.labels))} - {*rule.codes(columns)})
    if unused:
        raise ValueError(
            f"structure.levels has {rule.column!r}, of which no value of {rule.by!r} has "
            f"{listed([column.labels[code] for code in unused])}; leave out what nothing has"
        )
    gaps = [label for label, code in zip(by.labels, rule.codes(columns), strict=False) if code == len(column.labels)]
    if gaps and not column.missing:
        raise ValueError(
            f"structure.levels gives no {rule.column!r} to {listed(gaps)} of {rule.by!r}; map them, give a default, or declare "
            f"missing texts of {rule.column!r}"
        )


def _check_bins(rule: LevelColumn, by: Column) -> None:
    """One number stands for its bin; several are taken for all that are meant, and must be all that there are."""
    if not isinstance(by, NumberColumn):
        return
    named: Counter[int] = Counter(_code(by, text) for text in rule.mapping if by.code_of(text) < 0)
    for code, number in named.items():
        first, last = by.grid(code)
        if 1 < number < last - first + 1:
            raise ValueError(
                f"structure.levels names {number} numbers of the bin {by.bin_labels[code]} of {rule.by!r}, which has "
                f"{last - first + 1}; name the bin, or end a bin where the level does"
            )
