"""Runs the sampling loop of aggregate-seeded synthesis, compiled: attributes are drawn until a record cannot grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marginweave.base.compiled import kernel, lean_kernel
from marginweave.records.candidates import ALL, child_of, children_of, extend, is_exact, offer
from marginweave.records.combinations import Combinations
from marginweave.records.growing_state import (
    GrowingState,
    Rules,
    change,
    draw_free,
    has_any,
    quantile_exceeds,
)

_NONE = np.iinfo(np.int32).min  # below every weight
_MOST = int(np.iinfo(np.int64).max)


@kernel
def grow_records(
    combinations: Combinations,
    rules: Rules,
    state: GrowingState,
    empty: NDArray[np.int32],
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Make records by the rules; `empty` is the record without any value. DP: post-processing."""
    unlimited = rules.records < 0
    records = np.empty((1024 if unlimited else rules.records, len(empty)), np.int32)
    count = 0
    _refill(combinations, state)
    while count < rules.records or (unlimited and has_any(state.single)):
        if count == len(records):
            records = np.concatenate((records, np.empty((count, len(empty)), np.int32)))
        filled = _grow_record(combinations, rules, state, records, count, empty, rng)
        if unlimited and filled == 0:
            break
        count += 1
        if not unlimited and (filled == 0 or not has_any(state.single)):
            _refill(combinations, state)
    return records[:count].copy()


@kernel
def _refill(combinations: Combinations, state: GrowingState) -> None:
    """Begin again with the released counts."""
    state.remaining[:] = combinations.counts
    state.remaining[0] = _NONE
    for attribute in range(combinations.table.shape[0]):
        for node in range(combinations.table.shape[1]):
            child = combinations.table[attribute, node]
            state.open[node, attribute] = state.remaining[child] > 0
    state.single.weights[:] = 0
    state.single.sums[:] = 0
    for attribute in range(len(state.available)):
        state.available[attribute] = combinations.counts[combinations.children[attribute]]
        change(
            state.single,
            attribute,
            combinations.columns[attribute],
            int(state.available[attribute]),
        )


@lean_kernel
def _begin_record(
    state: GrowingState, records: NDArray[np.int32], place: int, empty: NDArray[np.int32]
) -> None:
    """Empty record `place` of `records`; its only member is the empty combination."""
    for column in range(len(empty)):
        records[place, column] = empty[column]
    # no slices here: for each of them compiled code counts the references to every array again
    state.used.fill(False)
    state.decided.fill(False)
    state.is_member[0] = True
    state.number[0] += 1
    state.members[0] = 0
    state.lengths[0] = 0


@lean_kernel
def _grow_record(  # noqa: PLR0917 - compiled code has no names
    combinations: Combinations,
    rules: Rules,
    state: GrowingState,
    records: NDArray[np.int32],
    place: int,
    empty: NDArray[np.int32],
    rng: np.random.Generator,
) -> int:
    """Fill record `place` of `records`; return the number of its columns that were drawn."""
    _begin_record(state, records, place, empty)
    depth = rules.longest
    filled = 0
    candidates, members, total = offer(combinations, state, depth, 1, filled)
    while filled < len(empty):
        if candidates == ALL:
            attribute = draw_free(state.single, state.used, rng.random())
        else:
            attribute = _draw(
                combinations, rules, state, candidates, members, total, filled < depth, rng
            )
        if attribute >= 0:
            records[place, combinations.columns[attribute]] = combinations.values[attribute]
            filled += 1
            first_new = members
            members = _add(combinations, rules, state, attribute, depth, members)
            _ban(combinations, state, attribute, records, place)
            # others have to be released with the first value of a record
            if candidates == ALL and members > first_new:
                candidates = children_of(combinations, state, state.members[first_new])
            if candidates != ALL:
                candidates, total = extend(
                    combinations, state, first_new, members, candidates, filled < depth
                )
        elif depth > rules.shortest:
            depth -= 1
            candidates, members, total = offer(combinations, state, depth, members, filled)
        else:
            break
    return filled


@lean_kernel
def _draw(  # noqa: PLR0917 - compiled code has no names
    combinations: Combinations,
    rules: Rules,
    state: GrowingState,
    candidates: int,
    members: int,
    total: int,
    direct: bool,
    rng: np.random.Generator,
) -> int:
    """Return a candidate drawn by weight; -1 where none has any.

    By rejection (von Neumann 1951): `weights` are bounds of the weights, which add up to `total`. One is drawn by them, and
    taken if the point inside its bound lies below its weight; otherwise that point is its bound from now on. What is taken is
    as likely as its weight says, whatever the bounds.

    Another value of a set that the record has one of waits, its bound below 0, until there is no other candidate: what was
    counted with the first one is drawn before, so that all values of a set occur with the same other values.
    """
    while True:
        chance = rng.random()
        if total == 0:
            for i in range(candidates if len(state.decided) else 0):
                state.weights[i] = abs(state.weights[i])
                total += state.weights[i]
        if total == 0:
            return -1
        point = int(chance * total)
        drawn = 0
        while point >= state.weights[drawn]:
            point -= max(state.weights[drawn], 0)
            drawn += 1
        attribute = int(state.candidates[drawn])
        if is_exact(combinations, state, attribute, direct):
            return attribute
        if _exceeds(combinations, rules, state, attribute, members, point):
            return attribute
        total -= state.weights[drawn] - point
        state.weights[drawn] = point


@lean_kernel
def _exceeds(
    combinations: Combinations,
    rules: Rules,
    state: GrowingState,
    attribute: int,
    members: int,
    point: int,
) -> bool:
    """Return whether the percentile of all counts that an attribute would complete is more than `point`."""
    group = combinations.sets[attribute]
    number = 0
    above = 0
    low = 0
    high = _MOST
    for i in range(members):  # without a branch that cannot be foreseen
        if group >= 0 and state.holding[i, group]:
            continue
        count = int(state.remaining[child_of(combinations, state.members[i], attribute)])
        number += 1
        above += count > point
        high = min(high, count if count > point else _MOST)
        low = max(low, count if count <= point else 0)
    return bool(quantile_exceeds(number, rules.fraction, above, low, high, point))


@lean_kernel
def _add(
    combinations: Combinations,
    rules: Rules,
    state: GrowingState,
    attribute: int,
    depth: int,
    members: int,
) -> int:
    """Put an attribute into the record: add members, and count down all that it completes; return the number of members.

    As long as the record is shorter than the depth, no member is left out, and the last one is the complete record.
    """
    column = combinations.columns[attribute]
    group = combinations.sets[attribute]
    state.available[attribute] -= 1
    weight = 1 if rules.subtract else 0
    if state.available[attribute] == 0 and not rules.subtract:
        weight = int(combinations.counts[combinations.children[attribute]])
    change(state.single, attribute, column, -weight)
    state.used[column] = True
    state.chosen[column] = attribute
    if group >= 0:
        state.is_member[0] &= not state.decided[group]
        state.decided[group] = True
    grown = members
    used_up = 0
    for i in range(members):
        if group >= 0 and state.holding[i, group]:
            continue
        node = child_of(combinations, state.members[i], attribute)
        if rules.subtract:
            state.remaining[node] -= 1
            used_up += state.remaining[node] == 0
        if state.lengths[i] + 1 < depth:
            state.members[grown] = node
            state.lengths[grown] = state.lengths[i] + 1
            for kind in range(len(state.decided)):
                state.holding[grown, kind] = state.holding[i, kind] or kind == group
            grown += 1
    if used_up and combinations.table.shape[1]:
        _close(combinations, state, attribute, members, grown)
    return grown


@lean_kernel
def _close(
    combinations: Combinations,
    state: GrowingState,
    attribute: int,
    members: int,
    grown: int,
) -> None:
    """Mark combinations that an attribute has used up by joining: no part can be extended to them, by any attribute."""
    for i in range(members):
        node = child_of(combinations, state.members[i], attribute)
        if state.remaining[node] == 0:
            state.open[state.members[i], attribute] = 0
            for number in range(members, grown):
                if state.lengths[number] == state.lengths[i]:
                    for chosen in state.chosen:
                        if child_of(combinations, state.members[number], chosen) == node:
                            state.open[state.members[number], chosen] = 0


@lean_kernel
def _ban(
    combinations: Combinations,
    state: GrowingState,
    attribute: int,
    records: NDArray[np.int32],
    place: int,
) -> None:
    """Ban what would complete a forbidden combination: where a rule of `attribute` has all but one in the record."""
    prohibitions = state.prohibitions
    for i in range(prohibitions.of_attribute[attribute], prohibitions.of_attribute[attribute + 1]):
        rule = prohibitions.rules[i]
        lacking = 0
        absent = -1
        for j in range(prohibitions.starts[rule], prohibitions.starts[rule + 1]):
            member = prohibitions.members[j]
            if records[place, combinations.columns[member]] != combinations.values[member]:
                lacking += 1
                absent = member
        if lacking == 1:
            state.banned[absent] = state.number[0]
