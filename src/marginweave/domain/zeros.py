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
    return tuple(
        len(values) + max(len(attribute.gaps), attribute.private)
        for attribute, values in zip(attributes, labels, strict=True)
    )


def one_way_sizes(configuration: Configuration, labels: Labels) -> tuple[int, ...]:
    """Return the number of codes of each table of the draw of single attributes: attributes, then indicators of sets.

    DP: arithmetic on public or released labels.
    """
    indicators = configuration.indicators
    labels_of_indicators = [indicator.labels for indicator in indicators]
    return domain_sizes((*configuration.attributes, *indicators), (*labels, *labels_of_indicators))


def structural_masks(configuration: Configuration, labels: Labels) -> tuple[StructuralZeros, ...]:
    """Return the cells that no synthetic record can be in: by rules, by implied pairs, or because a value is never missing.

    They do not hold for the table that was counted, as `counted_masks` do. DP: arithmetic on public or released labels. Raises
    InputError for a set of attributes with too many combinations.
    """
    sizes = domain_sizes(configuration.attributes, labels)
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    never_missing = _never_missing(_with_gaps(configuration.attributes, labels, masks), labels)
    return (*masks, *implied_pairs(sizes, masks), *never_missing)


def counted_masks(configuration: Configuration, labels: Labels) -> tuple[StructuralZeros, ...]:
    """Return the cells that no counted record is in: by rules that rows are changed to keep, and by implied pairs.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    masks = rule_masks(enforced_rules(configuration), configuration.attributes, labels)
    return (*masks, *implied_pairs(domain_sizes(configuration.attributes, labels), masks))


def enforced_rules(configuration: Configuration) -> tuple[Forbidden, ...]:
    """Return the rules that every row is changed to keep before it is counted: none on a private domain or a set of k-tuples.

    Values of a private domain are known after rows were counted, and a row has several values of a set.
    """
    attributes = enumerate(configuration.attributes)
    exempt = {j for j, attribute in attributes if attribute.private or attribute.is_set}
    return tuple(box for box in configuration.forbidden if exempt.isdisjoint(_attributes_of(box)))


def _attributes_of(box: Forbidden) -> list[int]:
    return [attribute for attribute, _ in box]


def rows_are_changed(configuration: Configuration) -> bool:
    """Return whether rows that break a declared rule are counted as rows that keep it."""
    structure = configuration.structure
    if structure is None or not structure.can_be_broken:
        return False
    rules = configuration.excluded_by(structure)
    enforced = enforced_rules(configuration)
    return not rules or any(box in enforced for box in rules)


def unenforced_columns(configuration: Configuration) -> tuple[str, ...]:
    """Return the columns because of which some rules change no row: private domains, and sets of k-tuples."""
    enforced = {j for box in enforced_rules(configuration) for j, _ in box}
    unenforced = {j for box in configuration.forbidden for j, _ in box} - enforced
    attributes = [configuration.attributes[j] for j in sorted(unenforced)]
    return tuple(a.name for a in attributes if a.private or a.is_set)


def synthetic_only(configuration: Configuration, labels: Labels) -> frozenset[Clique]:
    """Return the sets of attributes of structural zeros that hold in synthetic records, and not in the counted table.

    DP: arithmetic on public or released labels.
    """
    attributes = configuration.attributes
    enforced = enforced_rules(configuration)
    unenforced = [box for box in configuration.forbidden if box not in enforced]
    cliques: set[Clique] = set()
    for box in forbidden_codes(unenforced, labels):
        cliques.add(tuple(sorted(a for a, _ in box)))
    if cliques:
        sizes = domain_sizes(attributes, labels)
        by_all_rules = _tables_of_pairs(
            sizes, rule_masks(configuration.forbidden, attributes, labels)
        )
        by_enforced = _tables_of_pairs(sizes, rule_masks(enforced, attributes, labels))
        for pair, table in by_all_rules.items():
            if pair not in by_enforced or (table != by_enforced[pair]).any():
                cliques.add(pair)
    never_missing = _never_missing(released_attributes(configuration, labels), labels)
    return frozenset(cliques | {mask.attributes for mask in never_missing})


def _tables_of_pairs(sizes: Sequence[int], masks: Sequence[StructuralZeros]) -> dict[Clique, Flags]:
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
    return _listed(counted, labels, enforced_rules(counted))


def uncounted_codes(configuration: Configuration, labels: Labels) -> tuple[ForbiddenCodes, ...]:
    """Return those of `excluded_codes` that counted records may have, as their rules change no row; k-tuples omit them.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    counted = {*never_counted(configuration, labels)}
    return tuple(sorted({*excluded_codes(configuration, labels)} - counted))


def _listed(
    counted: Configuration,
    labels: Labels,
    rules: Sequence[Forbidden],
) -> tuple[ForbiddenCodes, ...]:
    """Return the combinations of these rules and of the pairs that they imply."""
    masks = rule_masks(rules, counted.attributes, labels)
    listed = [*forbidden_codes(rules, labels)]
    for mask in implied_pairs(domain_sizes(counted.attributes, labels), masks):
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
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    return _with_gaps(configuration.attributes, labels, masks)


def _with_gaps(
    attributes: Sequence[Attribute], labels: Labels, masks: Sequence[StructuralZeros]
) -> tuple[Attribute, ...]:
    completed = tuple(
        replace(attribute, optional=True) if attribute.private and not values else attribute
        for attribute, values in zip(attributes, labels, strict=True)
    )
    named = {a for mask in masks for a in mask.attributes}
    always_present = _never_missing(completed, labels)
    tied = [mask for mask in always_present if named.issuperset(mask.attributes)]
    if not tied:
        return completed
    sizes = domain_sizes(attributes, labels)
    by_rules = allowed_boxes(sizes, masks, _MOST_BOXES)
    never_missing = allowed_boxes(sizes, [*masks, *tied], _MOST_BOXES)
    if by_rules is None or never_missing is None:
        return completed
    # codes that rules allow, but not in records without missing values
    ends = np.cumsum(sizes)
    unreleased = [ends[mask.attributes[0]] - 1 for mask in tied]
    is_lost = by_rules.any(axis=0) & ~never_missing.any(axis=0)
    lost = np.delete(is_lost, unreleased)
    if not lost.any():
        return completed
    attributes_with_gaps = []
    for j, attribute in enumerate(completed):
        optional = attribute.optional or (attribute.private and j in named)
        attributes_with_gaps.append(replace(attribute, optional=optional))
    return tuple(attributes_with_gaps)


def _never_missing(attributes: Sequence[Attribute], labels: Labels) -> list[Mask]:
    """Return a mask for each private domain of which every record has a released value."""
    masks = []
    for j, attribute in enumerate(attributes):
        if attribute.private and not attribute.optional:
            missing = len(labels[j])
            allowed = np.arange(missing + 1) < missing
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
        lists_of_attributes = zip(clique, zip(*boxes, strict=True), strict=True)
        kinds = tuple(_kinds(sizes[a], lists) for a, lists in lists_of_attributes)
        shape = [int(attribute_kinds.max()) + 1 for attribute_kinds in kinds]
        if math.prod(shape) > MAX_CELLS:
            names = ", ".join(attributes[a].name for a in clique)
            raise InputError(
                f"structure ties {names} together, which have more than {MAX_CELLS} combinations that rules tell apart; use "
                "fewer columns, rules or values"
            )
        mask = Mask(
            attributes=clique,
            allowed=np.ones(shape, np.bool_),
            kinds=kinds,
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
    numbers: dict[tuple[int, ...], int] = {}
    kinds = [numbers.setdefault(tuple(lists), len(numbers)) for lists in inside]
    return np.array(kinds, np.int64)


def broken_records(codes: Sequence[Codes], masks: Sequence[StructuralZeros]) -> Flags:
    """Return which records have a combination that a mask forbids, shape (records,).

    For a set, any of its values counts. A code beyond the mask, of a value that is missing where none can be, breaks nothing.
    """
    broken = np.zeros(len(codes[0]), np.bool_)
    for mask in masks:
        last = [size - 1 for size in mask.sizes]
        slots_of_attribute = [np.atleast_2d(codes[a].T) for a in mask.attributes]
        for slots in itertools.product(*slots_of_attribute):
            is_inside = np.ones(len(broken), np.bool_)
            places = []
            for slot, end in zip(slots, last, strict=True):
                is_inside &= slot <= end
                places.append(np.minimum(slot, end))
            broken |= is_inside & ~mask.allow(places)
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
            wanted = broken_records(codes, [mask for mask in masks if j in mask.attributes])
            is_undeclared = wanted & (codes[j] == missing)
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
        return cls(
            masks=structural_masks(configuration.with_undeclared(configuration.undeclared), labels)
        )

    @classmethod
    def of(cls, configuration: Configuration, labels: Labels) -> Self:
        """Return the cells of drawn tables, in which a cell that is not as declared has a code."""
        return cls(
            masks=counted_masks(configuration.with_undeclared(configuration.undeclared), labels)
        )

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
                possible &= allowed[tuple(cells[attribute] for attribute in shared)]
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
    merged = (members @ table > 0).reshape(-1, *rows.shape[1:])
    return np.moveaxis(merged, 0, position)
