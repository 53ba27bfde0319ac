"""Whether structural zeros leave a record possible in which every column that is never missing has a value, and which."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, TypeVar

from marginweave.schemas.configuration.attributes import Attribute, Forbidden

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

    The search is exact; what it does not decide in time is accepted. A rule that touches a column that can be missing, or
    whose values are not known, is always escaped.

    Raises:
        ValueError: no record can hold a value of each of the columns, which are named.
    """
    rules: defaultdict[tuple[int, ...], set[tuple[str, ...]]] = defaultdict(set)
    for combination in forbidden:
        places = tuple(place for place, _ in combination)
        if not any(attributes[place].optional or attributes[place].private for place in places):
            rules[places].add(tuple(label for _, label in combination))
    try:
        with suppress(UndecidedError):
            find_record({place: attributes[place].labels for places in rules for place in places}, rules)
    except ContradictionError as contradiction:
        names = ", ".join(attributes[place].name for place in contradiction.places)
    else:
        return
    raise ValueError(
        f"structure.forbidden leaves no combination of the values of columns {names}, which are never missing"
    )


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
    """Backtracking in `order`; a rule is looked at where the last of its attributes gets its value."""
    ending = _by_last(order, rules)
    chosen: dict[int, Value] = {}

    def candidates(depth: int) -> Iterator[Value]:
        blocked: set[Value] = set()
        for others, found in ending[depth]:
            blocked |= found.get(tuple(chosen[place] for place in others), set())
        return (value for value in values[order[depth]] if value not in blocked)

    open_choices = [candidates(0)]
    for _ in range(MAX_STEPS):
        depth = len(open_choices) - 1
        try:
            chosen[order[depth]] = next(open_choices[-1])
        except StopIteration:
            open_choices.pop()
            if not open_choices:
                raise ContradictionError(sorted(order)) from None
            continue
        if depth == len(order) - 1:
            return chosen
        open_choices.append(candidates(depth + 1))
    raise UndecidedError(f"{MAX_STEPS} steps decide nothing")


def _by_last(
    order: Sequence[int], rules: Rules[Value]
) -> list[list[tuple[tuple[int, ...], Mapping[tuple[Value, ...], set[Value]]]]]:
    """For each place in the order: the earlier attributes of a rule, and the values that their values block."""
    turn = {place: depth for depth, place in enumerate(order)}
    ending: list[list[tuple[tuple[int, ...], Mapping[tuple[Value, ...], set[Value]]]]] = [[] for _ in order]
    for places, combinations in rules.items():
        if places[0] not in turn:
            continue
        last = max(range(len(places)), key=lambda i: turn[places[i]])
        blocked: defaultdict[tuple[Value, ...], set[Value]] = defaultdict(set)
        for values in combinations:
            blocked[values[:last] + values[last + 1 :]].add(values[last])
        ending[turn[places[last]]].append((places[:last] + places[last + 1 :], blocked))
    return ending
