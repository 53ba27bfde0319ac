"""The sampling loop of aggregate-seeded synthesis, compiled: attributes are drawn until a record cannot grow."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.tasks.synthesize.combinations import Combinations, Numbers
from marginweave.tasks.synthesize.growing_state import GrowingState, Rules, change, draw_free, quantile

_NONE = np.iinfo(np.int32).min  # below every weight
_ALL = -1  # candidates: every value of a column that is not used


@njit(cache=True, nogil=True)
def grow_records(
    combinations: Combinations, rules: Rules, state: GrowingState, empty: NDArray[np.int32], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Make records by the rules; `empty` is the record without any value. DP: post-processing."""
    unlimited = rules.records < 0
    records = np.empty((1024 if unlimited else rules.records, len(empty)), np.int32)
    made = 0
    _refill(combinations, state)
    while (unlimited and np.any(state.alone.sums > 0)) or made < rules.records:
        if made == len(records):
            records = np.concatenate((records, np.empty((made, len(empty)), np.int32)))
        records[made] = empty
        filled = _grow_record(combinations, rules, state, records[made], rng)
        if unlimited and filled == 0:
            break
        made += 1
        if not unlimited and (filled == 0 or not np.any(state.alone.sums > 0)):
            _refill(combinations, state)
    return records[:made].copy()


@njit(cache=True)
def _refill(combinations: Combinations, state: GrowingState) -> None:
    """Begin again with the released counts."""
    state.left[:] = combinations.counts
    state.left[0] = _NONE
    state.alone.weights[:] = 0
    state.alone.sums[:] = 0
    for attribute in range(len(state.available)):
        state.available[attribute] = combinations.counts[combinations.children[attribute]]
        change(state.alone, attribute, combinations.columns[attribute], int(state.available[attribute]))


@njit(cache=True)
def _grow_record(
    combinations: Combinations, rules: Rules, state: GrowingState, record: NDArray[np.int32], rng: np.random.Generator
) -> int:
    """Fill one record in place; returns how many of its columns were drawn."""
    state.used.fill(False)  # no slices here: for each of them compiled code counts the references to every array again
    state.decided.fill(False)
    state.whole[0] = True
    state.number[0] += 1
    state.members[0], state.lengths[0] = 0, 0
    depth, filled = rules.longest, 0
    candidates, members = _offer(combinations, state, depth, 1, filled)
    while True:
        if candidates == _ALL:
            attribute = draw_free(state.alone, state.used, rng.random())
        else:
            candidates = _weigh(combinations, rules, state, candidates, members, filled < depth)
            attribute = _draw(combinations, state, candidates, rng.random())
        if attribute >= 0:
            record[combinations.columns[attribute]] = combinations.values[attribute]
            filled += 1
            known, (members, whole) = members, _add(combinations, rules, state, attribute, depth, members)
            if candidates != _ALL:
                candidates = _extend(combinations, state, known, members, whole, candidates)
            elif whole >= 0:  # the first value of a record: others have to be released with it
                candidates = _children(combinations, state, state.members[whole])
                candidates = _extend(combinations, state, 0, members, whole, candidates)
            _ban(combinations, state, attribute, record)
        elif depth > rules.shortest:
            depth -= 1
            candidates, members = _offer(combinations, state, depth, members, filled)
        else:
            return filled


@njit(cache=True)
def _offer(combinations: Combinations, state: GrowingState, depth: int, members: int, filled: int) -> tuple[int, int]:
    """Start over with combinations up to `depth`: all available attributes of free columns, and the shorter members.

    An attribute has to extend every member, so the children of the one that has the fewest are enough. Where there is but
    the empty combination, any attribute can be next (`_ALL`), unless a rule forbids it or sets have an order of their own.
    """
    state.without.fill(0)
    kept, whole, nearest = 0, -1, 0
    for i in range(members):
        if state.lengths[i] < depth:
            state.members[kept], state.lengths[kept] = state.members[i], state.lengths[i]
            for kind in range(len(state.decided)):
                state.holding[kept, kind] = state.holding[i, kind]
            if state.lengths[i] == filled:
                whole = kept
            if nearest == 0 or _degree(combinations, state.members[i]) < _degree(combinations, nearest):
                nearest = state.members[i]
            kept += 1
    if len(state.decided):  # a member with a value of a set says nothing about the set's other values
        nearest = 0
    elif nearest == 0 and len(state.prohibitions.rules) == 0:
        return _ALL, kept
    candidates = _children(combinations, state, nearest)
    return _extend(combinations, state, 0, kept, whole, candidates), kept


@njit(cache=True)
def _degree(combinations: Combinations, node: int) -> int:
    """How many combinations extend a node."""
    width = combinations.width
    return int(combinations.starts[(node + 1) * width]) - int(combinations.starts[node * width])


@njit(cache=True)
def _children(combinations: Combinations, state: GrowingState, node: int) -> int:
    """Candidates: available attributes of free columns that extend a node, ascending; returns how many there are."""
    candidates, width = 0, combinations.width
    for place in range(combinations.starts[node * width], combinations.starts[(node + 1) * width]):
        attribute = np.int64(combinations.extensions[place])
        if state.available[attribute] > 0 and not state.used[combinations.columns[attribute]]:
            state.candidates[candidates] = attribute
            state.blocked[attribute] = False
            candidates += 1
    return candidates


@njit(cache=True)
def _weigh(
    combinations: Combinations, rules: Rules, state: GrowingState, candidates: int, members: int, direct: bool
) -> int:
    """Drop the candidates that cannot join any more and weigh the others; returns how many are left."""
    kept = 0
    for i in range(candidates):
        attribute = state.candidates[i]
        group = combinations.sets[attribute]
        if state.used[combinations.columns[attribute]] or state.banned[attribute] == state.number[0]:
            continue
        if direct and state.whole[0] and (group < 0 or not state.decided[group]):
            weight = state.direct[attribute]
        elif state.blocked[attribute]:
            continue
        else:
            known = members if group < 0 else int(state.without[group])
            weight = int(np.floor(quantile(state.largest[attribute], known, rules.fraction) + 0.5))
        state.candidates[kept] = attribute
        state.weights[kept] = max(weight, 0)
        kept += 1
    return kept


@njit(inline="always")  # a call would count references to every array
def _draw(combinations: Combinations, state: GrowingState, candidates: int, chance: float) -> int:
    """Draw a candidate by weight, given a uniform number in [0, 1); -1 where none has weight.

    Another value of a set that the record has one of waits until nothing else is left: what was counted with the first
    one is drawn before, so that all values of a set meet the same company.
    """
    total, everything = 0, 0
    for i in range(candidates):
        group = combinations.sets[state.candidates[i]]
        everything += state.weights[i]
        if group < 0 or not state.decided[group]:
            total += state.weights[i]
    none = total == 0
    if none:
        total = everything
    point, drawn = int(chance * total), 0
    while drawn < candidates:
        group = combinations.sets[state.candidates[drawn]]
        if none or group < 0 or not state.decided[group]:
            point -= state.weights[drawn]
            if point < 0:
                break
        drawn += 1
    return int(state.candidates[drawn]) if drawn < candidates else -1


@njit(cache=True)
def _add(
    combinations: Combinations, rules: Rules, state: GrowingState, attribute: int, depth: int, members: int
) -> tuple[int, int]:
    """Put an attribute into the record: new members, and one less of everything it completes.

    Returns how many members there are, and which of the new ones is the whole record, or -1.
    """
    state.available[attribute] -= 1
    weight = 1 if rules.subtract else 0
    if state.available[attribute] == 0 and not rules.subtract:
        weight = int(combinations.counts[combinations.children[attribute]])
    change(state.alone, attribute, combinations.columns[attribute], -weight)
    state.used[combinations.columns[attribute]] = True
    group = combinations.sets[attribute]
    if group >= 0:
        state.whole[0] &= not state.decided[group]
        state.decided[group] = True
    grown, whole = members, -1
    for i in range(members):
        if group >= 0 and state.holding[i, group]:
            continue
        node = _child(combinations, state.members[i], attribute)
        if rules.subtract:
            state.left[node] -= 1
        if state.lengths[i] + 1 < depth:
            state.members[grown], state.lengths[grown] = node, state.lengths[i] + 1
            for kind in range(len(state.decided)):
                state.holding[grown, kind] = state.holding[i, kind] or kind == group
            # As long as direct weights matter no member is left out, and the last one is the whole record.
            if state.whole[0] and i == members - 1:
                whole = grown
            grown += 1
    return grown, whole


@njit(cache=True)
def _ban(combinations: Combinations, state: GrowingState, attribute: int, record: NDArray[np.int32]) -> None:
    """Ban what would complete a forbidden combination: where a rule of `attribute` has all but one in the record."""
    given = state.prohibitions
    for place in range(given.of_attribute[attribute], given.of_attribute[attribute + 1]):
        rule = given.rules[place]
        lacking, absent = 0, -1
        for i in range(given.starts[rule], given.starts[rule + 1]):
            member = given.members[i]
            if record[combinations.columns[member]] != combinations.values[member]:
                lacking, absent = lacking + 1, member
        if lacking == 1:
            state.banned[absent] = state.number[0]


@njit(cache=True)
def _child(combinations: Combinations, node: int, attribute: int) -> int:
    """Number of the combination node + attribute, or 0 if it is not released."""
    if len(combinations.table):
        return int(combinations.table[node * len(combinations.columns) + attribute])
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


@njit(cache=True)
def _extend(combinations: Combinations, state: GrowingState, first: int, last: int, whole: int, candidates: int) -> int:
    """Drop the candidates that extend a member from `first` to `last` to nothing released; returns how many are left.

    record + a is possible if all its parts with a, up to the depth, are released: t + a for every member t, the parts of the
    record that are shorter than the depth, the empty one included. A value b that joins the record adds the members t + b, and
    takes none away. So only new members are checked, and a candidate that was dropped never returns.
    `whole` is the member that is all of the record, or -1 if there is none; then what is used up is dropped as well. Otherwise
    it blocks a candidate, which keeps its direct weight.
    """
    kept = 0
    for i in range(candidates):
        attribute = state.candidates[i]
        group = combinations.sets[attribute]
        earlier, alive = first if group < 0 else int(state.without[group]), True
        for number in range(first, last):
            if group >= 0 and state.holding[number, group]:
                continue
            weight = state.left[_child(combinations, state.members[number], attribute)]
            if weight <= 0:
                alive = whole >= 0 and weight != _NONE
                if not alive:
                    break
                state.blocked[attribute] = True
            if number == whole:
                state.direct[attribute] = weight
            _rank(state.largest, attribute, weight, earlier)
            earlier += 1
        if alive:
            state.candidates[kept] = attribute
            kept += 1
    for group in range(len(state.decided)):
        for number in range(first, last):
            state.without[group] += not state.holding[number, group]
    return kept


@njit(cache=True)
def _rank(largest: Numbers, attribute: int, weight: int, earlier: int) -> None:
    """Put a weight among the largest of an attribute, which has had `earlier` ones."""
    kept = largest.shape[1]
    i = min(earlier, kept - 1)
    if earlier >= kept and weight <= largest[attribute, i]:
        return
    while i > 0 and largest[attribute, i - 1] < weight:
        largest[attribute, i] = largest[attribute, i - 1]
        i -= 1
    largest[attribute, i] = weight
