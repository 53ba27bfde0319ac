"""Structural zeros of a domain: the cells that no record can be in."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from marginweave.base.arrays import Codes, Flags, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute, Forbidden, forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import MAX_CELLS
from marginweave.domain.boxes import implied_pairs
from marginweave.measurements.tables import Clique, Mask

Labels = Sequence[Sequence[str]]


def domain_sizes(attributes: Sequence[Attribute], labels: Labels) -> tuple[int, ...]:
    """Number of codes of each attribute: its values, and the missing one where a record can lack it.

    In a private domain what was not released is missing as well. DP: arithmetic on public or released labels.
    """
    return tuple(
        len(values) + (attribute.optional or attribute.private)
        for attribute, values in zip(attributes, labels, strict=True)
    )


def structural_masks(configuration: Configuration, labels: Labels) -> tuple[Mask, ...]:
    """The cells that no record can be in, by rules, by pairs that follow from several of them, or as a value is never missing.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    sizes, alone = domain_sizes(configuration.attributes, labels), []
    for j, attribute in enumerate(configuration.attributes):
        if attribute.private and not attribute.optional and labels[j]:
            alone.append(Mask(attributes=(j,), allowed=np.arange(sizes[j]) < len(labels[j])))
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    return (*masks, *implied_pairs(sizes, masks), *alone)


def rule_masks(forbidden: Iterable[Forbidden], attributes: Sequence[Attribute], labels: Labels) -> tuple[Mask, ...]:
    """What is excluded as masks, one for all that excludes combinations of the same attributes.

    Values that no combination tells apart are one kind. DP: arithmetic on public or released labels. Raises InputError for a
    set of attributes with too many combinations of kinds.
    """
    sizes, found = domain_sizes(attributes, labels), defaultdict[Clique, list[list[tuple[int, ...]]]](list)
    for box in map(sorted, forbidden_codes(forbidden, labels)):
        found[tuple(a for a, _ in box)].append([codes for _, codes in box])
    masks = []
    for clique, boxes in found.items():
        kinds = tuple(_kinds(sizes[a], axis) for a, axis in zip(clique, zip(*boxes, strict=True), strict=True))
        shape = [int(own.max()) + 1 for own in kinds]
        if math.prod(shape) > MAX_CELLS:
            names = ", ".join(attributes[a].name for a in clique)
            raise InputError(
                f"structure ties {names} together, which have more than {MAX_CELLS} combinations that rules tell apart; use "
                "fewer columns, rules or values"
            )
        mask = Mask(attributes=clique, allowed=np.ones(shape, np.bool_), kinds=kinds)
        for codes in boxes:
            inside = (np.unique(own[np.array(axis)]) for own, axis in zip(kinds, codes, strict=True))
            mask.allowed[np.ix_(*inside)] = False
        masks.append(replace(mask))  # refuses one that allows nothing
    return tuple(masks)


def _kinds(size: int, boxes: Iterable[Sequence[int]]) -> Integers:
    """The kind of each code, the same where it lies in the same ones of these lists; shape (size,)."""
    inside: list[list[int]] = [[] for _ in range(size)]
    for number, codes in enumerate(boxes):
        for code in codes:
            inside[code].append(number)
    numbers: defaultdict[tuple[int, ...], int] = defaultdict(lambda: len(numbers))
    return np.array([numbers[tuple(lists)] for lists in inside], np.int64)


def broken_records(codes: Sequence[Codes], masks: Sequence[Mask]) -> Flags:
    """Which records have a combination that a mask forbids, shape (records,).

    Of a set any of its values; a code beyond the mask, of a value that is missing where none can be, is none of its business.
    """
    broken = np.zeros(len(codes[0]), np.bool_)
    for mask in masks:
        last = [size - 1 for size in mask.sizes]
        for slots in itertools.product(*(np.atleast_2d(codes[a].T) for a in mask.attributes)):
            known = np.logical_and.reduce([slot <= end for slot, end in zip(slots, last, strict=True)])
            places = tuple(np.minimum(slot, end) for slot, end in zip(slots, last, strict=True))
            broken |= known & ~mask.allowed[mask.kinds_of(places)]
    return broken
