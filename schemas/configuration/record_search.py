"""A record that keeps rules between attributes, found by trying values; or that there is none."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

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
