"""Records that break a rule between columns become records that keep all of them, each by itself.

Stability: what a record becomes depends on its own codes, its own random words and public rules,
whatever other records hold.
A record that keeps all rules stays as it is, so the map is idempotent; it is total, as rules that leave no record are refused.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.domain.boxes import allowed_boxes
from marginweave.domain.masks import StructuralZeros
from marginweave.domain.zeros import broken_records, domain_sizes, enforced_rules, rule_masks
from marginweave.mechanisms.randomness import CellWords
from marginweave.prepare.codes import EncodedTable, code_type

# So many boxes at most for columns that rules tie together.
_MOST_BOXES = 4096
_ROWS = 4096  # at once
_EXTREMES = (np.uint64(0), np.uint64(2**64 - 1))  # of random words
Labels = Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Attributes that rules tie together, in the order in which their codes are kept, and the boxes of what is allowed.

    None of columns that are in order, and nothing else: there may be very many.
    """

    attributes: tuple[int, ...]
    masks: tuple[StructuralZeros, ...]
    boxes: Flags | None


class Repair:
    """The map of records, for one domain.

    The attributes are gone through in the order of the columns, but after those that decide on them (`_order`). A code
    stays where some allowed record has it and those before; else it becomes the one that stands for "not applicable" where
    that is allowed, the nearest allowed one of a number or date, the missing one, or one that is allowed by chance, each
    with the same probability. Rules that name a private domain or a set of k-tuples are left to what is made of the counts
    (`enforced_rules`).

    A cell that is not as declared stays so, and the rules are kept by the other cells. A cell that is missing where a rule
    wants a value is not as declared either: no value is made up for it. No other becomes so.
    """

    def __init__(self, configuration: Configuration, labels: Labels) -> None:
        attributes = configuration.attributes
        self._sizes = domain_sizes(attributes, labels)
        self._offsets = np.cumsum([0, *self._sizes])
        self._missing = [len(values) for values in labels]
        self._ordered = set(configuration.ordered)
        self._optional = [attribute.optional for attribute in attributes]
        self._undeclared = {j for j, attribute in enumerate(attributes) if attribute.undeclared}
        self._apart = [j for j in self._undeclared if self._optional[j]]  # a missing cell has a code, and so has this
        self._elsewhere = _elsewhere(configuration)
        masks = rule_masks(enforced_rules(configuration), attributes, labels)
        order = _order(configuration)
        self._parts = []
        for part in tied_parts(mask.attributes for mask in masks):
            mine = tuple(mask for mask in masks if part.issuperset(mask.attributes))
            boxes = allowed_boxes(self._sizes, mine, _MOST_BOXES)
            if boxes is None and not _in_order_alone(configuration, part):
                names = ", ".join(attributes[j].name for j in sorted(part))
                raise InputError(
                    f"structure ties columns {names} together in more than {_MOST_BOXES} ways; use fewer rules or coarser "
                    "bins"
                )
            self._parts.append(_Part(attributes=tuple(j for j in order if j in part), masks=mine, boxes=boxes))

    def __call__(self, table: EncodedTable, words: CellWords) -> EncodedTable:
        """The records after the map, `words` being those of the purpose. Private; DP: 1-stable, row by row."""
        codes = list(table.codes)
        for j in self._apart:  # the same type in each block
            codes[j] = codes[j].astype(code_type(self._sizes[j] - 1), copy=False)
        for part in self._parts:
            broken = np.flatnonzero(broken_records(codes, part.masks))
            if len(broken):
                repair = self._put_in_order if part.boxes is None else self._repaired
                repaired = repair(np.stack([codes[j][broken] for j in part.attributes], axis=1), part, broken, words)
                for j, code in zip(part.attributes, repaired.T, strict=True):
                    codes[j] = codes[j].copy()
                    codes[j][broken] = code
        return replace(table, codes=tuple(codes))

    def drawn(self, attributes: Collection[int]) -> frozenset[int]:
        """The attributes whose codes depend on chance, where those of some `attributes` do before rules are kept.

        These are all that rules tie to one of them, or to one that can get one of several codes. DP: public.
        """
        found = set(attributes)
        for part in self._parts:
            if not found.isdisjoint(part.attributes) or self._draws(part):
                found |= {*part.attributes}
        return frozenset(found)

    def _draws(self, part: _Part) -> bool:
        """Whether some record gets a code by chance; all are gone through, by the boxes that they leave column by column."""
        if part.boxes is None:
            return False
        ways = [self._ways(j) for j in part.attributes]
        if math.prod(map(len, ways)) > _MOST_BOXES:
            return True
        return any(self._draws_from(part, codes) for codes in itertools.product(*ways))

    def _ways(self, j: int) -> list[Flags]:
        """Codes of an attribute, apart as cells of other columns are kept to rules: values, a missing one, not as declared."""
        every, last = np.arange(self._sizes[j]), self._sizes[j] - 1
        if j not in self._undeclared:
            return [every >= 0]
        kept = [every == last, (every != last) & ~self._may_become_undeclared(j, every)]
        return [*kept, self._may_become_undeclared(j, every)] if j in self._apart else kept

    def _draws_from(self, part: _Part, codes: Sequence[Flags]) -> bool:
        assert part.boxes is not None
        first = np.ones(len(part.boxes), np.bool_)
        for j, own_codes in zip(part.attributes, codes, strict=True):
            if j in self._undeclared and not self._may_become_undeclared(j, np.flatnonzero(own_codes)).any():
                first &= self._of(part, j)[:, own_codes].any(axis=1)
        reached = [first]
        for j, own_codes in zip(part.attributes, codes, strict=True):
            own, following = self._of(part, j), list[Flags]()
            for alive in reached:
                allowed = alive @ own
                dead = np.flatnonzero(own_codes & ~allowed)
                if self._is_by_chance(j, dead, allowed):
                    return True
                kept = allowed if len(dead) else allowed & own_codes
                following += [alive & kind for kind in np.unique(own[:, kept], axis=1).T]
            reached = [*np.unique(following, axis=0)] if following else []
            if len(reached) > _MOST_BOXES:
                return True
        return False

    def _is_by_chance(self, j: int, codes: Integers, allowed: Flags) -> bool:
        """Whether the code in place of one of these depends on random words."""
        rows = np.tile(allowed, (len(codes), 1))
        low, high = (self._chosen(j, codes, rows, np.full(len(codes), word)) for word in _EXTREMES)
        return not np.array_equal(low, high)

    def _repaired(self, codes: Integers, part: _Part, rows: Integers, words: CellWords) -> Integers:
        assert part.boxes is not None
        found = codes.astype(np.int64)
        for start in range(0, len(rows), _ROWS):
            block, here = found[start : start + _ROWS], rows[start : start + _ROWS]
            alive = np.ones((len(block), len(part.boxes)), np.bool_)
            for column, j in zip(block.T, part.attributes, strict=True):
                if j in self._undeclared:
                    own, last = self._of(part, j), self._sizes[j] - 1
                    stays = np.where((column == last)[:, None], own[:, last], own[:, :last].any(axis=1))
                    alive &= stays | self._may_become_undeclared(j, column)[:, None]
            for column, j in zip(block.T, part.attributes, strict=True):
                own = self._of(part, j)
                dead = np.flatnonzero(~(alive & own[:, column].T).any(axis=1))
                if len(dead):
                    allowed = np.asarray(alive[dead].astype(np.float32) @ own.astype(np.float32) > 0)
                    column[dead] = self._chosen(j, column[dead], allowed, words.words_of(here[dead], j))
                alive &= own[:, column].T
        return found

    def _of(self, part: _Part, j: int) -> Flags:
        """Which codes of an attribute each box has; shape (boxes, codes)."""
        assert part.boxes is not None
        found: Flags = part.boxes[:, self._offsets[j] : self._offsets[j + 1]]
        return found

    def _put_in_order(self, codes: Integers, part: _Part, rows: Integers, words: CellWords) -> Integers:
        """The same where every pair of columns has its own mask, and values between others lie in a bin of each column.

        Between codes that are allowed beside each other there is one of every column, once those go that no code of another
        column is allowed beside.
        """
        found, tables = codes.astype(np.int64), {mask.attributes: mask.table() for mask in part.masks}
        tables |= {(b, a): table.T for (a, b), table in tables.items()}
        alone = {j: np.arange(self._sizes[j]) < self._values(j) for j in part.attributes}
        before = -1
        while before != (before := sum(int(held.sum()) for held in alone.values())):
            for (a, b), table in tables.items():
                alone[a] &= table[:, alone[b]].any(axis=1)
        for j in self._undeclared.intersection(part.attributes):
            alone[j][-1] = True
        for start in range(0, len(found), _ROWS):
            block, here = found[start : start + _ROWS], rows[start : start + _ROWS]
            for place, j in enumerate(part.attributes):
                allowed = np.repeat(alone[j][None], len(block), axis=0)
                for i, earlier in zip(part.attributes[:place], block.T, strict=False):
                    allowed &= tables[i, j][earlier] if (i, j) in tables else True
                dead = np.flatnonzero(~allowed[np.arange(len(block)), block[:, place]])
                if len(dead):
                    block[dead, place] = self._chosen(
                        j, block[dead, place], allowed[dead], words.words_of(here[dead], j)
                    )
        return found

    def _may_become_undeclared(self, j: int, codes: Integers) -> Flags:
        """Which of these codes of an attribute are missing, and not as declared where a rule wants a value."""
        return np.asarray((codes == self._missing[j]) & (j in self._apart))

    def _values(self, j: int) -> int:
        """How many codes of an attribute, the first ones, a cell can get: all but that of cells that are not as declared."""
        return self._sizes[j] - (j in self._undeclared)

    def _chosen(self, j: int, codes: Integers, allowed: Flags, words: NDArray[np.uint64]) -> Integers:
        """An allowed code for each record, in place of its own; `allowed` has shape (records, codes)."""
        allowed = allowed & (np.arange(self._sizes[j]) < self._values(j))
        number = np.maximum(allowed.sum(axis=1), 1)
        last = self._sizes[j] - 1
        place = np.minimum((words.astype(np.float64) / 2.0**64 * number).astype(np.int64), number - 1)
        found = np.asarray((np.cumsum(allowed, axis=1) > place[:, None]).argmax(axis=1))
        every = np.arange(self._sizes[j])
        missing = self._missing[j]
        if self._optional[j]:
            found = np.where(allowed[:, missing], missing, found)
        if j in self._ordered:
            apart = np.where(allowed, np.abs(every - codes[:, None]), 2 * self._sizes[j])
            if self._optional[j]:
                apart[:, missing] += 2 * self._sizes[j]
            valued = (codes != missing) | (not self._optional[j])
            found = np.where(valued & (apart.min(axis=1) <= last), apart.argmin(axis=1), found)
        found = np.where(self._may_become_undeclared(j, codes), last, found)
        for code in self._elsewhere.get(j, ()):
            found = np.where(allowed[:, code], code, found)
        return np.asarray(found)


def _in_order_alone(configuration: Configuration, part: Collection[int]) -> bool:
    """Whether the columns of some attributes are numbers or dates in order, and in no other rule."""
    structure, names = configuration.structure, {configuration.attributes[j].name for j in part}
    assert structure is not None
    others = {name for entry in structure.forbidden for name in entry}
    others |= {name for rule in structure.applies or () for name in (*rule.where, *rule.columns)}
    others |= {name for rule in structure.difference or () for name in (rule.since, rule.column)}
    ranges = all(isinstance(configuration.columns.get(name), BinnedColumn) for name in names)
    return ranges and names.isdisjoint(others)


def _order(configuration: Configuration) -> list[int]:
    """The attributes as declared, but after those that rules put before them, unless these go round in a circle."""
    structure, found = configuration.structure, list[int]()
    if structure is None:
        return found
    pairs = [(name, other) for rule in structure.applies or () for name in rule.where for other in rule.columns]
    pairs += [pair for order in structure.ordered or () for pair in pairwise(order.columns)]
    pairs += [(rule.since, rule.column) for rule in structure.difference or ()]
    before = defaultdict[str, set[str]](set)
    for name, other in pairs:
        before[other].add(name)
    waiting = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    while waiting:
        name = next((name for name in waiting if before[name].isdisjoint(waiting)), next(iter(waiting)))
        found.append(waiting.pop(name))
    return found


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
