"""Rare values that are measured together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.base.errors import InputError
from marginweave.configuration.marginals import MarginalSettings
from marginweave.domain.masks import StructuralZeros, alike
from marginweave.observations.tables import Observation
from marginweave.prepare.codes import Codes, code_type


def released_compression(
    one_way: Sequence[Observation], settings: MarginalSettings, masks: Sequence[StructuralZeros]
) -> Compression:
    """Which rare values are measured together. DP: post-processing of the one-way marginals."""
    return plan_compression(one_way, -math.inf if settings.compress == "none" else settings.compress, masks)


@dataclass(frozen=True, kw_only=True, eq=False)
class Compression:
    """For each attribute the new code of every code, and the noisy counts by which the merged ones are told apart."""

    codes: tuple[NDArray[np.int64], ...]
    counts: tuple[NDArray[np.float64], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute after merging."""
        return tuple(int(new.max()) + 1 for new in self.codes)

    def with_last(self, more: Mapping[int, float]) -> Compression:
        """The same with one code more of some attributes, behind all others and merged with none; `more` has their counts."""
        codes, counts = list(self.codes), list(self.counts)
        for attribute, count in more.items():
            codes[attribute] = np.append(codes[attribute], self.sizes[attribute])
            counts[attribute] = np.append(counts[attribute], count)
        return Compression(codes=tuple(codes), counts=tuple(counts))


def plan_compression(
    one_way: Sequence[Observation], multiple: float = 3.0, masks: Sequence[StructuralZeros] = ()
) -> Compression:
    """Merge the values of an attribute whose noisy count is below `multiple` standard deviations (PrivSyn: theta = 3 sigma).

    Values that a mask treats differently stay apart, so that a forbidden combination is forbidden after merging, too.
    The merged value comes last; a single rare value stays as it is.

    Args:
        one_way: one marginal an attribute, in order of attributes.
        multiple: threshold in standard deviations; 0 merges nothing but what is measured below 0.
        masks: structural zeros, over the codes before merging.

    Returns:
        The new codes. DP: post-processing.

    Raises:
        InputError: the marginals are not those of attributes 0, 1, 2, ….
    """
    if [m.attributes for m in one_way] != [(a,) for a in range(len(one_way))]:
        raise InputError("one_way must have one marginal for each attribute, in order")
    counts = tuple(m.counts.astype(np.float64) for m in one_way)
    codes = tuple(
        _merge(counts[a] < multiple * m.deviation, alike(a, len(counts[a]), masks)) for a, m in enumerate(one_way)
    )
    return Compression(codes=codes, counts=counts)


def compress_codes(codes: Sequence[Codes], compression: Compression) -> tuple[Codes, ...]:
    """The rows in the new codes, one array of shape (rows,) an attribute. Private: 1-stable, row by row."""
    return tuple(new.astype(code_type(len(new)))[old] for new, old in zip(compression.codes, codes, strict=True))


def compress_observation(one_way: Observation, compression: Compression) -> Observation:
    """The marginal of one attribute over its new codes; a merged cell has a little more noise than `deviation` says.

    DP: post-processing.
    """
    (attribute,) = one_way.attributes
    return replace(one_way, counts=np.bincount(compression.codes[attribute], weights=one_way.counts))


def compress_mask(mask: StructuralZeros, compression: Compression) -> StructuralZeros:
    """The mask over the new codes: exact, because merged values have the same zeros. DP: arithmetic on released codes."""
    first = [np.unique(compression.codes[attribute], return_index=True)[1] for attribute in mask.attributes]
    return mask.over(first)


def _merge(rare: NDArray[np.bool_], kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """New codes: values that are not merged in their order, then one code for each kind of two and more rare values."""
    together = rare & (np.bincount(kinds, weights=rare)[kinds] > 1)
    new = np.empty(len(rare), np.int64)
    new[~together] = np.arange(int((~together).sum()))
    merged = np.unique(kinds[together], return_inverse=True)[1]
    new[together] = int((~together).sum()) + merged
    return new
