"""Structural zeros of a domain: the cells that no record can be in.

Some of them hold in every synthetic record, but not in the table that was counted (`synthetic_only`). A private domain whose
missing values are imputed still counts values that were not released. Rules on sets or private domains change no row.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Codes, Flags, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import (
    Attribute,
    Forbidden,
    ForbiddenCodes,
    forbidden_codes,
)
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.repairs import named_by
from marginweave.configuration.values import MAX_CELLS
from marginweave.domain.boxes import allowed_boxes, implied_pairs
from marginweave.domain.masks import Clique, Mask, NeverTogether, StructuralZeros

Labels = Sequence[Sequence[str]]
# Where rules leave more boxes, some record is assumed to satisfy them.
_MOST_BOXES = 256
# A rule on at most _LISTED attributes is a table. On more, a table would have 2 to the power of their number of cells.
_LISTED = 8


def domain_sizes(attributes: Sequence[Attribute], labels: Labels) -> tuple[int, ...]:
    """Return the number of codes of each attribute: its values, and those of its gaps.

    In a private domain a value that was not released is missing as well. DP: arithmetic on public or released labels.
    """
    sizes = []
    for attribute, values in zip(attributes, labels, strict=True):
        gaps = max(len(attribute.gaps), attribute.private)
        sizes.append(len(values) + gaps)
    return tuple(sizes)


def one_way_sizes(configuration: Configuration, labels: Labels) -> tuple[int, ...]:
    """Return the number of codes of each table of the draw of single attributes: attributes, then indicators of sets.

    DP: arithmetic on public or released labels.
    """
    indicators = configuration.indicators
    attributes = (*configuration.attributes, *indicators)
    labels_of_indicators = [indicator.labels for indicator in indicators]
    return domain_sizes(attributes, (*labels, *labels_of_indicators))


def structural_masks(configuration: Configuration, labels: Labels) -> tuple[StructuralZeros, ...]:
    """Return the cells that no synthetic record can be in: by rules, by implied pairs, or because a value is never missing.

    They do not hold for the table that was counted, as `counted_masks` do. DP: arithmetic on public or released labels. Raises
    InputError for a set of attributes with too many combinations.
    """
    sizes = domain_sizes(configuration.attributes, labels)
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    attributes = _with_gaps(configuration.attributes, labels, masks)
    never_missing = _never_missing(attributes, labels)
    return (*masks, *implied_pairs(sizes, masks), *never_missing)


def counted_masks(configuration: Configuration, labels: Labels) -> tuple[StructuralZeros, ...]:
    """Return the cells that no counted record is in: by rules that rows are changed to keep, and by implied pairs.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    attributes = configuration.attributes
    sizes = domain_sizes(attributes, labels)
    masks = rule_masks(configuration.enforced_rules, attributes, labels)
    return (*masks, *implied_pairs(sizes, masks))


def rows_are_changed(configuration: Configuration) -> bool:
    """Return whether rows that break a declared rule are counted as rows that keep it."""
    structure = configuration.structure
    if structure is None or not structure.can_be_broken:
        return False
    rules = configuration.excluded_by(structure)
    enforced = configuration.enforced_rules
    return not rules or any(rule in enforced for rule in rules)


def unenforced_columns(configuration: Configuration) -> tuple[str, ...]:
    """Return the columns because of which some rules change no row: private domains, and sets of k-tuples."""
    enforced: set[int] = set()
    for rule in configuration.enforced_rules:
        enforced.update(named_by(rule))
    unenforced: set[int] = set()
    for rule in configuration.forbidden:
        unenforced.update(named_by(rule))
    unenforced -= enforced
    attributes = [configuration.attributes[j] for j in sorted(unenforced)]
    return tuple(a.name for a in attributes if a.private or a.is_set)


def synthetic_only(configuration: Configuration, labels: Labels) -> frozenset[Clique]:
    """Return the sets of attributes of structural zeros that hold in synthetic records, and not in the counted table.

    DP: arithmetic on public or released labels.
    """
    attributes = configuration.attributes
    enforced = configuration.enforced_rules
    unenforced = [rule for rule in configuration.forbidden if rule not in enforced]
    cliques: set[Clique] = set()
    for box in forbidden_codes(unenforced, labels):
        named = sorted(a for a, _ in box)
        cliques.add(tuple(named))
    if cliques:
        sizes = domain_sizes(attributes, labels)
        all_masks = rule_masks(configuration.forbidden, attributes, labels)
        enforced_masks = rule_masks(enforced, attributes, labels)
        by_all_rules = _tables_of_pairs(sizes, all_masks)
        by_enforced = _tables_of_pairs(sizes, enforced_masks)
        for pair, table in by_all_rules.items():
            if pair not in by_enforced or not np.array_equal(table, by_enforced[pair]):
                cliques.add(pair)
    never_missing = _never_missing(released_attributes(configuration, labels), labels)
    cliques.update(mask.attributes for mask in never_missing)
    return frozenset(cliques)


def _tables_of_pairs(sizes: Sequence[int], masks: Sequence[StructuralZeros]) -> dict[Clique, Flags]:
    """Return what masks allow of each pair of attributes that they imply something about."""
    return {mask.attributes: mask.table() for mask in implied_pairs(sizes, masks)}


def excluded_codes(configuration: Configuration, labels: Labels) -> tuple[ForbiddenCodes, ...]:
    """Return the combinations that no synthetic record can have: those of rules, and implied pairs.

    A cell that is not as declared can be in a record with any other value, unless a rule excludes it. DP: arithmetic on public
    or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    counted = configuration.with_undeclared(configuration.undeclared)
    return _listed(counted, labels, counted.forbidden)


def never_counted(configuration: Configuration, labels: Labels) -> tuple[ForbiddenCodes, ...]:
    """Return those of `excluded_codes` that no counted record has, because rows are changed to keep these rules.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    counted = configuration.with_undeclared(configuration.undeclared)
    return _listed(counted, labels, counted.enforced_rules)


def uncounted_codes(configuration: Configuration, labels: Labels) -> tuple[ForbiddenCodes, ...]:
    """Return those of `excluded_codes` that counted records may have, as their rules change no row; k-tuples omit them.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    excluded = set(excluded_codes(configuration, labels))
    uncounted = excluded.difference(never_counted(configuration, labels))
    return tuple(sorted(uncounted))


def _listed(
    counted: Configuration,
    labels: Labels,
    rules: Sequence[Forbidden],
) -> tuple[ForbiddenCodes, ...]:
    """Return the combinations of these rules and of the pairs that they imply."""
    attributes = counted.attributes
    sizes = domain_sizes(attributes, labels)
    masks = rule_masks(rules, attributes, labels)
    listed = [*forbidden_codes(rules, labels)]
    for mask in implied_pairs(sizes, masks):
        first, second = mask.attributes
        for code, allowed in enumerate(mask.table()):
            if not allowed.all():
                excluded = tuple(np.flatnonzero(~allowed).tolist())
                listed.append(((first, (code,)), (second, excluded)))
    return tuple(listed)


def released_attributes(configuration: Configuration, labels: Labels) -> tuple[Attribute, ...]:
    """Return the attributes of a configuration, with `optional` for the released domain.

    A private domain whose missing values are imputed can be missing all the same: if none of its values was released, or if
    rules allow some value of a column in no record that has values of all of them. Values that were not released were in
    these records. DP: arithmetic on public or released labels.
    """
    attributes = configuration.attributes
    masks = rule_masks(configuration.forbidden, attributes, labels)
    return _with_gaps(attributes, labels, masks)


def _with_gaps(
    attributes: Sequence[Attribute], labels: Labels, masks: Sequence[StructuralZeros]
) -> tuple[Attribute, ...]:
    """Return the attributes as `released_attributes` does, by the masks of the rules."""
    completed = []
    for attribute, values in zip(attributes, labels, strict=True):
        has_no_value = attribute.private and not values
        completed.append(replace(attribute, optional=True) if has_no_value else attribute)
    named: set[int] = set()
    for mask in masks:
        named.update(mask.attributes)
    always_present = _never_missing(completed, labels)
    tied = [mask for mask in always_present if named.issuperset(mask.attributes)]
    if not tied:
        return tuple(completed)
    sizes = domain_sizes(attributes, labels)
    by_rules = allowed_boxes(sizes, masks, _MOST_BOXES)
    never_missing = allowed_boxes(sizes, [*masks, *tied], _MOST_BOXES)
    if by_rules is None or never_missing is None:
        return tuple(completed)
    # codes that rules allow, but not in records without missing values
    allowed_by_rules = by_rules.any(axis=0)
    allowed_if_present = never_missing.any(axis=0)
    is_lost = allowed_by_rules & ~allowed_if_present
    # the missing codes are lost in any case
    ends = np.cumsum(sizes)
    missing_codes = [ends[mask.attributes[0]] - 1 for mask in tied]
    lost = np.delete(is_lost, missing_codes)
    if not lost.any():
        return tuple(completed)
    attributes_with_gaps = []
    for j, attribute in enumerate(completed):
        is_named = attribute.private and j in named
        optional = attribute.optional or is_named
        attributes_with_gaps.append(replace(attribute, optional=optional))
    return tuple(attributes_with_gaps)


def _never_missing(attributes: Sequence[Attribute], labels: Labels) -> list[Mask]:
    """Return a mask for each private domain of which every record has a released value."""
    masks = []
    for j, attribute in enumerate(attributes):
        if attribute.private and not attribute.optional:
            missing = len(labels[j])
            allowed = np.ones(missing + 1, np.bool_)
            allowed[missing] = False
            masks.append(Mask(attributes=(j,), allowed=allowed))
    return masks


def rule_masks(
    forbidden: Iterable[Forbidden], attributes: Sequence[Attribute], labels: Labels
) -> tuple[StructuralZeros, ...]:
    """Return the excluded combinations as masks, one mask for all combinations of the same attributes.

    Values that no combination tells apart are one kind. One combination of many attributes is by itself. DP: arithmetic on
    public or released labels. Raises InputError for a set of attributes with too many combinations of kinds.
    """
    sizes = domain_sizes(attributes, labels)
    boxes_of_clique = defaultdict[Clique, list[list[tuple[int, ...]]]](list)
    masks: list[StructuralZeros] = []
    for box in map(sorted, forbidden_codes(forbidden, labels)):
        clique = tuple(a for a, _ in box)
        is_single = all(len(codes) == 1 for _, codes in box)
        if len(clique) > _LISTED and is_single:
            single_codes = tuple(code for _, (code,) in box)
            clique_sizes = tuple(sizes[a] for a in clique)
            masks.append(NeverTogether(attributes=clique, codes=single_codes, sizes=clique_sizes))
        else:
            boxes_of_clique[clique].append([codes for _, codes in box])
    for clique, boxes in boxes_of_clique.items():
        codes_of_attributes = zip(*boxes, strict=True)
        kinds = []
        shape = []
        for a, codes_of_boxes in zip(clique, codes_of_attributes, strict=True):
            kind_of_code = _kinds(sizes[a], codes_of_boxes)
            kinds.append(kind_of_code)
            shape.append(int(kind_of_code.max()) + 1)
        if math.prod(shape) > MAX_CELLS:
            names = ", ".join(attributes[a].name for a in clique)
            raise InputError(
                f"structure ties {names} together, which have more than {MAX_CELLS} combinations that rules tell apart; use "
                "fewer columns, rules or values"
            )
        mask = Mask(
            attributes=clique,
            allowed=np.ones(shape, np.bool_),
            kinds=tuple(kinds),
        )
        for codes in boxes:
            code_arrays = [np.array(attribute_codes) for attribute_codes in codes]
            kinds_inside = map(np.unique, mask.kinds_of(code_arrays))
            mask.allowed[np.ix_(*kinds_inside)] = False
        masks.append(replace(mask))  # refuses one that allows nothing
    return tuple(masks)


def _kinds(size: int, boxes: Iterable[Sequence[int]]) -> Integers:
    """Return the kind of each code, the same for codes that are in the same of these lists; shape (size,)."""
    inside: list[list[int]] = [[] for _ in range(size)]
    for number, codes in enumerate(boxes):
        for code in codes:
            inside[code].append(number)
    kind_of_lists: dict[tuple[int, ...], int] = {}
    kinds = np.zeros(size, np.int64)
    for code, lists in enumerate(inside):
        kinds[code] = kind_of_lists.setdefault(tuple(lists), len(kind_of_lists))
    return kinds


def broken_records(codes: Sequence[Codes], masks: Sequence[StructuralZeros]) -> Flags:
    """Return which records have a combination that a mask forbids, shape (records,).

    For a set, any of its values counts. A code beyond the mask, of a value that is missing where none can be, breaks nothing.
    """
    broken = np.zeros(len(codes[0]), np.bool_)
    for mask in masks:
        slots_of_attribute = [np.atleast_2d(codes[a].T) for a in mask.attributes]
        for slots in itertools.product(*slots_of_attribute):
            is_inside = np.ones(len(broken), np.bool_)
            places = []
            for slot, size in zip(slots, mask.sizes, strict=True):
                is_inside &= slot < size
                places.append(np.minimum(slot, size - 1))
            is_forbidden = ~mask.allow(places)
            broken |= is_inside & is_forbidden
    return broken


def with_undeclared_code(
    codes: Sequence[Codes],
    configuration: Configuration,
    labels: Labels,
) -> tuple[Codes, ...]:
    """Return the records with the code of undeclared cells where a cell is missing and a rule wants a value; same shapes.

    `codes` are of records that keep all other rules; `configuration` says which attributes have both codes.
    """
    changed = list(codes)
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    for j, attribute in enumerate(configuration.attributes):
        if len(attribute.gaps) > 1:
            missing = len(labels[j])
            masks_of_attribute = [mask for mask in masks if j in mask.attributes]
            is_wanted = broken_records(codes, masks_of_attribute)
            is_undeclared = is_wanted & (codes[j] == missing)
            changed[j] = np.where(is_undeclared, missing + 1, codes[j])
    return tuple(changed)


@dataclass(frozen=True, kw_only=True, eq=False)
class PossibleCells:
    """The cells of tables that a counted record may be in, judged by each structural zero separately."""

    masks: Sequence[StructuralZeros]
    _projections: dict[tuple[int, Clique], Flags] = field(default_factory=dict)

    @classmethod
    def of_records(cls, configuration: Configuration, labels: Labels) -> Self:
        """Return the cells that a synthetic record may be in."""
        counted = configuration.with_undeclared(configuration.undeclared)
        return cls(masks=structural_masks(counted, labels))

    @classmethod
    def of(cls, configuration: Configuration, labels: Labels) -> Self:
        """Return the cells of drawn tables, in which a cell that is not as declared has a code."""
        counted = configuration.with_undeclared(configuration.undeclared)
        return cls(masks=counted_masks(counted, labels))

    def contain(
        self,
        attributes: Clique,
        codes: Sequence[Integers] | NDArray[np.integer],
        blocks: Mapping[int, Integers],
    ) -> Flags:
        """Return whether a record may be in each of some cells of a table.

        Args:
            attributes: of the table.
            codes: of each attribute, one for each of the cells.
            blocks: for attributes whose codes are merged in the table, the code in the table of each code.
        """
        cells = dict(zip(attributes, codes, strict=True))
        possible = np.ones(np.shape(codes)[1:], np.bool_)
        for number, mask in enumerate(self.masks):
            shared = tuple(attribute for attribute in mask.attributes if attribute in cells)
            allowed = self._projected(number, shared)
            if shared and not allowed.all():
                for position, attribute in enumerate(shared):
                    kinds = mask.kinds_along(attribute)
                    blocks_of_codes = blocks.get(attribute, np.arange(len(kinds)))
                    allowed = _merge_kinds(allowed, position, kinds, blocks_of_codes)
                codes_of_cells = tuple(cells[attribute] for attribute in shared)
                possible &= allowed[codes_of_cells]
        return possible

    def _projected(self, number: int, shared: Clique) -> Flags:
        """Return which kinds of codes of some attributes of a mask it allows with some kinds of its others."""
        if (number, shared) not in self._projections:
            self._projections[number, shared] = self.masks[number].project(shared)
        return self._projections[number, shared]


def _merge_kinds(
    allowed: Flags,
    position: int,
    kinds: Integers,
    blocks: Integers,
) -> Flags:
    """Return what is allowed with blocks of codes in place of their kinds along one axis: what any code of a block allows."""
    shape = (int(blocks.max()) + 1, allowed.shape[position])
    members = np.zeros(shape, np.float32)
    members[blocks, kinds] = 1.0
    rows = np.moveaxis(allowed, position, 0)
    table = rows.reshape(len(rows), -1).astype(np.float32)
    # number of kinds of a block that are allowed
    allowed_kinds = members @ table
    merged = (allowed_kinds > 0).reshape(-1, *rows.shape[1:])
    return np.moveaxis(merged, 0, position)
