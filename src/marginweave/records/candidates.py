"""Finds the attributes that can join a record while it grows, compiled, with upper bounds of their weights."""

from __future__ import annotations

import numpy as np

from marginweave.base.compiled import lean_kernel
from marginweave.records.combinations import Combinations
from marginweave.records.growing_state import GrowingState

ALL = -1  # candidates: every value of a column that is not used
EMPTY = 0  # node: the empty combination


@lean_kernel
def offer(
    combinations: Combinations,
    state: GrowingState,
    depth: int,
    members: int,
    filled: int,
) -> tuple[int, int, int]:
    """Start over at a depth; return the number of candidates, the number of members, and the sum of bounds.

    The candidates are all available attributes of free columns; the members are those shorter than `depth`. An attribute has to
    extend every member, so the children of the member that has the fewest are enough. If the empty combination is the only
    member, any attribute can be next (`ALL`), unless a rule forbids it or there are sets, which have their own order.

    Args:
        combinations: Released combinations.
        state: Working memory, with the record being grown.
        depth: Length of the longest combinations that the record's values have to be in.
        members: Number of members before, at this depth or a larger one.
        filled: Number of columns of the record that were drawn.
    """
    shorter = 0
    parent = EMPTY  # also before a parent is found
    for i in range(members):
        if state.lengths[i] < depth:
            node = state.members[i]
            state.members[shorter] = node
            state.lengths[shorter] = state.lengths[i]
            for set_index in range(len(state.decided)):
                state.holding[shorter, set_index] = state.holding[i, set_index]
            if parent == EMPTY or _degree(combinations, node) < _degree(combinations, parent):
                parent = node
            shorter += 1
    # a member with a value of a set says nothing about the set's other values
    if len(state.decided):
        parent = EMPTY
    elif parent == EMPTY and len(state.prohibitions.rules) == 0:
        return ALL, shorter, 0
    candidates = children_of(combinations, state, parent)
    candidates, total = extend(combinations, state, 0, shorter, candidates, filled < depth)
    return candidates, shorter, total


@lean_kernel
def _degree(combinations: Combinations, node: int) -> int:
    """Return the number of combinations that extend a node."""
    width = combinations.width
    first = combinations.starts[node * width]
    end = combinations.starts[(node + 1) * width]
    return int(end) - int(first)


@lean_kernel
def children_of(combinations: Combinations, state: GrowingState, node: int) -> int:
    """List the available attributes of free columns that extend a node as candidates, ascending; return their number."""
    candidates = 0
    width = combinations.width
    first = combinations.starts[node * width]
    end = combinations.starts[(node + 1) * width]
    for place in range(first, end):
        attribute = np.int64(combinations.extensions[place])
        if state.available[attribute] > 0 and not state.used[combinations.columns[attribute]]:
            state.candidates[candidates] = attribute
            state.alive[attribute] = 1
            candidates += 1
    return candidates


@lean_kernel
def is_exact(combinations: Combinations, state: GrowingState, attribute: int, direct: bool) -> bool:
    """Return whether an attribute's weight is the count of the complete record with it."""
    set_index = combinations.sets[attribute]
    return bool(direct and state.is_member[0] and (set_index < 0 or not state.decided[set_index]))


@lean_kernel
def child_of(combinations: Combinations, node: int, attribute: int) -> int:
    """Return the number of the combination node + attribute, or 0 if it is not released: `remaining[0]` is never positive."""
    if combinations.table.shape[1]:
        return int(combinations.table[attribute, node])
    column = node * combinations.width + combinations.columns[attribute]
    low = np.int64(combinations.starts[column])
    last = np.int64(combinations.starts[column + 1])
    high = last
    while low < high:
        middle = (low + high) // 2
        if combinations.extensions[middle] < attribute:
            low = middle + 1
        else:
            high = middle
    if low < last and combinations.extensions[low] == attribute:
        return int(combinations.children[low])
    return 0


@lean_kernel
def extend(
    combinations: Combinations,
    state: GrowingState,
    first: int,
    last: int,
    candidates: int,
    direct: bool,
) -> tuple[int, int]:
    """Drop candidates that cannot join any more, bound the weights of the others; return their number and sum of bounds.

    record + a is possible if all its parts with a, up to the depth, are released and not used up: t + a for every member t, the
    parts of the record that are shorter than the depth, the empty one included. A value b that joins the record adds the
    members t + b, and takes none away. So only new members, from `first` to `last`, are looked at, and a candidate that was
    dropped never returns. No weight is more than how often an attribute may still be used.
    """
    possible = 0
    total = 0
    tabled = combinations.table.shape[1] > 0 and len(state.decided) == 0
    if tabled:
        for number in range(first, last):
            node = state.members[number]
            for attribute in range(len(state.alive)):
                state.alive[attribute] &= state.open[node, attribute]
    for i in range(candidates):
        attribute = int(state.candidates[i])
        if (
            state.used[combinations.columns[attribute]]
            or state.banned[attribute] == state.number[0]
        ):
            continue
        fits = (
            state.alive[attribute] != 0
            if tabled
            else _fits(combinations, state, first, last, attribute)
        )
        if not fits:
            continue
        bound = int(state.single.weights[attribute])
        if is_exact(combinations, state, attribute, direct):
            child = child_of(combinations, state.members[last - 1], attribute)
            bound = min(bound, int(state.remaining[child]))
        set_index = combinations.sets[attribute]
        state.candidates[possible] = attribute
        # it waits until the other candidates are used up
        if set_index >= 0 and state.decided[set_index]:
            state.weights[possible] = -bound
        else:
            state.weights[possible] = bound
            total += bound
        possible += 1
    return possible, total


@lean_kernel
def _fits(
    combinations: Combinations,
    state: GrowingState,
    first: int,
    last: int,
    attribute: int,
) -> bool:
    """Return whether an attribute extends all members from `first` to `last` that have no value of its set."""
    set_index = combinations.sets[attribute]
    fits = True
    for number in range(first, last):
        if fits and not (set_index >= 0 and state.holding[number, set_index]):
            child = child_of(combinations, state.members[number], attribute)
            fits = state.remaining[child] > 0
    return bool(fits)
