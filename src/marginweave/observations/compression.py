"""Compression: rare values that are measured together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.marginals import MarginalSettings
from marginweave.domain.masks import StructuralZeros, alike
from marginweave.observations.tables import Observation
from marginweave.prepare.codes import Codes, code_type


def released_compression(
    one_way: Sequence[Observation], settings: MarginalSettings, masks: Sequence[StructuralZeros]
) -> Compression:
    """Return which rare values are measured together. DP: post-processing of the one-way marginals."""
    multiple = -math.inf if settings.compress == "none" else settings.compress
    return plan_compression(one_way, multiple, masks)


@dataclass(frozen=True, kw_only=True, eq=False)
class Compression:
    """For each attribute the new code of every code, and the noisy counts that distinguish the merged codes."""

    codes: tuple[Integers, ...]
    counts: tuple[Floats, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute after merging."""
        return tuple(int(new.max()) + 1 for new in self.codes)

    def with_last(self, last_counts: Mapping[int, float]) -> Compression:
        """Return it with one more code, the last, of the attributes of `last_counts`, with these counts; merged with none."""
        codes = list(self.codes)
        counts = list(self.counts)
        for attribute, count in last_counts.items():
            codes[attribute] = np.append(codes[attribute], self.sizes[attribute])
            counts[attribute] = np.append(counts[attribute], count)
        return Compression(codes=tuple(codes), counts=tuple(counts))


def plan_compression(
    one_way: Sequence[Observation],
    multiple: float = 3.0,
    masks: Sequence[StructuralZeros] = (),
) -> Compression:
    """Merge the values of an attribute whose noisy count is below `multiple` standard deviations (PrivSyn: theta = 3 sigma).

    Values that a mask treats differently remain separate, so that a forbidden combination is forbidden after merging, too.
    The merged value comes last; a single rare value remains as it is.

    Args:
        one_way: one marginal for each attribute, in order of attributes.
        multiple: threshold in standard deviations; 0 merges only values that are measured below 0.
        masks: structural zeros, over the codes before merging.

    Returns:
        The new codes. DP: post-processing.

    Raises:
        InputError: the marginals are not those of attributes 0, 1, 2, ….
    """
    expected = [(a,) for a in range(len(one_way))]
    if [marginal.attributes for marginal in one_way] != expected:
        raise InputError("one_way must have one marginal for each attribute, in order")
    counts = tuple(m.counts.astype(np.float64) for m in one_way)
    codes = []
    for attribute, marginal in enumerate(one_way):
        counts_of_attribute = counts[attribute]
        least = multiple * marginal.deviation
        is_rare = counts_of_attribute < least
        kinds = alike(attribute, len(counts_of_attribute), masks)
        codes.append(_merge(is_rare, kinds))
    return Compression(codes=tuple(codes), counts=counts)


def compress_codes(codes: Sequence[Codes], compression: Compression) -> tuple[Codes, ...]:
    """Return the rows in the new codes, one array of shape (rows,) for each attribute. Private: 1-stable, row by row."""
    compressed = []
    for new_code, codes_of_rows in zip(compression.codes, codes, strict=True):
        kind = code_type(len(new_code))
        new_code_in_kind = new_code.astype(kind)
        compressed.append(new_code_in_kind[codes_of_rows])
    return tuple(compressed)


def compress_observation(one_way: Observation, compression: Compression) -> Observation:
    """Return the marginal of one attribute over its new codes; a merged cell has a little more noise than `deviation` says.

    DP: post-processing.
    """
    (attribute,) = one_way.attributes
    counts = np.bincount(compression.codes[attribute], weights=one_way.counts)
    return replace(one_way, counts=counts)


def compress_mask(mask: StructuralZeros, compression: Compression) -> StructuralZeros:
    """Return the mask over new codes: exact, because merged values have the same zeros. DP: arithmetic on released codes."""
    first_codes = []
    for attribute in mask.attributes:
        _, first = np.unique(compression.codes[attribute], return_index=True)
        first_codes.append(first)
    return mask.over(first_codes)


def _merge(rare: Flags, kinds: Integers) -> Integers:
    """Return new codes: values that are not merged, in order, then one code for each kind of two and more rare values."""
    rare_of_kind = np.bincount(kinds, weights=rare)
    is_merged = rare & (rare_of_kind[kinds] > 1)
    unmerged = int((~is_merged).sum())
    new = np.empty(len(rare), np.int64)
    new[~is_merged] = np.arange(unmerged)
    _, number_of_kind = np.unique(kinds[is_merged], return_inverse=True)
    new[is_merged] = unmerged + number_of_kind
    return new
