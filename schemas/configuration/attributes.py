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
from typing import TypeAlias, TypeVar

from marginweave.schemas.configuration.columns import Column
from marginweave.schemas.configuration.structure import Structure
from marginweave.schemas.configuration.values import ValueMatcher, listed

MAX_FORBIDDEN = 100_000

Forbidden: TypeAlias = tuple[tuple[int, str | None], ...]
"""One combination that cannot be, as (attribute, label) in increasing order of the attribute; None is a missing value."""


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
    """Every forbidden combination, lists multiplied out; `missing` gives the texts that mean "no value" in a column.

    Raises:
        ValueError: a value that the column does not have, or too many combinations.
    """
    whole = {name: j for j, a in enumerate(attributes) if not a.of_set for name in a.columns}
    apart = {(a.columns[0], a.labels[0]): j for j, a in enumerate(attributes) if a.of_set}
    found: list[Forbidden] = []
    for entry in structure.forbidden:
        if math.prod(len(texts) for texts in entry.values()) + len(found) > MAX_FORBIDDEN:
            raise ValueError(f"structure.forbidden must have at most {MAX_FORBIDDEN} combinations")
        choices: list[list[tuple[int, str | None]]] = []
        for name, texts in entry.items():
            if name in whole and not columns[name].is_set:
                optional, absent = attributes[whole[name]].optional, ValueMatcher(missing(name))
                labels = [None if absent.index(t) >= 0 else _label(name, columns[name], t) for t in texts]
                if None in labels and (not optional or columns[name].private):
                    why = "has a private domain" if columns[name].private else "is never missing"
                    raise ValueError(f"structure.forbidden names the missing value of column {name!r}, which {why}")
                choices.append([(whole[name], label) for label in labels])
            else:
                of_set = [_label(name, columns[name], text) for text in texts]
                choices.append([(whole[name] if name in whole else apart[name, label], label) for label in of_set])
        found.extend(itertools.product(*sorted(choices, key=lambda choice: choice[0][0])))
    return tuple(found)


def _label(name: str, column: Column, text: str) -> str:
    if column.private:
        return text.strip()
    code = column.code_of(text)
    if code < 0:
        known = f"column {name!r}; its values: {listed(column.labels)}"
        raise ValueError(f"structure.forbidden names {text!r}, which is no value of {known}")
    return column.labels[code]


def forbidden_codes(
    forbidden: Iterable[Forbidden], labels: Sequence[Sequence[str]]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Forbidden combinations as (attribute, code) over a domain; what was not released there needs no rule.

    DP: post-processing of the released labels.
    """
    places = [{label: code for code, label in enumerate(values)} for values in labels]
    found: list[tuple[tuple[int, int], ...]] = []
    for combination in forbidden:
        choices = []
        for attribute, text in combination:
            if text is None:
                choices.append([(attribute, len(labels[attribute]))])
                continue
            own, spelled = places[attribute], ValueMatcher([text])
            codes = [own[text]] if text in own else [own[label] for label in own if spelled.index(label) >= 0]
            choices.append([(attribute, code) for code in codes])
        found.extend(itertools.product(*choices))
    return tuple(dict.fromkeys(found))


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
    needed = {place for combination in forbidden for place, label in combination if label is None}
    rules: defaultdict[tuple[int, ...], set[tuple[str | None, ...]]] = defaultdict(set)
    for combination in forbidden:
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
