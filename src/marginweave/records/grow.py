"""The sampling loop of aggregate-seeded synthesis, compiled: attributes are drawn until a record cannot grow."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.records.candidates import ALL, child_of, children_of, extend, is_exact, offer
from marginweave.records.combinations import Combinations
from marginweave.records.growing_state import GrowingState, Rules, change, draw_free, has_any, lean, quantile_exceeds

_NONE = np.iinfo(np.int32).min  # below every weight
_MOST = int(np.iinfo(np.int64).max)


@njit(cache=True, nogil=True)
def grow_records(
    combinations: Combinations, rules: Rules, state: GrowingState, empty: NDArray[np.int32], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Make records by the rules; `empty` is the record without any value. DP: post-processing."""
    unlimited = rules.records < 0
    records = np.empty((1024 if unlimited else rules.records, len(empty)), np.int32)
    made = 0
    _refill(combinations, state)
    while made < rules.records or (unlimited and has_any(state.alone)):
        if made == len(records):
            records = np.concatenate((records, np.empty((made, len(empty)), np.int32)))
        filled = _grow_record(combinations, rules, state, records, made, empty, rng)
        if unlimited and filled == 0:
            break
        made += 1
        if not unlimited and (filled == 0 or not has_any(state.alone)):
            _refill(combinations, state)
    return records[:made].copy()


@njit(cache=True)
def _refill(combinations: Combinations, state: GrowingState) -> None:
    """Begin again with the released counts."""
    state.left[:] = combinations.counts
    state.left[0] = _NONE
    for attribute in range(combinations.table.shape[0]):
        for node in range(combinations.table.shape[1]):
            state.open[node, attribute] = state.left[combinations.table[attribute, node]] > 0
    state.alone.weights[:] = 0
    state.alone.sums[:] = 0
    for attribute in range(len(state.available)):
        state.available[attribute] = combinations.counts[combinations.children[attribute]]
        change(state.alone, attribute, combinations.columns[attribute], int(state.available[attribute]))


@lean
def _grow_record(  # noqa: PLR0917 - compiled code has no names
    combinations: Combinations,
    rules: Rules,
    state: GrowingState,
    records: NDArray[np.int32],
    made: int,
    empty: NDArray[np.int32],
    rng: np.random.Generator,
) -> int:
    """Fill record `made` in place; returns how many of its columns were drawn."""
    for column in range(len(empty)):
        records[made, column] = empty[column]
    state.used.fill(False)  # no slices here: for each of them compiled code counts the references to every array again
    state.decided.fill(False)
    state.whole[0] = True
    state.number[0] += 1
    state.members[0], state.lengths[0] = 0, 0
    depth, filled = rules.longest, 0
    candidates, members, total = offer(combinations, state, depth, 1, filled)
    while filled < len(empty):
        if candidates == ALL:
            attribute = draw_free(state.alone, state.used, rng.random())
        else:
            attribute = _draw(combinations, rules, state, candidates, members, total, filled < depth, rng)
        if attribute >= 0:
            records[made, combinations.columns[attribute]] = combinations.values[attribute]
            filled += 1
            known, members = members, _add(combinations, rules, state, attribute, depth, members)
            _ban(combinations, state, attribute, records, made)
            if candidates == ALL and members > known:  # others have to be released with the first value of a record
                candidates = children_of(combinations, state, state.members[known])
            if candidates != ALL:
                candidates, total = extend(combinations, state, known, members, candidates, filled < depth)
        elif depth > rules.shortest:
            depth -= 1
            candidates, members, total = offer(combinations, state, depth, members, filled)
        else:
            break
    return filled


@lean
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
    """Draw a candidate by weight; -1 where none has any.

    By rejection (von Neumann 1951): `weights` are bounds of the weights, which add up to `total`. One is drawn by them, and
    taken if the point inside its bound lies below its weight; otherwise that point is its bound from now on. What is taken is
    as likely as its weight says, whatever the bounds.

    Another value of a set that the record has one of waits, its bound below 0, until nothing else is left: what was counted
    with the first one is drawn before, so that all values of a set meet the same company.
    """
    found = -1
    while found < 0:
        chance = rng.random()
        if total == 0:
            for i in range(candidates if len(state.decided) else 0):
                state.weights[i] = abs(state.weights[i])
                total += state.weights[i]
        if total == 0:
            break
        point, drawn = int(chance * total), 0
        while point >= state.weights[drawn]:
            point -= max(state.weights[drawn], 0)
            drawn += 1
        attribute = int(state.candidates[drawn])
        if is_exact(combinations, state, attribute, direct) or _exceeds(
            combinations, rules, state, attribute, members, point
        ):
            found = attribute
        else:
            total -= state.weights[drawn] - point
            state.weights[drawn] = point
    return found


@lean
def _exceeds(
    combinations: Combinations, rules: Rules, state: GrowingState, attribute: int, members: int, point: int
) -> bool:
    """Whether the percentile of all that an attribute would complete is more than `point`."""
    group, above, known = combinations.sets[attribute], 0, 0
    low, high = 0, _MOST
    for i in range(members):  # without a branch that cannot be foreseen
        if group >= 0 and state.holding[i, group]:
            continue
        part = int(state.left[child_of(combinations, state.members[i], attribute)])
        known += 1
        above += part > point
        high = min(high, part if part > point else _MOST)
        low = max(low, part if part <= point else 0)
    return bool(quantile_exceeds(known, rules.fraction, above, low, high, point))


@lean
def _add(
    combinations: Combinations, rules: Rules, state: GrowingState, attribute: int, depth: int, members: int
) -> int:
    """Put an attribute into the record: new members, and one less of everything it completes; how many members there are.

    As long as the record is shorter than the depth, no member is left out, and the last one is the whole record.
    """
    state.available[attribute] -= 1
    weight = 1 if rules.subtract else 0
    if state.available[attribute] == 0 and not rules.subtract:
        weight = int(combinations.counts[combinations.children[attribute]])
    change(state.alone, attribute, combinations.columns[attribute], -weight)
    state.used[combinations.columns[attribute]] = True
    state.chosen[combinations.columns[attribute]] = attribute
    group = combinations.sets[attribute]
    if group >= 0:
        state.whole[0] &= not state.decided[group]
        state.decided[group] = True
    grown, ended = members, 0
    for i in range(members):
        if group >= 0 and state.holding[i, group]:
            continue
        node = child_of(combinations, state.members[i], attribute)
        if rules.subtract:
            state.left[node] -= 1
            ended += state.left[node] == 0
        if state.lengths[i] + 1 < depth:
            state.members[grown], state.lengths[grown] = node, state.lengths[i] + 1
            for kind in range(len(state.decided)):
                state.holding[grown, kind] = state.holding[i, kind] or kind == group
            grown += 1
    if ended and combinations.table.shape[1]:
        _close(combinations, state, attribute, members, grown)
    return grown


@lean
def _close(combinations: Combinations, state: GrowingState, attribute: int, members: int, grown: int) -> None:
    """Note of what an attribute has used up by joining that no part of it is extended to it any more, by whatever attribute."""
    for i in range(members):
        node = child_of(combinations, state.members[i], attribute)
        if state.left[node] == 0:
            state.open[state.members[i], attribute] = 0
            for number in range(members, grown):
                if state.lengths[number] == state.lengths[i]:
                    for other in state.chosen:
                        if child_of(combinations, state.members[number], other) == node:
                            state.open[state.members[number], other] = 0


@lean
def _ban(
    combinations: Combinations, state: GrowingState, attribute: int, records: NDArray[np.int32], made: int
) -> None:
    """Ban what would complete a forbidden combination: where a rule of `attribute` has all but one in the record."""
    given = state.prohibitions
    for place in range(given.of_attribute[attribute], given.of_attribute[attribute + 1]):
        rule = given.rules[place]
        lacking, absent = 0, -1
        for i in range(given.starts[rule], given.starts[rule + 1]):
            member = given.members[i]
            if records[made, combinations.columns[member]] != combinations.values[member]:
                lacking, absent = lacking + 1, member
        if lacking == 1:
            state.banned[absent] = state.number[0]
