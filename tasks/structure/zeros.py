"""Structural zeros of a domain: the cells that no record can be in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Codes, Flags
from marginweave.schemas.configuration.attributes import Attribute, Forbidden, forbidden_codes
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.values import MAX_CELLS
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask
from marginweave.tasks.structure.boxes import implied_pairs

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

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    sizes, allowed = domain_sizes(attributes, labels), dict[Clique, NDArray[np.bool_]]()
    for box in map(sorted, forbidden_codes(forbidden, labels)):
        clique = tuple(attribute for attribute, _ in box)
        if clique not in allowed:
            if math.prod(sizes[a] for a in clique) > MAX_CELLS:
                names = ", ".join(attributes[a].name for a in clique)
                raise InputError(
                    f"structure ties {names} together, which have more than {MAX_CELLS} combinations; use fewer columns"
                )
            allowed[clique] = np.ones([sizes[a] for a in clique], np.bool_)
        allowed[clique][np.ix_(*(codes for _, codes in box))] = False
    return tuple(Mask(attributes=clique, allowed=values) for clique, values in allowed.items())


def broken_records(codes: Sequence[Codes], masks: Sequence[Mask]) -> Flags:
    """Which records have a combination that a mask forbids, shape (records,).

    Of a set any of its values; a code beyond the mask, of a value that is missing where none can be, is none of its business.
    """
    broken = np.zeros(len(codes[0]), np.bool_)
    for mask in masks:
        last = [size - 1 for size in mask.allowed.shape]
        for slots in itertools.product(*(np.atleast_2d(codes[a].T) for a in mask.attributes)):
            known = np.logical_and.reduce([slot <= end for slot, end in zip(slots, last, strict=True)])
            places = tuple(np.minimum(slot, end) for slot, end in zip(slots, last, strict=True))
            broken |= known & ~mask.allowed[places]
    return broken
