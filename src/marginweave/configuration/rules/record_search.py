"""A record that keeps rules between attributes, found by trying values; or that there is none."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

MAX_STEPS = 5_000

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
    undecided, search = False, _Search(rules)
    for part in tied_parts(rules):
        try:
            found |= search.record({place: values[place] for place in sorted(part)})
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


Left: TypeAlias = Mapping[int, Sequence[Value]]  # the values that each attribute may still have


class _Search(Generic[Value]):
    """Backtracking with forward checking: the attribute with the fewest values left is next (Haralick and Elliott 1980)."""

    def __init__(self, rules: Rules[Value]) -> None:
        self._rules = rules
        self._near: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        for places in rules:
            for place in places:
                self._near[place].append(places)

    def record(self, values: Left[Value]) -> dict[int, Value]:
        """As `find_record`, of attributes that rules tie together."""
        choices = [self._possible([values])]
        for _ in range(MAX_STEPS):
            if not choices:
                raise ContradictionError(sorted(values))
            left = next(choices[-1], None)
            if left is None:
                choices.pop()
            elif several := [place for place, own in left.items() if len(own) > 1]:
                _, chosen = min((len(left[place]), place) for place in several)
                choices.append(self._possible([{**left, chosen: [value]} for value in left[chosen]]))
            else:
                return {place: value for place, (value,) in left.items()}
        raise UndecidedError(f"{MAX_STEPS} steps decide nothing")

    def _possible(self, choices: Iterable[Left[Value]]) -> Iterator[Left[Value]]:
        return (left for left in map(self._narrowed, choices) if left is not None)

    def _narrowed(self, values: Left[Value]) -> Left[Value] | None:
        """The values that rules leave where all attributes of a rule but one are decided; None where one has none then."""
        left = {**values}
        decided = [place for place, own in left.items() if len(own) == 1]
        while decided:
            for rule in self._near[decided.pop()]:
                free = [place for place in rule if len(left[place]) > 1]
                if len(free) > 1:
                    continue
                place = free[0] if free else rule[-1]
                left[place] = [value for value in left[place] if self._is_allowed(rule, {place: value}, left)]
                if not left[place]:
                    return None
                decided += free if len(left[place]) == 1 else []
        return left

    def _is_allowed(self, rule: tuple[int, ...], chosen: Mapping[int, Value], left: Left[Value]) -> bool:
        return tuple(chosen.get(place, left[place][0]) for place in rule) not in self._rules[rule]
