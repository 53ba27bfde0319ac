"""What is counted: the attributes into which columns and groups are encoded, and what can never stand together in them.

Structural zeros must leave a record possible in which every column that is never missing has a value.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

from marginweave.schemas.configuration.columns import Column, Texts
from marginweave.schemas.configuration.conditions import Condition, label_limits, labels_of, step_of
from marginweave.schemas.configuration.structure import AppliesRule, Structure
from marginweave.schemas.configuration.values import ValueMatcher

MAX_FORBIDDEN = 100_000

Excluded: TypeAlias = tuple[int, tuple[str | None, ...]]
Forbidden: TypeAlias = tuple[Excluded, ...]
"""Combinations that cannot be, of any of the labels of each attribute, in the order of the rule; None is a missing value."""
ForbiddenCodes: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One counted attribute: a measured column, or a group of columns that is released as one.

    `columns` are the source columns, in the order of the group; `labels` the public values, empty for a private domain
    (`private`); `optional` whether a record can lack a value, `imputed` whether a draw then takes its place; `width` the most
    values that one record has, above 1 for sets alone (`is_set`). `of_set`: one value of a set, counted by itself as
    `column=value`, which a record has or lacks.
    """

    name: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    private: bool = False
    optional: bool = True
    imputed: bool = False
    width: int = 1
    is_set: bool = False
    of_set: bool = False


def most_combinations(widths: Iterable[int], length: int) -> int:
    """How many combinations of `length` a record can hold that has at most so many values of each attribute.

    At most one value an attribute stands in a combination, so it is the elementary symmetric polynomial
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
    """What rules exclude; `missing` has the texts for "no value" in a column. Raises ValueError for what is no value of one."""
    rules = _Rules(columns=columns, attributes=attributes, missing=missing)
    found = [box for entry in structure.forbidden for box in rules.listed(entry)]
    found += [box for universe in structure.applies or () for box in rules.outside(universe)]
    for (low, high), steps in structure.orders.items():
        found += rules.out_of_order(low, high, steps)
    found += [box for rule in structure.difference or () for box in rules.undated(rule.since, rule.column)]
    counted = {attribute.name: (place, attribute.optional) for place, attribute in enumerate(attributes)}
    found += [box for level in structure.levels or () for box in level.excluded(columns, counted)]
    return tuple(box for box in found if all(labels for _, labels in box))


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """What a rule excludes, in labels of attributes."""

    columns: Mapping[str, Column]
    attributes: Sequence[Attribute]
    missing: Callable[[str], Sequence[str]]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: j for j, a in enumerate(self.attributes) if not a.of_set for name in a.columns}

    @cached_property
    def _of_sets(self) -> dict[tuple[str, str | None], int]:
        return {(a.columns[0], a.labels[0]): j for j, a in enumerate(self.attributes) if a.of_set}

    def listed(self, entry: Mapping[str, Condition | Texts]) -> Iterator[Forbidden]:
        """The combinations of an entry of `forbidden`; values of a set that are counted by themselves are told apart."""
        choices: list[list[Excluded]] = []
        for name, what in entry.items():
            if name in self._places:
                choices.append([self._asked(name, what)])
            else:
                values = labels_of(name, self.columns[name], what, ())
                choices.append([(self._of_sets[name, value], (value,)) for value in values if value is not None])
        return itertools.product(*choices)

    def outside(self, universe: AppliesRule) -> Iterator[Forbidden]:
        """Where columns apply what they are elsewhere, and elsewhere all else."""
        inside = [self._asked(name, what) for name, what in universe.where.items()]
        for name in universe.columns:
            text = universe.otherwise
            if text is None and not self.missing(name):
                raise ValueError(
                    f"structure.applies names {name!r}, which has no text for the missing value; give otherwise"
                )
            alone = self._asked(name, (self.missing(name)[0] if text is None else text,))
            yield (*inside, alone)
            yield from ((self._others(part), self._others(alone)) for part in inside)

    def out_of_order(self, low: str, high: str, steps: int) -> Iterator[Forbidden]:
        """For each label of the first column those of the second that hold nothing so many steps above it."""
        first, second = self.columns[low], self.columns[high]
        least = steps * step_of(first)
        ends = zip(second.labels, label_limits(second), strict=True)
        last = [(label, limits[1]) for label, limits in ends if limits]
        for label, limits in zip(first.labels, label_limits(first), strict=True):
            if limits is not None:
                below = tuple(text for text, end in last if end < limits[0] + least)
                yield (self._places[low], (label,)), (self._places[high], below)

    def undated(self, since: str, column: str) -> Iterator[Forbidden]:
        """Nothing has passed since a moment that is missing."""
        if self.attributes[self._places[since]].optional:
            yield (self._places[since], (None,)), (self._places[column], self.columns[column].labels)

    def _asked(self, name: str, what: Condition | Texts) -> Excluded:
        place = self._places[name]
        attribute, labels = self.attributes[place], labels_of(name, self.columns[name], what, self.missing(name))
        if isinstance(what, Condition):
            return place, tuple(label for label in labels if label is not None or attribute.optional)
        if None in labels and (attribute.private or not attribute.optional):
            why = "has a private domain" if attribute.private else "is never missing"
            raise ValueError(f"structure names the missing value of column {name!r}, which {why}")
        return place, labels

    def _others(self, part: Excluded) -> Excluded:
        attribute = self.attributes[part[0]]
        every = (*attribute.labels, *([None] if attribute.optional else []))
        return part[0], tuple(label for label in every if label not in part[1])


def forbidden_codes(forbidden: Iterable[Forbidden], labels: Sequence[Sequence[str]]) -> tuple[ForbiddenCodes, ...]:
    """What is excluded, as codes over a domain; what was not released there needs no rule.

    DP: post-processing of the released labels.
    """
    places = [{label: code for code, label in enumerate(values)} for values in labels]

    def codes(attribute: int, text: str | None) -> list[int]:
        if text is None:
            return [len(labels[attribute])]
        own, spelled = places[attribute], ValueMatcher([text])
        return [own[text]] if text in own else [own[label] for label in own if spelled.index(label) >= 0]

    found = []
    for box in forbidden:
        coded = tuple((a, tuple(dict.fromkeys(c for text in texts for c in codes(a, text)))) for a, texts in box)
        if all(chosen for _, chosen in coded):
            found.append(coded)
    return tuple(dict.fromkeys(found))


def combinations_of(boxes: Iterable[ForbiddenCodes]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Each combination by itself, as (attribute, code) in increasing order of the attribute."""
    each = (itertools.product(*([(a, code) for code in codes] for a, codes in sorted(box))) for box in boxes)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(each)))


def most_forbidden(forbidden: Iterable[Forbidden]) -> int:
    """How many combinations are excluded, those counted again that several rules exclude."""
    return sum(math.prod(len(labels) for _, labels in box) for box in forbidden)


MAX_STEPS = 100_000

Value = TypeVar("Value", bound=Hashable)
Rules: TypeAlias = Mapping[tuple[int, ...], set[tuple[Value, ...]]]
"""Forbidden values by the attributes that they belong to."""


class ContradictionError(ValueError):
    """Rules that no record keeps; `places` are attributes between which they contradict each other."""

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__(f"rules leave no values of attributes {', '.join(map(str, places))}")
        self.places = tuple(places)


class UndecidedError(ValueError):
    """A search that was not over after `MAX_STEPS` steps."""


def check_records(attributes: Sequence[Attribute], forbidden: Sequence[Forbidden]) -> None:
    """Refuse forbidden combinations that leave no complete record, which no table could be released under.

    The search is exact; what it does not decide in time is accepted. A rule that touches a column that can be missing, unless
    some rule forbids that, or whose values are not known, is always escaped.

    Raises:
        ValueError: no record can hold a value of each of the columns, which are named.
    """
    if most_forbidden(forbidden) > MAX_FORBIDDEN:
        return
    needed = {place for box in forbidden for place, labels in box if None in labels}
    rules: defaultdict[tuple[int, ...], set[tuple[str | None, ...]]] = defaultdict(set)
    each = (
        itertools.product(*([(place, label) for label in labels] for place, labels in sorted(box))) for box in forbidden
    )
    for combination in itertools.chain.from_iterable(each):
        places = tuple(place for place, _ in combination)
        escaped = (a.private or (a.optional and place not in needed) for place in places for a in [attributes[place]])
        if not any(escaped):
            rules[places].add(tuple(label for _, label in combination))
    values: dict[int, tuple[str | None, ...]] = {
        place: (*attributes[place].labels, *([None] if attributes[place].optional else []))
        for places in rules
        for place in places
    }
    with suppress(UndecidedError):
        try:
            find_record(values, rules)
        except ContradictionError as contradiction:
            names = ", ".join(attributes[place].name for place in contradiction.places)
            raise ValueError(
                f"structure.forbidden leaves no combination of the values of columns {names}, which are never missing"
            ) from None


def find_record(values: Mapping[int, Sequence[Value]], rules: Rules[Value]) -> dict[int, Value]:
    """A value of every attribute that rules tie together, such that no rule is broken; early ones of `values` are preferred.

    Raises:
        ContradictionError: there is no such record.
        UndecidedError: none is found, and none excluded, in `MAX_STEPS` steps a part of tied attributes.
    """
    for places, forbidden in rules.items():
        if len(forbidden) == math.prod(len(values[place]) for place in places):
            raise ContradictionError(places)
    found: dict[int, Value] = {}
    undecided = False
    for part in tied_parts(rules):
        try:
            found |= _search(values, sorted(part, key=lambda place: (len(values[place]), place)), rules)
        except UndecidedError:
            undecided = True
    if undecided:
        raise UndecidedError(f"{MAX_STEPS} steps decide nothing")
    return found


def tied_parts(groups: Iterable[Sequence[int]]) -> list[set[int]]:
    """Attributes that groups of them tie together, directly or through others: each part stands by itself."""
    parts: list[set[int]] = []
    for places in groups:
        touched = [part for part in parts if not part.isdisjoint(places)]
        parts = [*(part for part in parts if part.isdisjoint(places)), set(places).union(*touched)]
    return parts


def _search(values: Mapping[int, Sequence[Value]], order: Sequence[int], rules: Rules[Value]) -> dict[int, Value]:
    """Backtracking in `order`; a rule is checked where the last of its attributes gets its value."""
    turn = {place: depth for depth, place in enumerate(order)}
    ending: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    for places in rules:
        if places[0] in turn:
            ending[max(turn[place] for place in places)].append(places)
    chosen: dict[int, Value] = {}

    def candidates(depth: int) -> Iterator[Value]:
        for value in values[order[depth]]:
            chosen[order[depth]] = value
            if all(tuple(chosen[place] for place in places) not in rules[places] for places in ending[depth]):
                yield value

    open_choices = [candidates(0)]
    for _ in range(MAX_STEPS):
        if next(open_choices[-1], None) is None:
            open_choices.pop()
            if not open_choices:
                raise ContradictionError(sorted(order))
        elif len(open_choices) == len(order):
            return chosen
        else:
            open_choices.append(candidates(len(open_choices)))
    raise UndecidedError(f"{MAX_STEPS} steps decide nothing")
