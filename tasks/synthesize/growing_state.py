"""What a record is grown from: the rules, what is forbidden, and the arrays of one shard."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.released.aggregates import IntArray
from marginweave.tasks.synthesize.chances import Chances
from marginweave.tasks.synthesize.combinations import Numbers


class Rules(NamedTuple):
    """What steers the loop: plain numbers, as compiled code wants them."""

    longest: int
    """R, the longest released combination."""
    shortest: int
    """The length down to which a record that cannot grow is relaxed; R for never."""
    records: int
    """How many records to make, or -1 to go on until every attribute is used up."""
    subtract: bool
    """Whether a weight is what is left of a count after the records made so far."""
    fraction: float
    """The weight's percentile as a fraction, in (0, 1]."""
    kept: int
    """How many of the largest counts per attribute the percentile can need; at least 1."""


class Prohibitions(NamedTuple):
    """Combinations of attributes that no record may hold, as a table of rules and a list of the rules of each attribute."""

    starts: IntArray
    """Where the attributes of each rule begin in `members`, shape (rules + 1,)."""
    members: IntArray
    """Attributes of the rules."""
    of_attribute: IntArray
    """Where the rules of each attribute begin in `rules`, shape (attributes + 1,)."""
    rules: IntArray
    """Numbers of rules."""


class State(NamedTuple):
    """Working memory: what is left of the counts, and the record being grown."""

    left: Numbers
    """Weight of each node; below every other that of the empty combination, which stands for all that are not released."""
    available: Numbers
    """How often each attribute may still be used."""
    alone: Chances
    """Weight of each attribute by itself, as long as it may be used."""
    used: NDArray[np.bool_]
    """For each column, whether the record has a value, or a missing value, there."""
    members: IntArray
    """Nodes inside the record that are shorter than the depth; the first one is the empty combination."""
    lengths: IntArray
    """Length of each member."""
    direct: Numbers
    """For each attribute, the weight of the whole record with it, while the depth reaches that far."""
    blocked: NDArray[np.bool_]
    """For each attribute, whether a combination that it would complete is used up."""
    largest: Numbers
    """For each candidate, the largest weights of the combinations it would complete, descending; (attributes, kept)."""
    candidates: IntArray
    """Attributes that extend every member to a released combination, ascending."""
    weights: Numbers
    """Weight of each candidate."""
    banned: IntArray
    """For each attribute, the number of the last record in which it would have completed a forbidden combination."""
    number: IntArray
    """Number of the record being grown, from 1; shape (1,)."""
    prohibitions: Prohibitions
    held: NDArray[np.bool_]
    """For each set, whether the record has drawn a value of it, present or absent."""
    holding: NDArray[np.bool_]
    """Which sets each member has a value of, shape (members, sets)."""
    without: IntArray
    """For each set, how many members have no value of it: those that its attributes can be released with."""
    whole: NDArray[np.bool_]
    """Whether the record has at most one value of every set, so that its own count can be known; shape (1,)."""


@njit(cache=True)
def quantile(descending: Numbers, number: int, fraction: float) -> float:
    """R-8 quantile of `number` counts, the largest of which are given in descending order.

    With h = (n + 1/3) p + 1/3 it is x_(i) + (h - i)(x_(i+1) - x_(i)), i = floor(h), cut off at the extremes (Hyndman and
    Fan 1996, definition 8, as in Synthetic Data Showcase). DP: post-processing.
    """
    position = (number + 1 / 3) * fraction + 1 / 3
    rank = int(position)
    if rank >= number or fraction == 1:
        return float(descending[0])
    if rank <= 0:
        return float(descending[number - 1])
    low, high = descending[number - rank], descending[number - rank - 1]
    return float(low + (position - rank) * (high - low))
