"""Search for a record that breaks no rule between attributes, by trying values; it also finds that there is none."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

MAX_STEPS = 5_000

Value = TypeVar("Value", bound=Hashable)
Rules: TypeAlias = Mapping[tuple[int, ...], set[tuple[Value, ...]]]
"""Forbidden combinations of values, by the attributes that they belong to."""


class ContradictionError(ValueError):
    """Rules that no record keeps; `places` are attributes between which they contradict each other."""

    def __init__(self, places: Sequence[int]) -> None:
        super().__init__(f"rules leave no values of attributes {', '.join(map(str, places))}")
        self.places = tuple(places)


class UndecidedError(Exception):
    """A search that did not end within `MAX_STEPS` steps: no ValueError, because the rules may allow a record."""


def find_record(values: Mapping[int, Sequence[Value]], rules: Rules[Value]) -> dict[int, Value]:
    """Return a value of every attribute that is in a rule, such that no rule is broken; early `values` are preferred.

    A rule may also forbid combinations that are not of these `values`.

    Raises:
        ContradictionError: there is no such record.
        UndecidedError: for some part of tied attributes, `MAX_STEPS` steps neither find a record nor exclude one.
    """
    for places, forbidden in rules.items():
        if _forbids_all(forbidden, [values[place] for place in places]):
            raise ContradictionError(places)
    record: dict[int, Value] = {}
    timed_out = False
    search = _Search(rules)
    for part in tied_parts(rules):
        try:
            record |= search.record({place: values[place] for place in sorted(part)})
        except UndecidedError:
            timed_out = True  # a contradiction in a later part is still worth finding
    if timed_out:
        raise UndecidedError(f"{MAX_STEPS} steps decide nothing")
    return record


def _forbids_all(forbidden: set[tuple[Value, ...]], choices: Sequence[Sequence[Value]]) -> bool:
    """Return whether every combination of one of the `choices` of each attribute is forbidden."""
    if len(forbidden) < math.prod(map(len, choices)):
        return False
    return forbidden.issuperset(itertools.product(*choices))


def tied_parts(groups: Iterable[Sequence[int]]) -> list[set[int]]:
    """Return the parts into which groups of attributes fall: two attributes of a group are in the same part."""
    parts: list[set[int]] = []
    for places in groups:
        touched = [part for part in parts if not part.isdisjoint(places)]
        untouched = [part for part in parts if part.isdisjoint(places)]
        parts = [*untouched, set(places).union(*touched)]
    return parts


Possible: TypeAlias = Mapping[int, Sequence[Value]]
"""The values that each attribute may still have."""


class _Search(Generic[Value]):
    """Backtracking with forward checking: the attribute with the fewest possible values is next (Haralick and Elliott 1980)."""

    def __init__(self, rules: Rules[Value]) -> None:
        self._rules = rules
        self._rules_of: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        for places in rules:
            for place in places:
                self._rules_of[place].append(places)

    def record(self, values: Possible[Value]) -> dict[int, Value]:
        """Return a record that breaks no rule, of attributes that are one part; raises as `find_record`."""
        # for each decided attribute, the choices of its value that are not tried yet
        stack = [self._narrow_all([values])]
        for _ in range(MAX_STEPS):
            if not stack:
                raise ContradictionError(sorted(values))
            possible = next(stack[-1], None)
            if possible is None:
                stack.pop()
                continue
            open_places = [place for place, options in possible.items() if len(options) > 1]
            if not open_places:
                return {place: value for place, (value,) in possible.items()}
            _, chosen = min((len(possible[place]), place) for place in open_places)
            stack.append(
                self._narrow_all([{**possible, chosen: [value]} for value in possible[chosen]])
            )
        raise UndecidedError(f"{MAX_STEPS} steps decide nothing")

    def _narrow_all(self, choices: Iterable[Possible[Value]]) -> Iterator[Possible[Value]]:
        """Yield the choices that break no rule, without the values that rules exclude in them."""
        for choice in choices:
            possible = self._narrow(choice)
            if possible is not None:
                yield possible

    def _narrow(self, values: Possible[Value]) -> Possible[Value] | None:
        """Apply each rule that has at most one attribute of several possible values; return the values that remain possible.

        None where an attribute has no possible value.
        """
        possible = {**values}
        decided = [place for place, options in possible.items() if len(options) == 1]
        while decided:
            for rule in self._rules_of[decided.pop()]:
                open_places = [place for place in rule if len(possible[place]) > 1]
                if len(open_places) > 1:
                    continue
                place = open_places[0] if open_places else rule[-1]
                possible[place] = self._allowed_values(rule, place, possible)
                if not possible[place]:
                    return None
                if len(possible[place]) == 1:
                    decided += open_places
        return possible

    def _allowed_values(
        self, rule: tuple[int, ...], place: int, possible: Possible[Value]
    ) -> list[Value]:
        """Return the possible values of `place` with which the decided values of the other attributes keep the rule."""
        allowed = list[Value]()
        for value in possible[place]:
            combination = tuple(value if j == place else possible[j][0] for j in rule)
            if combination not in self._rules[rule]:
                allowed.append(value)
        return allowed
