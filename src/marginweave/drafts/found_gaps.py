"""Finds columns that have a value only where others have one, or a certain one: nested gaps. Private. DP: none."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from marginweave.base.arrays import Flags
from marginweave.drafts.chance import are_exceptions, draws_evidence, has_effect, needed_evidence
from marginweave.drafts.declared_cells import DeclaredTable
from marginweave.drafts.relations import Relation, SampledTable, quoted, quoted_list, shown_values

_MOST = 0.5
_FEW = 0.02
"""Values beside which no larger share of the cells is filled count as values beside which none is."""
LISTED = ("category", "boolean")
"""Types of columns on whose values a condition can be."""


@dataclass(frozen=True)
class GapCondition:
    """A condition on a column: that it has a value, or one of the `values`."""

    column: str
    missing: Sequence[str]
    """Texts that mean "no value" in the column."""
    values: Sequence[str] = ()
    excluded: Sequence[str] = ()
    """The other values of a column that is never without one; they are named where they are fewer."""

    def holds(self, table: DeclaredTable) -> Flags:
        """Return in which rows of a table it holds, shape (rows,)."""
        cells = table.read(self.column)
        if not self.values:
            return cells.filled
        places = [cells.labels.index(value) for value in self.values]
        return cells.filled & np.isin(cells.values, places)

    def follows_from(self, other: GapCondition) -> bool:
        """Return whether a condition on values holds wherever another one on values does."""
        return self.column == other.column and set(other.values) <= set(self.values)

    @property
    def where(self) -> Mapping[str, Any]:
        """Return the condition as a rule has it."""
        return {self.column: self._but or list(self.values)}

    @property
    def elsewhere(self) -> Mapping[str, Any]:
        """Return its opposite."""
        return {self.column: self._but["but"] if self._but else {"but": list(self.values)}}

    @property
    def summary(self) -> str:
        """Return it in words, behind "where", without the values."""
        return f"{quoted(self.column)} has {'certain values' if self.values else 'one'}"

    @property
    def words(self) -> str:
        """Return it in words, behind "where"."""
        if not self.values:
            return self.summary
        state = f"not {shown_values(self._but['but'])}" if self._but else shown_values(self.values)
        return f"{quoted(self.column)} is {state}"

    @property
    def _but(self) -> dict[str, list[str]]:
        """Return the condition by what it excludes; empty where what it includes is fewer."""
        if not self.values:
            return {"but": [self.missing[0]]}
        return {"but": list(self.excluded)} if 0 < len(self.excluded) < len(self.values) else {}


@dataclass(frozen=True)
class GapSearch:
    """A search for conditions under which columns have values: `both_ways` there and only there, else only there."""

    tables: SampledTable
    least_evidence: float
    both_ways: bool

    def best(self, conditions: Iterable[GapCondition], name: str) -> GapCondition | None:
        """Return the condition that holds in the fewest rows, of those under which a column has values; None without any."""
        checked = [self.checked(condition, name) for condition in conditions]
        true = [condition for condition in checked if condition is not None]
        return min(
            true, key=lambda condition: int(condition.holds(self.tables.table).sum()), default=None
        )

    def checked(self, condition: GapCondition, name: str) -> GapCondition | None:
        """Return the condition, with the values that all rows choose, if a column has values only under it; otherwise None.

        The sample says whether that is no chance, and all rows whether few break it.
        """
        in_sample = self._chosen(self.tables.sample, condition, name)
        if in_sample is None or not self._is_no_chance(in_sample, name):
            return None
        chosen = self._chosen(self.tables.table, condition, name)
        if chosen is None or not are_exceptions(self.broken(chosen, name), self.tables.table.rows):
            return None
        return chosen

    def broken(self, condition: GapCondition, name: str) -> int:
        """Return the number of rows of the table that break the relation."""
        return self._broken_in(self.tables.table, condition, name)

    def _broken_in(self, table: DeclaredTable, condition: GapCondition, name: str) -> int:
        holds = condition.holds(table)
        filled = table.read(name).filled
        return int((filled != holds if self.both_ways else filled & ~holds).sum())

    def _chosen(
        self, table: DeclaredTable, condition: GapCondition, name: str
    ) -> GapCondition | None:
        """Return the condition with those of its values beside which cells of a column are filled: most, or more than a few.

        None where that are all or no values, or cells without a value are among them: a list of values cannot say that.
        """
        if not condition.values:
            return condition
        cells = table.read(condition.column)
        filled = table.read(name).filled
        rows = np.bincount(cells.places, minlength=len(cells.labels) + 1)
        filled_rows = np.bincount(cells.places, weights=filled, minlength=len(cells.labels) + 1)
        has_values = filled_rows > (_MOST if self.both_ways else _FEW) * rows
        values = [label for label, has in zip(cells.labels, has_values[:-1], strict=True) if has]
        if has_values[-1] or not values or len(values) == len(cells.labels):
            return None
        excluded = [label for label in cells.labels if label not in values]
        return replace(condition, values=values, excluded=[] if rows[-1] else excluded)

    def _is_no_chance(self, condition: GapCondition, name: str) -> bool:
        """Return whether a column of the sample has far fewer values elsewhere than if it did not depend on the condition."""
        sample = self.tables.sample
        holds = condition.holds(sample)
        filled = sample.read(name).filled
        share_filled = float(filled.mean())
        share_elsewhere = 1 - float(holds.mean())
        outside = int((filled & ~holds).sum())
        evidence = max(
            draws_evidence(outside, int((~holds).sum()), share_filled),
            draws_evidence(outside, int(filled.sum()), share_elsewhere),
        )
        # The values were chosen among all lists of values.
        lists = len(sample.read(condition.column).labels) * math.log(2) if condition.values else 0
        expected = sample.rows * share_filled * share_elsewhere
        if self.both_ways:
            expected += sample.rows * (1 - share_filled) * (1 - share_elsewhere)
        broken = self._broken_in(sample, condition, name)
        return evidence >= self.least_evidence + lists and has_effect(broken, expected, sample.rows)


def find_gaps(tables: SampledTable, computed: Collection[str]) -> list[Relation]:
    """Return where columns that are not `computed` have values: there and only there (`applies`), or only there (`forbidden`).

    Columns that have their gaps in the same rows are looked at as one.
    """
    columns = tables.table.columns
    public = [
        name for name, column in columns.items() if column.public_cells and name not in computed
    ]
    gapped = [name for name in public if _has_gaps(tables, name)]
    least_evidence = needed_evidence(2 * len(public) * len(gapped))
    there_and_only_there = GapSearch(tables, least_evidence, both_ways=True)
    only_there = GapSearch(tables, least_evidence, both_ways=False)
    relations: list[Relation] = []
    only_beside: dict[int, Relation] = {}
    conditions: dict[int, GapCondition] = {}
    classes = _classes(there_and_only_there, gapped)
    for place, alike in enumerate(classes):
        first = alike[0]
        other_names = [name for name in public if name not in alike]
        listed = [on_values(tables, name) for name in other_names if columns[name].type in LISTED]
        condition = there_and_only_there.best(listed, first)
        if condition is not None:
            conditions[place] = condition
            relations.append(_applies(there_and_only_there, condition, alike))
            continue
        if len(alike) > 1:
            relations.append(_applies(there_and_only_there, _filled(tables, first), alike[1:]))
        condition = only_there.best(listed, first)
        if condition is not None:
            conditions[place] = condition
            only_beside[place] = _only(only_there, condition, first)
    nested = _nested(only_there, classes)
    for place in _implied(conditions, classes, nested):
        only_beside.pop(place, None)
    return [*relations, *only_beside.values(), *nested]


def _implied(
    conditions: Mapping[int, GapCondition], classes: Sequence[list[str]], nested: Sequence[Relation]
) -> Iterator[int]:
    """Yield the places of the classes whose condition follows from one on a class that they are inside of.

    An industry only with an income, and an income only for adults: so an industry only for adults.
    """
    place_of = {name: place for place, alike in enumerate(classes) for name in alike}
    around: dict[int, list[int]] = {place: [] for place in place_of.values()}
    for relation in nested:
        inner_name, outer_name = relation.columns
        around[place_of[inner_name]].append(place_of[outer_name])
    for place, condition in conditions.items():
        for outer_place in _reached(around, place)[1:]:
            outer = conditions.get(outer_place)
            if outer is not None and condition.follows_from(outer):
                yield place


def _nested(search: GapSearch, classes: Sequence[list[str]]) -> list[Relation]:
    """Return which columns have values only where another has one, without what follows from others of these.

    Of columns with the same gaps but for a few, the least filled one is inside, and the most filled one outside.
    """
    rows = {name: int(search.tables.table.read(name).filled.sum()) for name in chain(*classes)}
    inner = [min(alike, key=lambda name: rows[name]) for alike in classes]
    outer = [max(alike, key=lambda name: rows[name]) for alike in classes]
    around: dict[int, list[int]] = {}
    for place, name in enumerate(inner):
        around[place] = []
        for outer_place, outer_name in enumerate(outer):
            condition = _filled(search.tables, outer_name)
            if outer_place != place and search.checked(condition, name) is not None:
                around[place].append(outer_place)
    for place, outer_places in around.items():
        for outer_place in list(outer_places):
            outer_places.remove(outer_place)
            if outer_place not in _reached(around, place):
                outer_places.append(outer_place)
    return [
        _only(search, _filled(search.tables, outer[outer_place]), inner[place])
        for place, outer_places in around.items()
        for outer_place in sorted(outer_places)
    ]


def _reached(around: Mapping[int, Sequence[int]], start: int) -> list[int]:
    """Return the place of columns, and those of all that they are inside of, directly or through further ones."""
    reached = [start]
    for place in reached:
        reached += [outer_place for outer_place in around[place] if outer_place not in reached]
    return reached


def _has_gaps(tables: SampledTable, name: str) -> bool:
    filled = tables.sample.read(name).filled
    has_both = bool(filled.any()) and not bool(filled.all())
    return bool(tables.table.columns[name].missing) and has_both


def _filled(tables: SampledTable, name: str) -> GapCondition:
    """Return the condition that a column has a value."""
    return GapCondition(name, tables.table.columns[name].missing or ())


def on_values(tables: SampledTable, name: str) -> GapCondition:
    """Return a condition on the values of a column, of which each target chooses some."""
    column = tables.table.columns[name]
    return GapCondition(name, column.missing or (), column.labels)


def _classes(search: GapSearch, gapped: Iterable[str]) -> list[list[str]]:
    """Return the columns in groups that have their gaps in the same rows, but for a few; most groups have one column."""
    classes: list[list[str]] = []
    for name in gapped:
        for alike in classes:
            if search.checked(_filled(search.tables, alike[0]), name) is not None:
                alike.append(name)
                break
        else:
            classes.append([name])
    return classes


def _applies(search: GapSearch, condition: GapCondition, names: Sequence[str]) -> Relation:
    verb = "has a value" if len(names) == 1 else "have values"
    return Relation(
        key="applies",
        entries=({"columns": list(names), "where": condition.where},),
        columns=(*names, condition.column),
        words=f"{quoted_list(names)} {verb} where {condition.words}, and nowhere else",
        summary=f"{quoted_list(names)} {verb} where {condition.summary}, and nowhere else",
        broken=max(search.broken(condition, name) for name in names),
        rows=search.tables.table.rows,
    )


def _only(search: GapSearch, condition: GapCondition, name: str) -> Relation:
    return Relation(
        key="forbidden",
        entries=({**condition.elsewhere, **_filled(search.tables, name).where},),
        columns=(name, condition.column),
        words=f"{quoted(name)} has a value only where {condition.words}",
        summary=f"{quoted(name)} has a value only where {condition.summary}",
        broken=search.broken(condition, name),
        rows=search.tables.table.rows,
    )
