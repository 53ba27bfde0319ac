"""Rules of a configuration applied to answers: groups that no record can be in, and values that no record of a group has.

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
class AnswerRules:
    """The rules of the counted tables (`counted_masks`); `sizes` are the numbers of codes of the attributes."""

    rules: Sequence[StructuralZeros]
    sizes: Sequence[int]

    def allow(self, chosen: Mapping[int, Flags]) -> bool:
        """Return whether a record can have one of the chosen codes on each axis.

        Each rule is looked at by itself: True may be wrong where only several rules together forbid such a record.
        """
        if not all(codes.any() for codes in chosen.values()):
            return False
        return all(self._rule_allows(rule, chosen) for rule in self.rules)

    def possible(self, chosen: Mapping[int, Flags]) -> dict[int, Flags]:
        """Return the chosen codes of each axis that a record can have together with chosen codes of the other axes."""
        possible = dict(chosen)
        for axis, codes in chosen.items():
            if self._is_ruled(axis):
                possible[axis] = self.possible_codes(axis, codes, chosen)
        return possible

    def possible_codes(
        self,
        axis: int,
        codes: Flags,
        chosen: Mapping[int, Flags],
    ) -> Flags:
        """Return the `codes` of an axis that a record can have together with chosen codes of the other axes."""
        possible = codes.copy()
        if not self._is_ruled(axis):
            return possible
        for code in np.flatnonzero(codes).tolist():
            single_code = np.zeros(len(codes), np.bool_)
            single_code[code] = True
            possible[code] = self.allow({**chosen, axis: single_code})
        return possible

    def _is_ruled(self, axis: int) -> bool:
        """Return whether a rule is about this axis."""
        return any(axis in rule.attributes for rule in self.rules)

    def _rule_allows(self, rule: StructuralZeros, chosen: Mapping[int, Flags]) -> bool:
        """Return whether one rule allows a record with chosen codes; True for a rule too large to look at."""
        codes = [self._codes(attribute, chosen) for attribute in rule.attributes]
        if isinstance(rule, NeverTogether):
            # The rule forbids the record where its forbidden code is the only choice on every axis.
            pairs = zip(codes, rule.codes, strict=True)
            return not all(
                chosen_codes.tolist() == [forbidden_code] for chosen_codes, forbidden_code in pairs
            )
        if math.prod(map(len, codes)) > _MOST_CELLS:
            return True
        return bool(rule.table(codes).any())

    def _codes(self, attribute: int, chosen: Mapping[int, Flags]) -> Integers:
        """Return the chosen codes of an attribute; all its codes where none is chosen."""
        if attribute in chosen:
            return np.flatnonzero(chosen[attribute])
        return np.arange(self.sizes[attribute])


NO_RULES = AnswerRules(rules=(), sizes=())
