"""The sampling loop of aggregate-seeded synthesis, compiled: attributes are drawn until a record cannot grow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.aggregates import IntArray
from marginweave.tasks.synthesize.combinations import Combinations


class Rules(NamedTuple):
    """What steers the loop: plain numbers, as compiled code wants them."""

    length: int
    """R, the longest released combination."""
    records: int
    """How many records to make, or -1 to go on until every attribute is used up."""
    subtract: bool
    """Whether a weight is what is left of a count after the records made so far."""
    fraction: float
    """The weight's percentile as a fraction, in (0, 1]."""
    kept: int
    """How many of the largest counts per attribute the percentile can need; at least 1."""


class State(NamedTuple):
    """Working memory: what is left of the counts, and the record being grown."""

    left: IntArray
    """Weight of each node."""
    available: IntArray
    """How often each attribute may still be used."""
    members: IntArray
    """Nodes of length below R inside the record; the first one is the empty combination."""
    lengths: IntArray
    """Length of each member."""
    hits: IntArray
    """For each attribute, how many members it extends to a released combination."""
    direct: IntArray
    """For each attribute, the weight of the whole record with it, while that is at most R long."""
    blocked: NDArray[np.bool_]
    """For each attribute, whether a combination that it would complete is used up."""
    largest: IntArray
    """For each attribute, the largest weights of the combinations it would complete, descending; (attributes, kept)."""
    candidates: IntArray
    """Attributes that may still be released together with the record."""
    weights: IntArray
    """Weight of each candidate."""


@njit(cache=True)
def quantile(descending: IntArray, number: int, fraction: float) -> float:
    """R-8 quantile of `number` counts, the largest of which are given in descending order.

    With h = (n + 1/3) p + 1/3 it is x_(i) + (h - i)(x_(i+1) - x_(i)), i = floor(h), cut off at the extremes (Hyndman and
    Fan 1996, definition 8; sds-dp.md 4.2.2 by way of the reference implementation). DP: post-processing.
    """
    position = (number + 1 / 3) * fraction + 1 / 3
    rank = int(position)
    if rank >= number or fraction == 1:
        return float(descending[0])
    if rank <= 0:
        return float(descending[number - 1])
    low, high = descending[number - rank], descending[number - rank - 1]
    return low + (position - rank) * (high - low)


@njit(cache=True)
def grow_records(
    combinations: Combinations, rules: Rules, state: State, record: NDArray[np.int32], rng: np.random.Generator
) -> NDArray[np.int32]:
    """Make records by the rules; see `synthesize_records`. `record` is an empty record, shape (columns,)."""
    used_up = np.sum(state.available) == 0
    unlimited = rules.records < 0
    records = np.empty((1024 if unlimited else rules.records, len(record)), np.int32)
    made = 0
    while (unlimited and not used_up) or made < rules.records:
        if used_up:
            state.left[:] = combinations.counts
            state.available[:] = combinations.counts[1 : 1 + len(state.available)]
        if made == len(records):
            grown = np.empty((2 * made, len(record)), np.int32)
            grown[:made] = records
            records = grown
        records[made] = record
        taken = _grow_record(combinations, rules, state, records[made], rng)
        made += 1
        used_up = taken == 0 or np.sum(state.available) == 0
    return records[:made].copy()


@njit(cache=True)
def _grow_record(
    combinations: Combinations, rules: Rules, state: State, record: NDArray[np.int32], rng: np.random.Generator
) -> int:
    """Fill one record in place; returns how many attributes it has."""
    state.hits[:] = 0
    state.blocked[:] = False
    candidates = 0
    for attribute in range(len(state.available)):
        if state.available[attribute] > 0:
            state.candidates[candidates] = attribute
            candidates += 1
    state.members[0], state.lengths[0] = 0, 0
    members, taken = 1, 0
    _extend(combinations, rules, state, 0, 0, True)
    while candidates > 0:
        candidates, attribute = _draw(rules, state, candidates, members, taken + 1, rng)
        if attribute < 0:
            break
        record[combinations.columns[attribute]] = combinations.values[attribute]
        members = _add(combinations, rules, state, attribute, members, taken)
        taken += 1
    return taken


@njit(cache=True)
def _draw(
    rules: Rules, state: State, candidates: int, members: int, length: int, rng: np.random.Generator
) -> tuple[int, int]:
    """Drop the candidates that cannot join any more and draw one by weight; -1 where none has weight."""
    kept, total = 0, 0
    for i in range(candidates):
        attribute = state.candidates[i]
        if state.hits[attribute] < members:
            continue
        if length <= rules.length:
            weight = state.direct[attribute]
        elif state.blocked[attribute]:
            continue
        else:
            weight = int(np.floor(quantile(state.largest[attribute], members, rules.fraction) + 0.5))
        state.candidates[kept] = attribute
        state.weights[kept] = max(weight, 0)
        total += state.weights[kept]
        kept += 1
    if total == 0:
        return kept, -1
    point = rng.random() * total
    for i in range(kept):
        point -= state.weights[i]
        if point < 0:
            return kept, state.candidates[i]
    return kept, state.candidates[kept - 1]


@njit(cache=True)
def _add(
    combinations: Combinations, rules: Rules, state: State, attribute: int, members: int, taken: int
) -> int:
    """Put an attribute into the record: new members, their candidates, and one less of everything it completes."""
    state.available[attribute] -= 1
    grown = members
    for i in range(members):
        node = _child(combinations, state.members[i], attribute)
        if rules.subtract:
            state.left[node] -= 1
        if state.lengths[i] <= rules.length - 2:
            state.members[grown], state.lengths[grown] = node, state.lengths[i] + 1
            _extend(combinations, rules, state, node, grown, state.lengths[i] == taken)
            grown += 1
    return grown


@njit(cache=True)
def _child(combinations: Combinations, node: int, attribute: int) -> int:
    """Number of the combination node + attribute, which must exist."""
    low, high = combinations.starts[node], combinations.starts[node + 1]
    place = low + np.searchsorted(combinations.extensions[low:high], attribute)
    return combinations.children[place]


@njit(cache=True)
def _extend(combinations: Combinations, rules: Rules, state: State, node: int, earlier: int, whole: bool) -> None:
    """Tell every attribute that extends `node`, the record's member number `earlier`; `whole` if it is all of the record."""
    for place in range(combinations.starts[node], combinations.starts[node + 1]):
        attribute = combinations.extensions[place]
        if state.hits[attribute] != earlier:
            continue  # a smaller combination is not released already
        weight = state.left[combinations.children[place]]
        state.hits[attribute] += 1
        state.blocked[attribute] |= weight <= 0
        if whole:
            state.direct[attribute] = weight
        row = state.largest[attribute]
        i = min(earlier, rules.kept - 1)
        if earlier >= rules.kept and weight <= row[i]:
            continue
        while i > 0 and row[i - 1] < weight:
            row[i] = row[i - 1]
            i -= 1
        row[i] = weight
