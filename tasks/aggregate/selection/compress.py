"""Values too rare to tell from noise are measured together; `synthesize.gum.expand` tells them apart again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Mask, Measurement
from marginweave.tasks.encode.codes import Codes, code_type


@dataclass(frozen=True, kw_only=True, eq=False)
class Compression:
    """For each attribute the new code of every code, and the noisy counts by which the merged ones are told apart."""

    codes: tuple[NDArray[np.int64], ...]
    counts: tuple[NDArray[np.float64], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute after merging."""
        return tuple(int(new.max()) + 1 for new in self.codes)


def plan_compression(one_way: Sequence[Measurement], multiple: float = 3.0, masks: Sequence[Mask] = ()) -> Compression:
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
        _merge(counts[a] < multiple * m.deviation, _kinds(a, len(counts[a]), masks)) for a, m in enumerate(one_way)
    )
    return Compression(codes=codes, counts=counts)


def compress_codes(codes: Sequence[Codes], compression: Compression) -> tuple[Codes, ...]:
    """The rows in the new codes, one array of shape (rows,) an attribute. Private: 1-stable, row by row."""
    return tuple(new.astype(code_type(len(new)))[old] for new, old in zip(compression.codes, codes, strict=True))


def compress_measurement(one_way: Measurement, compression: Compression) -> Measurement:
    """The marginal of one attribute over its new codes; a merged cell has a little more noise than `deviation` says.

    DP: post-processing.
    """
    (attribute,) = one_way.attributes
    return replace(one_way, counts=np.bincount(compression.codes[attribute], weights=one_way.counts))


def compress_mask(mask: Mask, compression: Compression) -> Mask:
    """The mask over the new codes: exact, because merged values have the same zeros. DP: arithmetic on released codes."""
    allowed = mask.allowed
    for axis, attribute in enumerate(mask.attributes):
        first = np.unique(compression.codes[attribute], return_index=True)[1]
        allowed = np.take(allowed, first, axis=axis)
    return Mask(attributes=mask.attributes, allowed=allowed)


def _merge(rare: NDArray[np.bool_], kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """New codes: values that are not merged in their order, then one code for each kind of two and more rare values."""
    together = rare & (np.bincount(kinds, weights=rare)[kinds] > 1)
    new = np.empty(len(rare), np.int64)
    new[~together] = np.arange(int((~together).sum()))
    merged = np.unique(kinds[together], return_inverse=True)[1]
    new[together] = int((~together).sum()) + merged
    return new


def _kinds(attribute: int, size: int, masks: Sequence[Mask]) -> NDArray[np.int64]:
    """A number for each value of an attribute, the same for values that no mask tells apart; shape (size,)."""
    patterns: list[list[bytes]] = [[] for _ in range(size)]
    for mask in masks:
        if attribute in mask.attributes:
            axis = mask.attributes.index(attribute)
            for value in range(size):
                patterns[value].append(np.take(mask.allowed, value, axis=axis).tobytes())
    numbers: defaultdict[tuple[bytes, ...], int] = defaultdict(lambda: len(numbers))
    return np.array([numbers[tuple(pattern)] for pattern in patterns], np.int64)
