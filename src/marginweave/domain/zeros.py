"""Structural zeros of a domain: the cells that no record can be in.

Some hold in every record that is made, but not in the table that was counted (`recorded_alone`): a private domain whose missing
values are imputed still counts what was not released, and rules on sets or private domains change no row.
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
from marginweave.configuration.attributes import Attribute, Forbidden, ForbiddenCodes, forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import MAX_CELLS
from marginweave.domain.boxes import allowed_boxes, implied_pairs
from marginweave.domain.masks import Clique, Mask, NeverTogether, StructuralZeros

Labels = Sequence[Sequence[str]]
# Where rules leave more boxes than that, they leave a record.
_MOST_BOXES = 256
# Of so many attributes a rule is a table; of more, 2 to the power of their number, it would be too large for a model's blocks.
_LISTED = 8


def domain_sizes(attributes: Sequence[Attribute], labels: Labels) -> tuple[int, ...]:
    """Number of codes of each attribute: its values, and those of its gaps.

    In a private domain what was not released is missing as well. DP: arithmetic on public or released labels.
    """
    return tuple(
        len(values) + max(len(attribute.gaps), attribute.private)
        for attribute, values in zip(attributes, labels, strict=True)
    )


def one_way_sizes(configuration: Configuration, labels: Labels) -> tuple[int, ...]:
    """Number of codes of each table of the draw of single attributes: of the attributes, and then of the indicators of sets.

    DP: arithmetic on public or released labels.
    """
    indicators = configuration.indicators
    return domain_sizes((*configuration.attributes, *indicators), (*labels, *(one.labels for one in indicators)))


def structural_masks(configuration: Configuration, labels: Labels) -> tuple[StructuralZeros, ...]:
    """The cells that no record that is made can be in: by rules, by pairs that follow from several, or as a value is there.

    Of what was counted they are no facts, as `counted_masks` are. DP: arithmetic on public or released labels. Raises
    InputError for a set of attributes with too many combinations.
    """
    sizes = domain_sizes(configuration.attributes, labels)
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    alone = _never_missing(_with_gaps(configuration.attributes, labels, masks), labels)
    return (*masks, *implied_pairs(sizes, masks), *alone)


def counted_masks(configuration: Configuration, labels: Labels) -> tuple[StructuralZeros, ...]:
    """The cells that no counted record is in: by rules that rows are made to keep, and by pairs that follow from several.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    masks = rule_masks(kept_rules(configuration), configuration.attributes, labels)
    return (*masks, *implied_pairs(domain_sizes(configuration.attributes, labels), masks))


def kept_rules(configuration: Configuration) -> tuple[Forbidden, ...]:
    """What rules exclude in every row, before it is counted: none that names a private domain or a set of k-tuples.

    Values of a private domain are known after rows were counted, and a row has several of a set.
    """
    left = {j for j, attribute in enumerate(configuration.attributes) if attribute.private or attribute.is_set}
    return tuple(box for box in configuration.forbidden if left.isdisjoint(j for j, _ in box))


def rows_are_changed(configuration: Configuration) -> bool:
    """Whether rows that break a declared rule are counted as rows that keep it."""
    structure = configuration.structure
    if structure is None or not structure.can_be_broken:
        return False
    rules, kept = configuration.excluded_by(structure), kept_rules(configuration)
    return not rules or any(box in kept for box in rules)


def unkept_columns(configuration: Configuration) -> tuple[str, ...]:
    """The columns because of which some rules change no row: private domains, and sets of k-tuples."""
    attributes, kept = configuration.attributes, {j for box in kept_rules(configuration) for j, _ in box}
    left = {j for box in configuration.forbidden for j, _ in box} - kept
    return tuple(a.name for j, a in enumerate(attributes) if j in left and (a.private or a.is_set))


def recorded_alone(configuration: Configuration, labels: Labels) -> frozenset[Clique]:
    """The sets of attributes of structural zeros that hold in records that are made, and not in what was counted.

    DP: arithmetic on public or released labels.
    """
    attributes, kept = configuration.attributes, kept_rules(configuration)
    left = [box for box in configuration.forbidden if box not in kept]
    found = {tuple(sorted(a for a, _ in box)) for box in forbidden_codes(left, labels)}
    if found:
        sizes = domain_sizes(attributes, labels)
        masks = (rule_masks(rules, attributes, labels) for rules in (configuration.forbidden, kept))
        pairs, held = ({m.attributes: m.table() for m in implied_pairs(sizes, own)} for own in masks)
        found |= {pair for pair, own in pairs.items() if pair not in held or (own != held[pair]).any()}
    alone = _never_missing(released_attributes(configuration, labels), labels)
    return frozenset(found | {mask.attributes for mask in alone})


def excluded_codes(configuration: Configuration, labels: Labels) -> tuple[ForbiddenCodes, ...]:
    """Combinations that no record that is made can have: those of rules, and pairs that follow from several.

    A cell that is not as declared can be in a record beside any value, unless a rule says so. DP: arithmetic on public or
    released labels. Raises InputError for a set of attributes with too many combinations.
    """
    counted = configuration.with_undeclared(configuration.undeclared)
    return _listed(counted, labels, counted.forbidden)


def never_counted(configuration: Configuration, labels: Labels) -> tuple[ForbiddenCodes, ...]:
    """Those of `excluded_codes` that no counted record has, as rows are made to keep these rules.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    counted = configuration.with_undeclared(configuration.undeclared)
    return _listed(counted, labels, kept_rules(counted))


def uncounted_codes(configuration: Configuration, labels: Labels) -> tuple[ForbiddenCodes, ...]:
    """Those of `excluded_codes` that counted records may have, as their rules change no row; k-tuples do not count them.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    return tuple(sorted({*excluded_codes(configuration, labels)} - {*never_counted(configuration, labels)}))


def _listed(counted: Configuration, labels: Labels, rules: Sequence[Forbidden]) -> tuple[ForbiddenCodes, ...]:
    masks = rule_masks(rules, counted.attributes, labels)
    followed = [
        ((mask.attributes[0], (code,)), (mask.attributes[1], tuple(np.flatnonzero(~allowed).tolist())))
        for mask in implied_pairs(domain_sizes(counted.attributes, labels), masks)
        for code, allowed in enumerate(mask.table())
        if not allowed.all()
    ]
    return (*forbidden_codes(rules, labels), *followed)


def released_attributes(configuration: Configuration, labels: Labels) -> tuple[Attribute, ...]:
    """The attributes of a configuration, `optional` as the released domain has it.

    A private domain whose missing values are imputed can be missing all the same: where none of its values was released, and
    where rules leave some value of a column no record that has values of all of them: what was not released was in these
    records. DP: arithmetic on public or released labels.
    """
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    return _with_gaps(configuration.attributes, labels, masks)


def _with_gaps(
    attributes: Sequence[Attribute], labels: Labels, masks: Sequence[StructuralZeros]
) -> tuple[Attribute, ...]:
    found = tuple(
        replace(attribute, optional=True) if attribute.private and not values else attribute
        for attribute, values in zip(attributes, labels, strict=True)
    )
    named = {a for mask in masks for a in mask.attributes}
    tied = [mask for mask in _never_missing(found, labels) if named.issuperset(mask.attributes)]
    if not tied:
        return found
    sizes = domain_sizes(attributes, labels)
    anyhow, complete = allowed_boxes(sizes, masks, _MOST_BOXES), allowed_boxes(sizes, [*masks, *tied], _MOST_BOXES)
    if anyhow is None or complete is None:
        return found
    ends = np.cumsum(sizes)
    unreleased = [ends[mask.attributes[0]] - 1 for mask in tied]
    lost = np.delete(anyhow.any(axis=0) & ~complete.any(axis=0), unreleased)
    if not lost.any():
        return found
    return tuple(replace(a, optional=a.optional or (a.private and j in named)) for j, a in enumerate(found))


def _never_missing(attributes: Sequence[Attribute], labels: Labels) -> list[Mask]:
    """A mask for each private domain that a record has a released value of."""
    always = [j for j, attribute in enumerate(attributes) if attribute.private and not attribute.optional]
    return [Mask(attributes=(j,), allowed=np.arange(len(labels[j]) + 1) < len(labels[j])) for j in always]


def rule_masks(
    forbidden: Iterable[Forbidden], attributes: Sequence[Attribute], labels: Labels
) -> tuple[StructuralZeros, ...]:
    """What is excluded as masks, one for all that excludes combinations of the same attributes.

    Values that no combination tells apart are one kind. One combination of many attributes is by itself. DP: arithmetic on
    public or released labels. Raises InputError for a set of attributes with too many combinations of kinds.
    """
    sizes, found = domain_sizes(attributes, labels), defaultdict[Clique, list[list[tuple[int, ...]]]](list)
    masks: list[StructuralZeros] = []
    for box in map(sorted, forbidden_codes(forbidden, labels)):
        clique = tuple(a for a, _ in box)
        if len(clique) > _LISTED and all(len(codes) == 1 for _, codes in box):
            own = tuple(code for _, (code,) in box)
            masks.append(NeverTogether(attributes=clique, codes=own, sizes=tuple(sizes[a] for a in clique)))
        else:
            found[clique].append([codes for _, codes in box])
    for clique, boxes in found.items():
        kinds = tuple(_kinds(sizes[a], axis) for a, axis in zip(clique, zip(*boxes, strict=True), strict=True))
        shape = [int(own.max()) + 1 for own in kinds]
        if math.prod(shape) > MAX_CELLS:
            names = ", ".join(attributes[a].name for a in clique)
            raise InputError(
                f"structure ties {names} together, which have more than {MAX_CELLS} combinations that rules tell apart; use "
                "fewer columns, rules or values"
            )
        mask = Mask(attributes=clique, allowed=np.ones(shape, np.bool_), kinds=kinds)
        for codes in boxes:
            inside = (np.unique(own[np.array(axis)]) for own, axis in zip(kinds, codes, strict=True))
            mask.allowed[np.ix_(*inside)] = False
        masks.append(replace(mask))  # refuses one that allows nothing
    return tuple(masks)


def _kinds(size: int, boxes: Iterable[Sequence[int]]) -> Integers:
    """The kind of each code, the same where it lies in the same ones of these lists; shape (size,)."""
    inside: list[list[int]] = [[] for _ in range(size)]
    for number, codes in enumerate(boxes):
        for code in codes:
            inside[code].append(number)
    numbers: defaultdict[tuple[int, ...], int] = defaultdict(lambda: len(numbers))
    return np.array([numbers[tuple(lists)] for lists in inside], np.int64)


def broken_records(codes: Sequence[Codes], masks: Sequence[StructuralZeros]) -> Flags:
    """Which records have a combination that a mask forbids, shape (records,).

    Of a set any of its values; a code beyond the mask, of a value that is missing where none can be, is none of its business.
    """
    broken = np.zeros(len(codes[0]), np.bool_)
    for mask in masks:
        last = [size - 1 for size in mask.sizes]
        for slots in itertools.product(*(np.atleast_2d(codes[a].T) for a in mask.attributes)):
            known = np.logical_and.reduce([slot <= end for slot, end in zip(slots, last, strict=True)])
            places = tuple(np.minimum(slot, end) for slot, end in zip(slots, last, strict=True))
            broken |= known & ~mask.allow(places)
    return broken


def gaps_told_apart(codes: Sequence[Codes], configuration: Configuration, labels: Labels) -> tuple[Codes, ...]:
    """The records with cells that are missing where a rule wants a value as not as declared; shapes as they were.

    `codes` are of records that keep the rules but for that; `configuration` says which attributes have both codes.
    """
    found = list(codes)
    masks = rule_masks(configuration.forbidden, configuration.attributes, labels)
    for j, attribute in enumerate(configuration.attributes):
        if len(attribute.gaps) > 1:
            missing = len(labels[j])
            wanted = broken_records(codes, [mask for mask in masks if j in mask.attributes])
            found[j] = np.where(wanted & (codes[j] == missing), missing + 1, codes[j])
    return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class PossibleCells:
    """The cells of tables that a counted record may be in, as far as each structural zero by itself says."""

    masks: Sequence[StructuralZeros]
    _projections: dict[tuple[int, Clique], Flags] = field(default_factory=dict)

    @classmethod
    def of_records(cls, configuration: Configuration, labels: Labels) -> Self:
        """Those that a record that is made may be in."""
        return cls(masks=structural_masks(configuration.with_undeclared(configuration.undeclared), labels))

    @classmethod
    def of(cls, configuration: Configuration, labels: Labels) -> Self:
        """Those of tables as they are drawn, in which a cell that is not as declared has a code."""
        return cls(masks=counted_masks(configuration.with_undeclared(configuration.undeclared), labels))

    def contain(
        self, attributes: Clique, codes: Sequence[Integers] | NDArray[np.integer], blocks: Mapping[int, Integers]
    ) -> Flags:
        """Whether a record may be in each of some cells of a table.

        Args:
            attributes: of the table.
            codes: of each attribute, one for each of the cells.
            blocks: of attributes whose codes are put together in the table, the code there of each code.
        """
        cells = dict(zip(attributes, codes, strict=True))
        possible = np.ones(np.shape(codes)[1:], np.bool_)
        for number, mask in enumerate(self.masks):
            shared = tuple(attribute for attribute in mask.attributes if attribute in cells)
            allowed = self._projected(number, shared)
            if shared and not allowed.all():
                for position, attribute in enumerate(shared):
                    kinds = mask.kinds_along(attribute)
                    own_blocks = blocks.get(attribute, np.arange(len(kinds)))
                    allowed = _put_together(allowed, position, kinds, own_blocks)
                possible &= allowed[tuple(cells[attribute] for attribute in shared)]
        return possible

    def _projected(self, number: int, shared: Clique) -> Flags:
        """Which kinds of codes of some attributes of a mask it allows beside some kinds of its others."""
        if (number, shared) not in self._projections:
            self._projections[number, shared] = self.masks[number].project(shared)
        return self._projections[number, shared]


def _put_together(allowed: Flags, position: int, kinds: Integers, blocks: Integers) -> Flags:
    """What is allowed along one axis over blocks of codes in the place of their kinds: what some code of a block may be."""
    members = np.zeros((int(blocks.max()) + 1, allowed.shape[position]), np.float32)
    members[blocks, kinds] = 1.0
    rows = np.moveaxis(allowed, position, 0)
    found = members @ rows.reshape(len(rows), -1).astype(np.float32) > 0
    return np.moveaxis(found.reshape(-1, *rows.shape[1:]), 0, position)
