"""Attributes that are counted, into which columns are encoded, and the combinations of values that cannot be.

Structural zeros must leave a record possible in which every column that is never missing has a value.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias, TypeVar

from marginweave.configuration.columns import Column, Texts
from marginweave.configuration.columns.base import MISSING, NOT_DECLARED
from marginweave.configuration.rules.conditions import Condition, labels_of, labels_too_low
from marginweave.configuration.rules.record_search import (
    ContradictionError,
    UndecidedError,
    find_record,
)
from marginweave.configuration.rules.structure import AppliesRule, Structure
from marginweave.configuration.values import ValueMatcher

MAX_FORBIDDEN = 100_000

Excluded: TypeAlias = tuple[int, tuple[str | None, ...]]
Forbidden: TypeAlias = tuple[Excluded, ...]
"""Combinations that cannot be, of any of the labels of each attribute; None is a missing value."""
ForbiddenCodes: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
_Value = TypeVar("_Value", int, str | None)


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One counted attribute: a measured column, or a value of a set.

    `column`: the column that it is read from.
    `labels`: the public values, empty for a private domain (`private`).
    `optional`: whether a record can lack a value. `imputed`: whether a drawn value then takes its place.
    `undeclared`: whether the last code, behind that of a missing value where there is one, means a cell that is not as
    declared (`Sections.with_undeclared`).
    `width`: the most values that one record has, above 1 only for sets (`is_set`).
    `of_set`: whether it is one value of a set, counted by itself as `column=value`, which a record has or lacks.
    `bins`: how many of the first labels are bins of a number or date, from low to high.
    """

    name: str
    column: str
    labels: tuple[str, ...]
    private: bool = False
    optional: bool = True
    imputed: bool = False
    undeclared: bool = False
    width: int = 1
    is_set: bool = False
    of_set: bool = False
    bins: int = 0

    @property
    def lacks_values(self) -> bool:
        """Return whether a record can lack a value, for whatever reason."""
        return self.optional or self.undeclared

    @property
    def gaps(self) -> tuple[str, ...]:
        """Meanings of the codes behind those of the values, in order, in the words that readers see."""
        missing = (MISSING,) if self.optional else ()
        return (*missing, NOT_DECLARED) if self.undeclared else missing


def most_combinations(widths: Iterable[int], length: int) -> int:
    """Return how many combinations of `length` a record can hold that has at most `widths` values of the attributes.

    A combination has at most one value of an attribute, so it is the elementary symmetric polynomial
    e_k(v_1, …, v_m) of the widths: e_k of the first j is e_k of the first j - 1 plus v_j times their e_{k-1}. Where no
    width is above 1, it is C(m, k).
    """
    counts = [1] + [0] * length
    for width in widths:
        for k in range(length, 0, -1):
            counts[k] += width * counts[k - 1]
    return counts[length]


def forbidden_labels(
    structure: Structure,
    columns: Mapping[str, Column],
    attributes: Sequence[Attribute],
    missing: Callable[[str], Sequence[str]],
) -> tuple[Forbidden, ...]:
    """Return the combinations that the rules of `structure` exclude.

    `missing` returns the texts that mean "no value" in a column.

    Raises:
        ValueError: a rule names a text that is no value of its column.
    """
    rules = _Rules(columns=columns, attributes=attributes, missing=missing)
    boxes = list[Forbidden]()
    for entry in structure.forbidden:
        boxes += rules.listed(entry)
    for universe in structure.applies or ():
        boxes += rules.outside(universe)
    for (low, high), steps in structure.orders.items():
        boxes += rules.out_of_order(low, high, steps)
    for difference in structure.difference or ():
        boxes += rules.undated(difference.since, difference.column)
    return tuple(filter(_has_combinations, boxes))


def _has_combinations(box: Iterable[tuple[int, Sequence[_Value]]]) -> bool:
    return all(values for _, values in box)


def without_gaps(forbidden: Iterable[Forbidden], places: Collection[int]) -> tuple[Forbidden, ...]:
    """Return the combinations without those of a missing value of the attributes at these places."""
    boxes = list[Forbidden]()
    for box in forbidden:
        parts = [
            (place, _without_none(labels) if place in places else labels) for place, labels in box
        ]
        if _has_combinations(parts):
            boxes.append(tuple(parts))
    return tuple(boxes)


def _without_none(labels: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(label for label in labels if label is not None)


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """The attributes and columns that rules are about, and the combinations of labels that each rule excludes."""

    columns: Mapping[str, Column]
    attributes: Sequence[Attribute]
    missing: Callable[[str], Sequence[str]]

    @cached_property
    def _places(self) -> dict[str, int]:
        """Places of the attributes that are whole columns, by column."""
        return {a.column: place for place, a in enumerate(self.attributes) if not a.of_set}

    @cached_property
    def _set_places(self) -> dict[tuple[str, str | None], int]:
        """Places of the attributes that are values of sets, by column and value."""
        return {
            (a.column, a.labels[0]): place for place, a in enumerate(self.attributes) if a.of_set
        }

    def listed(self, entry: Mapping[str, Condition | Texts]) -> Iterator[Forbidden]:
        """Yield the combinations of an entry of `forbidden`, one for each value of a set that is counted by values."""
        choices: list[list[Excluded]] = []
        for name, values in entry.items():
            if name in self._places:
                choices.append([self._part(name, values)])
            else:
                labels = labels_of(name, self.columns[name], values, ())
                choices.append(
                    [(self._set_places[name, text], (text,)) for text in labels if text is not None]
                )
        return itertools.product(*choices)

    def outside(self, universe: AppliesRule) -> Iterator[Forbidden]:
        """Yield the combinations that an `applies` rule excludes.

        Where its columns apply they do not have the value that they have elsewhere; elsewhere they have no other value.
        """
        inside = [self._part(name, values) for name, values in universe.where.items()]
        for name in universe.columns:
            text = universe.otherwise
            optional = self.attributes[self._places[name]].optional
            if text is None and not (optional and self.missing(name)):
                lacks = "has no text for the missing value" if optional else "is never missing"
                raise ValueError(
                    f"structure.applies names {name!r}, which {lacks}; give otherwise: one of its values"
                )
            if text is None:
                text = self.missing(name)[0]
            elsewhere = self._part(name, (text,))
            yield (*inside, elsewhere)
            for part in inside:
                yield self._complement(part), self._complement(elsewhere)

    def out_of_order(self, low: str, high: str, steps: int) -> Iterator[Forbidden]:
        """Yield labels of column `low` with the labels of `high` that hold nothing at least `steps` steps above them."""
        first = self.columns[low]
        distance = steps * first.step
        least = list[tuple[str, Fraction]]()
        for label, limits in zip(first.labels, first.label_limits, strict=True):
            if limits:
                least.append((label, limits[0] + distance))
        for low_labels, high_labels in labels_too_low(least, self.columns[high]):
            yield (self._places[low], low_labels), (self._places[high], high_labels)

    def undated(self, since: str, column: str) -> Iterator[Forbidden]:
        """Yield every value of a time that has passed `since` a moment, together with a missing moment."""
        moment = self._places[since]
        if self.attributes[moment].optional:
            yield (moment, (None,)), (self._places[column], self.columns[column].labels)

    def _part(self, name: str, values: Condition | Texts) -> Excluded:
        """Return the attribute of a column, and its labels that meet a condition or are listed.

        Raises:
            ValueError: the column never or always meets the condition, or cannot have a value that is listed.
        """
        place = self._places[name]
        attribute = self.attributes[place]
        labels = labels_of(name, self.columns[name], values, self.missing(name))
        if isinstance(values, Condition):
            possible = labels if attribute.optional else _without_none(labels)
            is_always = len(possible) == len(possible_labels(attribute))
            if attribute.private or is_always or not possible:
                why = (
                    "has a private domain"
                    if attribute.private
                    else f"{'always' if possible else 'never'} meets it"
                )
                raise ValueError(
                    f"structure has a condition on column {name!r}, which {why}; list values, or leave it out"
                )
            return place, possible
        if None in labels and (attribute.private or not attribute.optional):
            why = "has a private domain" if attribute.private else "is never missing"
            raise ValueError(f"structure names the missing value of column {name!r}, which {why}")
        return place, labels

    def _complement(self, part: Excluded) -> Excluded:
        """Return the attribute of `part` with all of its other labels."""
        place, labels = part
        possible = possible_labels(self.attributes[place])
        return place, tuple(label for label in possible if label not in labels)


def possible_labels(attribute: Attribute) -> tuple[str | None, ...]:
    """Return the labels of an attribute, and None where it can be missing."""
    return (*attribute.labels, None) if attribute.optional else attribute.labels


def forbidden_codes(
    forbidden: Iterable[Forbidden], labels: Sequence[Sequence[str]]
) -> tuple[ForbiddenCodes, ...]:
    """Return the excluded combinations as codes over a domain, without those of values that were not released there.

    DP: post-processing of the released labels.
    """
    code_tables = dict[int, dict[str, int]]()
    boxes = list[ForbiddenCodes]()
    for box in forbidden:
        coded = []
        for attribute, texts in box:
            if attribute not in code_tables:
                code_tables[attribute] = {
                    label: code for code, label in enumerate(labels[attribute])
                }
            coded.append(
                (attribute, _codes_of_texts(texts, code_tables[attribute], len(labels[attribute])))
            )
        if _has_combinations(coded):
            boxes.append(tuple(coded))
    return tuple(dict.fromkeys(boxes))


def _codes_of_texts(
    texts: Iterable[str | None], codes: Mapping[str, int], missing: int
) -> tuple[int, ...]:
    """Return the codes of values that these texts spell; `missing` is the code for None."""
    matched = list[int]()
    for text in texts:
        if text is None:
            matched.append(missing)
        elif text in codes:
            matched.append(codes[text])
        else:
            spelled = ValueMatcher([text])
            matched += [codes[label] for label in codes if spelled.index(label) >= 0]
    return tuple(dict.fromkeys(matched))


def combinations_of(boxes: Iterable[ForbiddenCodes]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return each combination once, as pairs (attribute, code) in increasing order of the attribute."""
    return tuple(dict.fromkeys(combination for box in boxes for combination in _unfold(box)))


def _unfold(
    box: Iterable[tuple[int, Sequence[_Value]]],
) -> Iterator[tuple[tuple[int, _Value], ...]]:
    """Yield each combination of a box, as pairs (attribute, value) in increasing order of the attribute."""
    choices = list[list[tuple[int, _Value]]]()
    for attribute, values in sorted(box):
        choices.append([(attribute, value) for value in values])
    return itertools.product(*choices)


def combinations_by_places(
    boxes: Iterable[Forbidden],
) -> dict[tuple[int, ...], set[tuple[str | None, ...]]]:
    """Return the excluded combinations of labels by the attributes that they belong to, as `find_record` takes them."""
    rules: defaultdict[tuple[int, ...], set[tuple[str | None, ...]]] = defaultdict(set)
    for box in boxes:
        places = tuple(sorted(place for place, _ in box))
        for combination in _unfold(box):
            rules[places].add(tuple(label for _, label in combination))
    return dict(rules)


def most_forbidden(forbidden: Iterable[Forbidden]) -> int:
    """Return the number of excluded combinations; a combination that several rules exclude counts several times."""
    total = 0
    for box in forbidden:
        total += math.prod(len(labels) for _, labels in box)
    return total


def check_records(attributes: Sequence[Attribute], forbidden: Sequence[Forbidden]) -> None:
    """Refuse forbidden combinations that leave no complete record, which no table could be released under.

    The search is exact; what it does not decide in time is accepted. A record can escape every rule that has a column with a
    private domain, or a column that can be missing unless some rule forbids that.

    Raises:
        ValueError: no record can hold a value of each of the columns, which are named.
    """
    if most_forbidden(forbidden) > MAX_FORBIDDEN:
        return
    needed = {place for box in forbidden for place, labels in box if None in labels}
    escapes = {
        place
        for place, attribute in enumerate(attributes)
        if attribute.private or (attribute.optional and place not in needed)
    }
    rules = combinations_by_places(
        box for box in forbidden if escapes.isdisjoint(place for place, _ in box)
    )
    values = {place: possible_labels(attributes[place]) for places in rules for place in places}
    with suppress(UndecidedError):
        try:
            find_record(values, rules)
        except ContradictionError as contradiction:
            names = ", ".join(attributes[place].name for place in contradiction.places)
            raise ValueError(
                f"the rules of structure leave no combination of the values of columns {names}: they contradict each other"
            ) from None
