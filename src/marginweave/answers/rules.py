"""What rules of a configuration say of an answer: groups that no record can be in, and values that no record of a group has.

DP: arithmetic on public or released labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.base.arrays import Flags, Integers
from marginweave.domain.masks import NeverTogether, StructuralZeros

_MOST_CELLS = 1 << 20
"""Cells of a rule that are looked at for one answer; a larger rule is left out, which makes intervals wider at most."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RuledOut:
    """The structural zeros of what was counted (`counted_masks`), of a domain whose attributes have so many codes."""

    masks: Sequence[StructuralZeros]
    sizes: Sequence[int]

    def allow(self, chosen: Mapping[int, Flags]) -> bool:
        """Whether a record can have one of the chosen codes on each axis, as far as one rule by itself says."""
        if not all(codes.any() for codes in chosen.values()):
            return False
        return all(self._mask_allows(mask, chosen) for mask in self.masks)

    def possible(self, chosen: Mapping[int, Flags]) -> dict[int, Flags]:
        """Of the chosen codes of each axis those that a record can have beside chosen codes of the other axes."""
        found = dict(chosen)
        for axis, codes in chosen.items():
            if self._tied(axis):
                found[axis] = self.possible_codes(axis, codes, chosen)
        return found

    def possible_codes(self, axis: int, codes: Flags, chosen: Mapping[int, Flags]) -> Flags:
        """Of codes of an axis those that a record can have beside chosen codes of other axes."""
        found = codes.copy()
        if self._tied(axis):
            for code in np.flatnonzero(codes).tolist():
                alone = np.zeros(len(codes), np.bool_)
                alone[code] = True
                found[code] = self.allow({**chosen, axis: alone})
        return found

    def _tied(self, axis: int) -> bool:
        return any(axis in mask.attributes for mask in self.masks)

    def _mask_allows(self, mask: StructuralZeros, chosen: Mapping[int, Flags]) -> bool:
        codes = [self._codes(attribute, chosen) for attribute in mask.attributes]
        if isinstance(mask, NeverTogether):
            return not all(own.tolist() == [never] for own, never in zip(codes, mask.codes, strict=True))
        if math.prod(map(len, codes)) > _MOST_CELLS:
            return True
        return bool(mask.table(codes).any())

    def _codes(self, attribute: int, chosen: Mapping[int, Flags]) -> Integers:
        """The codes of an attribute that are chosen; all where nothing is chosen of it."""
        return np.flatnonzero(chosen[attribute]) if attribute in chosen else np.arange(self.sizes[attribute])


NO_RULES = RuledOut(masks=(), sizes=())
