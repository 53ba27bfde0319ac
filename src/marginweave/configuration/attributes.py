"""What is counted: the attributes into which columns are encoded, and what can never stand together in them.

Structural zeros must leave a record possible in which every column that is never missing has a value.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from marginweave.configuration.columns import Column, Texts
from marginweave.configuration.columns.base import MISSING, NOT_DECLARED
from marginweave.configuration.rules.conditions import Condition, label_limits, labels_of, labels_too_low, step_of
from marginweave.configuration.rules.record_search import ContradictionError, UndecidedError, find_record
from marginweave.configuration.rules.structure import AppliesRule, Structure
from marginweave.configuration.values import ValueMatcher

MAX_FORBIDDEN = 100_000

Excluded: TypeAlias = tuple[int, tuple[str | None, ...]]
Forbidden: TypeAlias = tuple[Excluded, ...]
"""Combinations that cannot be, of any of the labels of each attribute; None is a missing value."""
ForbiddenCodes: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One counted attribute: a measured column, or a value of a set.

    `column` is the one that it is read from; `labels` the public values, empty for a private domain (`private`); `optional`
    whether a record can lack a value, `imputed` whether a draw then takes its place; `width` the most values that one record
    has, above 1 for sets alone (`is_set`). `undeclared`: the last code, behind that of a missing value where there is one,
    stands for a cell that is not as declared (`Sections.with_undeclared`). `bins`: so many of the first labels are bins of a
    number or date, from low to high. `of_set`: one value of a set, counted by itself as `column=value`, which a record has or
    lacks.
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
        """Whether a record can lack a value, for whatever reason."""
        return self.optional or self.undeclared

    @property
    def gaps(self) -> tuple[str, ...]:
        """What the codes behind those of the values stand for, in their order, as readers are shown it."""
        missing = (MISSING,) if self.optional else ()
        return (*missing, NOT_DECLARED) if self.undeclared else missing


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
    return tuple(box for box in found if all(labels for _, labels in box))


def without_gaps(forbidden: Iterable[Forbidden], places: Collection[int]) -> tuple[Forbidden, ...]:
    """The same combinations, but none of a missing value of the attributes at these places."""
    found = list[Forbidden]()
    for box in forbidden:
        kept = [(a, tuple(x for x in labels if x is not None or a not in places)) for a, labels in box]
        if all(labels for _, labels in kept):
            found.append(tuple(kept))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """What a rule excludes, in labels of attributes."""

    columns: Mapping[str, Column]
    attributes: Sequence[Attribute]
    missing: Callable[[str], Sequence[str]]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {a.column: j for j, a in enumerate(self.attributes) if not a.of_set}

    @cached_property
    def _of_sets(self) -> dict[tuple[str, str | None], int]:
        return {(a.column, a.labels[0]): j for j, a in enumerate(self.attributes) if a.of_set}

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
            optional = self.attributes[self._places[name]].optional
            if text is None and not (optional and self.missing(name)):
                lacks = "has no text for the missing value" if optional else "is never missing"
                raise ValueError(f"structure.applies names {name!r}, which {lacks}; give otherwise: one of its values")
            alone = self._asked(name, (self.missing(name)[0] if text is None else text,))
            yield (*inside, alone)
            yield from ((self._others(part), self._others(alone)) for part in inside)

    def out_of_order(self, low: str, high: str, steps: int) -> Iterator[Forbidden]:
        """For labels of the first column those of the second that hold nothing so many steps above them."""
        first = self.columns[low]
        ends = zip(first.labels, label_limits(first), strict=True)
        least = [(label, limits[0] + steps * step_of(first)) for label, limits in ends if limits]
        for below in labels_too_low(least, self.columns[high]):
            yield tuple(zip((self._places[low], self._places[high]), below, strict=True))

    def undated(self, since: str, column: str) -> Iterator[Forbidden]:
        """Nothing has passed since a moment that is missing."""
        if self.attributes[self._places[since]].optional:
            yield (self._places[since], (None,)), (self._places[column], self.columns[column].labels)

    def _asked(self, name: str, what: Condition | Texts) -> Excluded:
        place = self._places[name]
        attribute, labels = self.attributes[place], labels_of(name, self.columns[name], what, self.missing(name))
        if isinstance(what, Condition):
            held = tuple(label for label in labels if label is not None or attribute.optional)
            if attribute.private or len(held) in (0, len(attribute.labels) + attribute.optional):
                why = "has a private domain" if attribute.private else f"{'always' if held else 'never'} meets it"
                raise ValueError(
                    f"structure has a condition on column {name!r}, which {why}; list values, or leave it out"
                )
            return place, held
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
    places = dict[int, dict[str, int]]()

    def codes(attribute: int, text: str | None) -> list[int]:
        if text is None:
            return [len(labels[attribute])]
        if attribute not in places:
            places[attribute] = {label: code for code, label in enumerate(labels[attribute])}
        own = places[attribute]
        if text in own:
            return [own[text]]
        spelled = ValueMatcher([text])
        return [own[label] for label in own if spelled.index(label) >= 0]

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
                f"the rules of structure leave no combination of the values of columns {names}: they contradict each other"
            ) from None
