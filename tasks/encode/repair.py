"""Records that break a rule between columns become records that keep all of them, each by itself.

Stability: what a record becomes depends on its own codes, its own random words and public rules, whatever other records hold.
A record that keeps all rules stays as it is, so the map is idempotent; it is total, as rules that leave no record are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Flags, Integers
from marginweave.schemas.configuration.attributes import tied_parts
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Mask
from marginweave.tasks.encode.codes import EncodedTable
from marginweave.tasks.mechanisms.randomness import CellWords
from marginweave.tasks.structure.boxes import allowed_boxes
from marginweave.tasks.structure.levels import level_codes
from marginweave.tasks.structure.zeros import broken_records, domain_sizes, structural_masks

# So many boxes at most for columns that rules tie together.
_MOST_BOXES = 4096
_ROWS = 4096  # at once
Labels = Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Attributes that rules tie together, in the order in which their codes are kept, and the boxes of what is allowed."""

    attributes: tuple[int, ...]
    masks: tuple[Mask, ...]
    boxes: Flags


class Repair:
    """The map of records, for one domain.

    The attributes of a rule are gone through in the order in which it names them. A code stays where some allowed record has it
    and those before; else it becomes the one that stands for "not applicable" where that is allowed, the nearest allowed one of
    a number or date, the missing one, or one that is allowed by chance, each with the same probability. Rules on sets and
    private domains are left to what is made of the counts.
    """

    def __init__(self, configuration: Configuration, labels: Labels) -> None:
        attributes = configuration.attributes
        self._sizes = domain_sizes(attributes, labels)
        self._offsets = np.cumsum([0, *self._sizes])
        self._ordered = set(configuration.ordered)
        self._optional = [attribute.optional for attribute in attributes]
        self._elsewhere = _elsewhere(configuration)
        self._levels = list(level_codes(configuration))
        skipped = {j for j, attribute in enumerate(attributes) if attribute.private or attribute.is_set}
        masks = [
            m
            for m in structural_masks(configuration, labels)
            if skipped.isdisjoint(m.attributes) and len(m.attributes) > 1
        ]
        order = _order(configuration)
        self._parts = []
        for part in tied_parts(mask.attributes for mask in masks):
            mine = tuple(mask for mask in masks if part.issuperset(mask.attributes))
            boxes = allowed_boxes(self._sizes, mine, _MOST_BOXES)
            if boxes is None:
                names = ", ".join(attributes[j].name for j in sorted(part))
                raise InputError(
                    f"structure ties columns {names} together in more than {_MOST_BOXES} ways; use fewer rules, or coarser bins"
                )
            self._parts.append(_Part(attributes=tuple(j for j in order if j in part), masks=mine, boxes=boxes))

    def __call__(self, table: EncodedTable, words: CellWords) -> EncodedTable:
        """The records after the map, `words` being those of the purpose. Private; DP: 1-stable, row by row."""
        codes = list(table.codes)
        for coarse, fine, own in self._levels:  # imputed and added records have no level yet
            codes[coarse] = own[codes[fine]].astype(codes[coarse].dtype)
        for part in self._parts:
            broken = np.flatnonzero(broken_records(codes, part.masks))
            if len(broken):
                repaired = self._repaired(
                    np.stack([codes[j][broken] for j in part.attributes], axis=1), part, broken, words
                )
                for j, code in zip(part.attributes, repaired.T, strict=True):
                    codes[j] = codes[j].copy()
                    codes[j][broken] = code
        return replace(table, codes=tuple(codes))

    def _repaired(self, codes: Integers, part: _Part, rows: Integers, words: CellWords) -> Integers:
        found = codes.astype(np.int64)
        for start in range(0, len(rows), _ROWS):
            block, here = found[start : start + _ROWS], rows[start : start + _ROWS]
            alive = np.ones((len(block), len(part.boxes)), np.bool_)
            for column, j in zip(block.T, part.attributes, strict=True):
                own = part.boxes[:, self._offsets[j] : self._offsets[j + 1]]
                dead = np.flatnonzero(~(alive & own[:, column].T).any(axis=1))
                if len(dead):
                    allowed = np.asarray(alive[dead].astype(np.float32) @ own.astype(np.float32) > 0)
                    column[dead] = self._chosen(j, column[dead], allowed, words.words_of(here[dead], j))
                alive &= own[:, column].T
        return found

    def _chosen(self, j: int, codes: Integers, allowed: Flags, words: NDArray[np.uint64]) -> Integers:
        """An allowed code for each record, in place of its own; `allowed` has shape (records, codes)."""
        number = allowed.sum(axis=1)
        place = np.minimum((words.astype(np.float64) / 2.0**64 * number).astype(np.int64), number - 1)
        found = np.asarray((np.cumsum(allowed, axis=1) > place[:, None]).argmax(axis=1))
        every, last = np.arange(self._sizes[j]), self._sizes[j] - 1
        if self._optional[j]:
            found = np.where(allowed[:, last], last, found)
        if j in self._ordered:
            apart = np.where(allowed, np.abs(every - codes[:, None]), 2 * self._sizes[j])
            apart[:, last] += 2 * self._sizes[j] * self._optional[j]
            valued = (codes != last) | (not self._optional[j])
            found = np.where(valued & (apart.min(axis=1) <= last), apart.argmin(axis=1), found)
        for code in self._elsewhere.get(j, ()):
            found = np.where(allowed[:, code], code, found)
        return np.asarray(found)


def _order(configuration: Configuration) -> list[int]:
    """The attributes such that each rule finds its own in the order it names them; as declared, where rules disagree."""
    before: dict[int, list[int]] = {j: [] for j in range(len(configuration.attributes))}
    for box in configuration.forbidden:
        for (one, _), (other, _) in pairwise(box):
            before[other].append(one)
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        return list(before)


def _elsewhere(configuration: Configuration) -> dict[int, list[int]]:
    """Of columns that do not always apply the codes that stand in them elsewhere."""
    rules = configuration.structure.applies if configuration.structure else None
    names = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    found: dict[int, list[int]] = {}
    for rule in rules or ():
        for name in rule.columns:
            labels = configuration.attributes[names[name]].labels
            code = -1 if rule.otherwise is None else configuration.columns[name].code_of(rule.otherwise)
            found.setdefault(names[name], []).append(code if code >= 0 else len(labels))
    return found
