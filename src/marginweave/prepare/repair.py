"""Records that break a rule between columns become records that keep all of them, each by itself.

Stability: the new record depends on its own codes, its own random words and public rules,
whatever other records hold.
A record that keeps all rules remains as it is, so the map is idempotent.
It is total, as rules that allow no record are refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from marginweave.base.arrays import Flags, Integers, Words
from marginweave.base.errors import InputError
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.domain.boxes import allowed_boxes
from marginweave.domain.masks import StructuralZeros
from marginweave.domain.zeros import broken_records, domain_sizes, rule_masks
from marginweave.mechanisms.randomness import CellWords
from marginweave.prepare.codes import EncodedTable, code_type

# The most boxes for columns that rules tie together.
_MOST_BOXES = 4096
_ROWS = 4096  # rows that are repaired at a time
_LEAST_WORD = np.uint64(0)
_LARGEST_WORD = np.uint64(2**64 - 1)
Labels = Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Attributes that rules tie together, in the order in which their codes are decided, and the boxes of allowed records.

    `boxes` is None for columns that are ordered and in no other rule: there may be a great many boxes.
    """

    attributes: tuple[int, ...]
    masks: tuple[StructuralZeros, ...]
    boxes: Flags | None


class Repair:
    """The map of records, for one domain.

    Attributes are decided in the order of the columns, but after those that decide on them (`repair_order`). A code remains if
    some allowed record has it and the codes decided before. Else it becomes the code for "not applicable" where that is
    allowed, the closest allowed code of a number or date, the missing code, or one that is allowed by chance, each with the
    same probability. Rules that name a private domain or a set of k-tuples are left to the steps after counting
    (`enforced_rules`).

    A cell that is not as declared remains so, and the rules are kept by the other cells. A cell that is missing where a rule
    wants a value is not as declared either: no value is invented for it. No other cell becomes so.
    """

    def __init__(self, configuration: Configuration, labels: Labels) -> None:
        attributes = configuration.attributes
        self._sizes = domain_sizes(attributes, labels)
        self._offsets = np.cumsum([0, *self._sizes])
        self._missing = [len(values) for values in labels]
        self._ordered = set(configuration.ordered)
        self._optional = [attribute.optional for attribute in attributes]
        self._undeclared = {j for j, attribute in enumerate(attributes) if attribute.undeclared}
        # codes for missing and for undeclared cells
        self._has_both_gaps = [j for j in self._undeclared if self._optional[j]]
        self._codes_elsewhere = _codes_elsewhere(configuration)
        masks = rule_masks(configuration.enforced_rules, attributes, labels)
        order = configuration.repair_order
        self._parts = []
        for part in tied_parts(mask.attributes for mask in masks):
            masks_of_part = tuple(mask for mask in masks if part.issuperset(mask.attributes))
            boxes = allowed_boxes(self._sizes, masks_of_part, _MOST_BOXES)
            if boxes is None and not _is_only_ordered(configuration, part):
                names = ", ".join(attributes[j].name for j in sorted(part))
                raise InputError(
                    f"structure ties columns {names} together in more than {_MOST_BOXES} ways; use fewer rules or coarser "
                    "bins"
                )
            attributes_in_order = tuple(j for j in order if j in part)
            self._parts.append(
                _Part(
                    attributes=attributes_in_order,
                    masks=masks_of_part,
                    boxes=boxes,
                )
            )

    def __call__(self, table: EncodedTable, words: CellWords) -> EncodedTable:
        """Return the records after the map, with the `words` of the purpose. Private; DP: 1-stable, row by row."""
        codes = list(table.codes)
        for j in self._has_both_gaps:  # the same type in each block
            kind = code_type(self._sizes[j] - 1)
            codes[j] = codes[j].astype(kind, copy=False)
        for part in self._parts:
            broken = np.flatnonzero(broken_records(codes, part.masks))
            if len(broken):
                repair = self._put_in_order if part.boxes is None else self._repaired
                columns = [codes[j][broken] for j in part.attributes]
                repaired = repair(np.stack(columns, axis=1), part, broken, words)
                for j, code in zip(part.attributes, repaired.T, strict=True):
                    codes[j] = codes[j].copy()
                    codes[j][broken] = code
        return replace(table, codes=tuple(codes))

    def drawn(self, attributes: Collection[int]) -> frozenset[int]:
        """Return the attributes whose codes depend on chance, where codes of `attributes` do before rules are kept.

        These are all that rules tie to one of them, or to one that can get one of several codes. DP: public.
        """
        by_chance = set(attributes)
        for part in self._parts:
            if not by_chance.isdisjoint(part.attributes) or self._draws(part):
                by_chance |= {*part.attributes}
        return frozenset(by_chance)

    def _draws(self, part: _Part) -> bool:
        """Return whether some record gets a code by chance, by the boxes that remain after each column."""
        if part.boxes is None:
            return False
        ways = [self._ways(j) for j in part.attributes]
        if math.prod(map(len, ways)) > _MOST_BOXES:
            return True
        return any(self._draws_from(part, codes) for codes in itertools.product(*ways))

    def _ways(self, j: int) -> list[Flags]:
        """Return the codes of an attribute by how rules treat the cell: values, a missing one, not as declared."""
        codes = np.arange(self._sizes[j])
        if j not in self._undeclared:
            every_code = codes >= 0
            return [every_code]
        is_undeclared = codes == self._sizes[j] - 1
        becomes_undeclared = self._may_become_undeclared(j, codes)
        remains = ~(is_undeclared | becomes_undeclared)
        ways = [is_undeclared, remains]
        return [*ways, becomes_undeclared] if j in self._has_both_gaps else ways

    def _draws_from(self, part: _Part, codes: Sequence[Flags]) -> bool:
        """Return whether some record with these codes, flags for each attribute of the part, gets one by chance."""
        assert part.boxes is not None
        first = np.ones(len(part.boxes), np.bool_)
        for j, codes_of_attribute in zip(part.attributes, codes, strict=True):
            becomes_undeclared = self._may_become_undeclared(j, np.flatnonzero(codes_of_attribute))
            if j in self._undeclared and not becomes_undeclared.any():
                has_code = self._codes_of_boxes(part, j)
                first &= has_code[:, codes_of_attribute].any(axis=1)
        reached = [first]
        for j, codes_of_attribute in zip(part.attributes, codes, strict=True):
            codes_of_boxes = self._codes_of_boxes(part, j)
            following: list[Flags] = []
            for alive in reached:
                allowed = alive @ codes_of_boxes
                dead = np.flatnonzero(codes_of_attribute & ~allowed)
                if self._is_by_chance(j, dead, allowed):
                    return True
                possible = allowed if len(dead) else allowed & codes_of_attribute
                # codes that are in the same boxes are one kind
                kinds = np.unique(codes_of_boxes[:, possible], axis=1)
                following += [alive & kind for kind in kinds.T]
            reached = [*np.unique(following, axis=0)] if following else []
            if len(reached) > _MOST_BOXES:
                return True
        return False

    def _is_by_chance(
        self,
        j: int,
        codes: Integers,
        allowed: Flags,
    ) -> bool:
        """Return whether the code in place of one of these depends on random words."""
        rows = np.tile(allowed, (len(codes), 1))
        least_words = np.full(len(codes), _LEAST_WORD)
        largest_words = np.full(len(codes), _LARGEST_WORD)
        low = self._chosen(j, codes, rows, least_words)
        high = self._chosen(j, codes, rows, largest_words)
        return not np.array_equal(low, high)

    def _repaired(
        self,
        codes: Integers,
        part: _Part,
        rows: Integers,
        words: CellWords,
    ) -> Integers:
        """Return the codes that keep the rules of a part, by its boxes; `alive` are the boxes that a record can be in."""
        assert part.boxes is not None
        repaired = codes.astype(np.int64)
        for start in range(0, len(rows), _ROWS):
            block = repaired[start : start + _ROWS]
            block_rows = rows[start : start + _ROWS]
            alive = np.ones((len(block), len(part.boxes)), np.bool_)
            for column, j in zip(block.T, part.attributes, strict=True):
                if j in self._undeclared:
                    has_code = self._codes_of_boxes(part, j)
                    last = self._sizes[j] - 1
                    is_undeclared = column == last
                    remains = np.where(
                        is_undeclared[:, None], has_code[:, last], has_code[:, :last].any(axis=1)
                    )
                    becomes_undeclared = self._may_become_undeclared(j, column)
                    alive &= remains | becomes_undeclared[:, None]
            for column, j in zip(block.T, part.attributes, strict=True):
                has_code = self._codes_of_boxes(part, j)
                alive_with_code = alive & has_code[:, column].T
                has_box = alive_with_code.any(axis=1)
                dead = np.flatnonzero(~has_box)
                if len(dead):
                    # number of boxes of each record that have each code
                    boxes_with_code = alive[dead].astype(np.float32) @ has_code.astype(np.float32)
                    allowed = np.asarray(boxes_with_code > 0)
                    words_of_dead = words.words_of(block_rows[dead], j)
                    column[dead] = self._chosen(j, column[dead], allowed, words_of_dead)
                alive &= has_code[:, column].T
        return repaired

    def _codes_of_boxes(self, part: _Part, j: int) -> Flags:
        """Return which codes of an attribute each box has; shape (boxes, codes)."""
        assert part.boxes is not None
        start = self._offsets[j]
        stop = self._offsets[j + 1]
        flags: Flags = part.boxes[:, start:stop]
        return flags

    def _put_in_order(
        self,
        codes: Integers,
        part: _Part,
        rows: Integers,
        words: CellWords,
    ) -> Integers:
        """Return the codes that keep the rules of a part without boxes: all its columns are ordered.

        Every pair of columns has its own mask, and values between others are in a bin of each column. Between two codes that
        are allowed with each other, every column has an allowed code, once codes are removed that no code of another column is
        allowed with.
        """
        repaired = codes.astype(np.int64)
        tables = {mask.attributes: mask.table() for mask in part.masks}
        tables |= {(b, a): table.T for (a, b), table in tables.items()}
        possible = self._possible_codes(part, tables)
        for start in range(0, len(repaired), _ROWS):
            block = repaired[start : start + _ROWS]
            block_rows = rows[start : start + _ROWS]
            for place, j in enumerate(part.attributes):
                column = block[:, place]
                allowed = np.repeat(possible[j][None], len(block), axis=0)
                for i, earlier in zip(part.attributes[:place], block.T, strict=False):
                    if (i, j) in tables:
                        allowed &= tables[i, j][earlier]
                is_allowed = allowed[np.arange(len(block)), column]
                dead = np.flatnonzero(~is_allowed)
                if len(dead):
                    words_of_dead = words.words_of(block_rows[dead], j)
                    column[dead] = self._chosen(j, column[dead], allowed[dead], words_of_dead)
        return repaired

    def _possible_codes(
        self, part: _Part, tables: Mapping[tuple[int, ...], Flags]
    ) -> dict[int, Flags]:
        """Return the codes of each attribute of a part that are allowed with some code of every other one."""
        possible: dict[int, Flags] = {}
        for j in part.attributes:
            codes = np.arange(self._sizes[j])
            possible[j] = codes < self._values(j)

        def count() -> int:
            return sum(int(codes.sum()) for codes in possible.values())

        number = -1
        while number != count():
            number = count()
            for (a, b), table in tables.items():
                has_partner = table[:, possible[b]].any(axis=1)
                possible[a] &= has_partner
        for j in self._undeclared.intersection(part.attributes):
            possible[j][-1] = True
        return possible

    def _may_become_undeclared(self, j: int, codes: Integers) -> Flags:
        """Return which of these codes are missing, and become undeclared where a rule wants a value."""
        is_missing = codes == self._missing[j]
        return np.asarray(is_missing & (j in self._has_both_gaps))

    def _values(self, j: int) -> int:
        """Return how many codes of an attribute, the first ones, a cell can get: all except the code of undeclared cells."""
        return self._sizes[j] - (j in self._undeclared)

    def _chosen(
        self,
        j: int,
        codes: Integers,
        allowed: Flags,
        words: Words,
    ) -> Integers:
        """Return an allowed code for each record, in place of its own; `allowed` has shape (records, codes)."""
        size = self._sizes[j]
        all_codes = np.arange(size)
        can_be_given = all_codes < self._values(j)
        allowed = allowed & can_be_given
        missing = self._missing[j]
        chosen = _code_by_chance(allowed, words)
        if self._optional[j]:
            chosen = np.where(allowed[:, missing], missing, chosen)
        if j in self._ordered:
            # distances of values are at most size - 1
            too_far = 2 * size
            distance = np.abs(all_codes - codes[:, None])
            distance = np.where(allowed, distance, too_far)
            if self._optional[j]:
                distance[:, missing] += too_far
            is_value = (codes != missing) | (not self._optional[j])
            is_reached = distance.min(axis=1) <= size - 1
            closest = distance.argmin(axis=1)
            chosen = np.where(is_value & is_reached, closest, chosen)
        chosen = np.where(self._may_become_undeclared(j, codes), size - 1, chosen)
        for code in self._codes_elsewhere.get(j, ()):
            chosen = np.where(allowed[:, code], code, chosen)
        return np.asarray(chosen)


def _code_by_chance(allowed: Flags, words: Words) -> Integers:
    """Return one of the allowed codes of each record, each with the same probability."""
    number = np.maximum(allowed.sum(axis=1), 1)
    shares = words.astype(np.float64) / 2.0**64
    place = (shares * number).astype(np.int64)
    place = np.minimum(place, number - 1)
    # the first code at which more than `place` codes are allowed
    is_beyond = np.cumsum(allowed, axis=1) > place[:, None]
    return np.asarray(is_beyond.argmax(axis=1))


def _is_only_ordered(configuration: Configuration, part: Collection[int]) -> bool:
    """Return whether the columns of some attributes are ordered numbers or dates, and in no other rule."""
    structure = configuration.structure
    assert structure is not None
    names = {configuration.attributes[j].name for j in part}
    in_other_rules: set[str] = set()
    for entry in structure.forbidden:
        in_other_rules.update(entry)
    for applies in structure.applies or ():
        in_other_rules.update(applies.where, applies.columns)
    for difference in structure.difference or ():
        in_other_rules.update((difference.since, difference.column))
    columns = [configuration.columns.get(name) for name in names]
    are_binned = all(isinstance(column, BinnedColumn) for column in columns)
    return are_binned and names.isdisjoint(in_other_rules)


def _codes_elsewhere(configuration: Configuration) -> dict[int, list[int]]:
    """Return the codes that columns have where they do not apply, for those that do not always apply."""
    rules = configuration.structure.applies if configuration.structure else None
    attribute_of = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    codes: dict[int, list[int]] = {}
    for rule in rules or ():
        for name in rule.columns:
            j = attribute_of[name]
            code = -1
            if rule.otherwise is not None:
                code = configuration.columns[name].code_of(rule.otherwise)
            if code < 0:
                code = len(configuration.attributes[j].labels)  # that of a missing value
            codes.setdefault(j, []).append(code)
    return codes
