"""Holds the data that a record is grown from: rules, forbidden combinations, weights, and the working memory of a shard."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.base.compiled import lean_kernel
from marginweave.records.combinations import Numbers


class Chances(NamedTuple):
    """Weights of attributes, column by column, and their sums."""

    weights: Integers  # of each attribute, shape (attributes,)
    sums: Integers  # of the weights of each column, shape (columns,)
    starts: Integers  # where the attributes of each column begin, shape (columns + 1,)

    @classmethod
    def of(cls, columns: NDArray[np.int32], width: int) -> Chances:
        """Return chances without any weight; `columns` has the column of each attribute, ascending."""
        return cls(
            weights=np.zeros(len(columns), np.int64),
            sums=np.zeros(width, np.int64),
            starts=np.searchsorted(columns, np.arange(width + 1)).astype(np.int64),
        )


@lean_kernel
def change(chances: Chances, attribute: int, column: int, by: int) -> None:
    """Add to the weight of an attribute of a column."""
    chances.weights[attribute] += by
    chances.sums[column] += by


@lean_kernel
def draw_free(chances: Chances, used: Flags, chance: float) -> int:
    """Return an attribute of a column that is not used, by weight, from a uniform number in [0, 1); -1 if none has weight.

    The first a for which the weights up to a exceed floor(chance * sum). DP: post-processing.
    """
    total = 0
    for column in range(len(used)):
        if not used[column]:
            total += chances.sums[column]
    if total == 0:
        return -1
    point = min(int(chance * total), total - 1)
    column = 0
    while used[column] or point >= chances.sums[column]:
        point -= 0 if used[column] else int(chances.sums[column])
        column += 1
    attribute = chances.starts[column]
    while point >= chances.weights[attribute]:
        point -= int(chances.weights[attribute])
        attribute += 1
    return int(attribute)


@lean_kernel
def has_any(chances: Chances) -> bool:
    """Return whether any attribute has weight."""
    total = 0
    for column in range(len(chances.sums)):
        total += chances.sums[column]
    return total > 0


class Rules(NamedTuple):
    """Settings of the sampling loop as plain numbers, for compiled code."""

    longest: int  # R, the longest released combination
    shortest: int  # the length down to which a record that cannot grow is relaxed; R for never
    # the number of records to make, or -1 to make records until every attribute is used up
    records: int
    subtract: bool  # whether weights are the remainders of counts after the records made before
    fraction: float  # the weight's percentile as a fraction, in (0, 1]


class Prohibitions(NamedTuple):
    """Combinations of attributes that no record may hold, as a table of rules and a list of the rules of each attribute."""

    starts: Integers  # where the attributes of each rule begin in `members`, shape (rules + 1,)
    members: Integers  # attributes of the rules
    # where the rules of each attribute begin in `rules`, shape (attributes + 1,)
    of_attribute: Integers
    rules: Integers  # numbers of rules


class GrowingState(NamedTuple):
    """Working memory: the remaining counts, and the record being grown."""

    # weight of each node; node 0 is the empty combination and, in `child_of`, all that are not released: below every other
    remaining: Numbers
    available: Numbers  # how often each attribute may still be used
    single: Chances  # weight of each attribute by itself, as long as it may be used
    used: Flags  # for each column, whether the record has a value, or a missing value, there
    # nodes inside the record that are shorter than the depth; the first one is the empty combination
    members: Integers
    lengths: Integers  # length of each member
    chosen: Integers  # for each column, an attribute that the record may have
    # for each node and attribute, whether it extends the node to something that is not used up, shape (inner nodes,
    # attributes); empty without a table
    open: NDArray[np.uint8]
    alive: NDArray[np.uint8]  # for each attribute, whether that is so for all members
    candidates: Integers  # attributes that extend every member to a released combination, ascending
    weights: Integers  # upper bound of the weight of each candidate
    # for each attribute, the number of the last record in which it would have completed a forbidden combination
    banned: Integers
    number: Integers  # number of the record being grown, from 1; shape (1,)
    prohibitions: Prohibitions
    decided: Flags  # for each set, whether the record has drawn a value of it, present or absent
    holding: Flags  # which sets each member has a value of, shape (members, sets)
    # whether the complete record is a member: it has at most one value of every set, so its count can be known; shape (1,)
    is_member: Flags


@lean_kernel
def quantile_exceeds(
    number: int,
    fraction: float,
    above: int,
    low: int,
    high: int,
    point: int,
) -> bool:
    """Return whether the R-8 quantile of `number` counts, rounded to the nearest integer, is more than `point`.

    With h = (n + 1/3) p + 1/3 it is x_(i) + (h - i)(x_(i+1) - x_(i)), i = floor(h), cut off at the extremes (Hyndman and
    Fan 1996, definition 8, as in Synthetic Data Showcase). `above` counts are more than `point`, the least of which is `high`;
    `low` is the largest of the others. DP: post-processing.
    """
    position = (number + 1 / 3) * fraction + 1 / 3
    rank = int(position)
    if fraction == 1:
        rank = number
    if 0 < rank < number and above == number - rank:
        quantile = low + (position - rank) * (high - low)
        return quantile >= point + 0.5
    return above > max(number - max(rank, 1), 0)
