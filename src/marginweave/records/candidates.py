"""Which attributes can join a record that is being grown, compiled, and bounds of their weights."""

from __future__ import annotations

import numpy as np

from marginweave.records.combinations import Combinations
from marginweave.records.growing_state import GrowingState, lean

ALL = -1  # candidates: every value of a column that is not used


@lean
def offer(
    combinations: Combinations, state: GrowingState, depth: int, members: int, filled: int
) -> tuple[int, int, int]:
    """Start over with combinations up to `depth`: all available attributes of free columns, and the shorter members.

    An attribute has to extend every member, so the children of the one that has the fewest are enough. Where there is but
    the empty combination, any attribute can be next (`ALL`), unless a rule forbids it or sets have an order of their own.
    """
    kept, nearest = 0, 0
    for i in range(members):
        if state.lengths[i] < depth:
            state.members[kept], state.lengths[kept] = state.members[i], state.lengths[i]
            for kind in range(len(state.decided)):
                state.holding[kept, kind] = state.holding[i, kind]
            if nearest == 0 or _degree(combinations, state.members[i]) < _degree(combinations, nearest):
                nearest = state.members[i]
            kept += 1
    if len(state.decided):  # a member with a value of a set says nothing about the set's other values
        nearest = 0
    elif nearest == 0 and len(state.prohibitions.rules) == 0:
        return ALL, kept, 0
    candidates = children_of(combinations, state, nearest)
    candidates, total = extend(combinations, state, 0, kept, candidates, filled < depth)
    return candidates, kept, total


@lean
def _degree(combinations: Combinations, node: int) -> int:
    """How many combinations extend a node."""
    width = combinations.width
    return int(combinations.starts[(node + 1) * width]) - int(combinations.starts[node * width])


@lean
def children_of(combinations: Combinations, state: GrowingState, node: int) -> int:
    """Candidates: available attributes of free columns that extend a node, ascending; returns how many there are."""
    candidates, width = 0, combinations.width
    for place in range(combinations.starts[node * width], combinations.starts[(node + 1) * width]):
        attribute = np.int64(combinations.extensions[place])
        if state.available[attribute] > 0 and not state.used[combinations.columns[attribute]]:
            state.candidates[candidates] = attribute
            state.alive[attribute] = 1
            candidates += 1
    return candidates


@lean
def is_exact(combinations: Combinations, state: GrowingState, attribute: int, direct: bool) -> bool:
    """Whether an attribute's weight is the count of the whole record with it."""
    group = combinations.sets[attribute]
    return bool(direct and state.whole[0] and (group < 0 or not state.decided[group]))


@lean
def child_of(combinations: Combinations, node: int, attribute: int) -> int:
    """Number of the combination node + attribute, or 0 if it is not released."""
    if combinations.table.shape[1]:
        return int(combinations.table[attribute, node])
    column = node * combinations.width + combinations.columns[attribute]
    low, high = np.int64(combinations.starts[column]), np.int64(combinations.starts[column + 1])
    last = high
    while low < high:
        middle = (low + high) // 2
        if combinations.extensions[middle] < attribute:
            low = middle + 1
        else:
            high = middle
    return int(combinations.children[low]) if low < last and combinations.extensions[low] == attribute else 0


@lean
def extend(
    combinations: Combinations, state: GrowingState, first: int, last: int, candidates: int, direct: bool
) -> tuple[int, int]:
    """Drop the candidates that cannot join any more, and bound the weights of the others; how many are left, sum of bounds.

    record + a is possible if all its parts with a, up to the depth, are released and not used up: t + a for every member t, the
    parts of the record that are shorter than the depth, the empty one included. A value b that joins the record adds the
    members t + b, and takes none away. So only new members, from `first` to `last`, are looked at, and a candidate that was
    dropped never returns. No weight is more than how often an attribute may still be used.
    """
    kept, total, tabled = 0, 0, combinations.table.shape[1] > 0 and len(state.decided) == 0
    for number in range(first, last if tabled else first):
        node = state.members[number]
        for attribute in range(len(state.alive)):
            state.alive[attribute] &= state.open[node, attribute]
    for i in range(candidates):
        attribute = int(state.candidates[i])
        group = combinations.sets[attribute]
        if state.used[combinations.columns[attribute]] or state.banned[attribute] == state.number[0]:
            continue
        if state.alive[attribute] != 0 if tabled else _fits(combinations, state, first, last, attribute):
            bound = int(state.alone.weights[attribute])
            if is_exact(combinations, state, attribute, direct):
                bound = min(bound, int(state.left[child_of(combinations, state.members[last - 1], attribute)]))
            waits = group >= 0 and state.decided[group]
            state.candidates[kept], state.weights[kept] = attribute, -bound if waits else bound
            total += 0 if waits else bound
            kept += 1
    return kept, total


@lean
def _fits(combinations: Combinations, state: GrowingState, first: int, last: int, attribute: int) -> bool:
    """Whether an attribute extends all members from `first` to `last` that have no value of its set."""
    group, fits = combinations.sets[attribute], True
    for number in range(first, last):
        if fits and not (group >= 0 and state.holding[number, group]):
            fits = state.left[child_of(combinations, state.members[number], attribute)] > 0
    return bool(fits)
