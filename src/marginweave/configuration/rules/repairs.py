"""Which rows that break a rule are changed before they are counted: the rules, the order of repair, and the columns."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from marginweave.configuration.attributes import (
    Attribute,
    Forbidden,
    combinations_by_places,
    most_forbidden,
    possible_labels,
)
from marginweave.configuration.rules.record_search import (
    ContradictionError,
    UndecidedError,
    find_record,
    tied_parts,
)
from marginweave.configuration.rules.structure import Structure

_MOST_TRIED = 5_000_000
"""Values of an attribute times combinations that rules exclude; where there are more, it may be any value that is lost."""


def enforced_rules(
    forbidden: Iterable[Forbidden], attributes: Sequence[Attribute]
) -> tuple[Forbidden, ...]:
    """Return the rules that every row is changed to keep before it is counted: none on a private domain or a set of k-tuples.

    Values of a private domain are known after rows were counted, and a row has several values of a set.
    """
    places = enumerate(attributes)
    exempt = {j for j, attribute in places if attribute.private or attribute.is_set}
    return tuple(rule for rule in forbidden if exempt.isdisjoint(named_by(rule)))


def named_by(rule: Forbidden) -> list[int]:
    """Return the attributes that a rule names."""
    return [attribute for attribute, _ in rule]


def repair_order(structure: Structure | None, attributes: Sequence[Attribute]) -> list[int]:
    """Return the attributes as declared, but after those that rules put before them, unless these form a circle."""
    ordered: list[int] = []
    if structure is None:
        return ordered
    pairs: list[tuple[str, str]] = []
    for applies in structure.applies or ():
        pairs += itertools.product(applies.where, applies.columns)
    for order in structure.ordered or ():
        pairs += pairwise(order.columns)
    pairs += [(rule.since, rule.column) for rule in structure.difference or ()]
    before = defaultdict[str, set[str]](set)
    for name, later in pairs:
        before[later].add(name)
    waiting = {attribute.name: j for j, attribute in enumerate(attributes)}
    while waiting:
        ready = [name for name in waiting if before[name].isdisjoint(waiting)]
        name = ready[0] if ready else next(iter(waiting))
        ordered.append(waiting.pop(name))
    return ordered


def repaired_attributes(
    rules: Sequence[Forbidden],
    order: Sequence[int],
    attributes: Sequence[Attribute],
    undeclared: Collection[str],
) -> set[int]:
    """Return the attributes whose cells a repair of rows by these rules may change; it decides them in this `order`.

    Of attributes that rules tie together, the one that is decided first keeps its code where each of its codes is in a record
    that keeps the rules; all others may lose theirs. `undeclared` names those that may have cells that are not as declared.
    """
    changed: set[int] = set()
    for part in tied_parts([named_by(rule) for rule in rules]):
        first = min(part, key=order.index)
        rules_of_part = [rule for rule in rules if not part.isdisjoint(named_by(rule))]
        may_lose = _may_lose(first, rules_of_part, attributes, undeclared)
        changed |= part if may_lose else part - {first}
    return changed


def _may_lose(
    first: int,
    rules: Sequence[Forbidden],
    attributes: Sequence[Attribute],
    undeclared: Collection[str],
) -> bool:
    """Return whether the attribute that is decided first may lose its code; True where that takes long to find out.

    A cell of another attribute that is not as declared remains so. A rule can be against it if no cell can be declared
    missing: then both are the same code.
    """
    for rule in rules:
        for place, labels in rule:
            attribute = attributes[place]
            is_same = attribute.name in undeclared and not attribute.optional
            if is_same and None in labels:
                return True
    values = {place: possible_labels(attributes[place]) for rule in rules for place, _ in rule}
    if len(values[first]) * most_forbidden(rules) > _MOST_TRIED:
        return True
    combinations = combinations_by_places(rules)
    try:
        for label in values[first]:
            find_record({**values, first: (label,)}, combinations)
    except (ContradictionError, UndecidedError):
        return True
    return False
