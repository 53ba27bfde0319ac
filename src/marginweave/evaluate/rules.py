"""Records that break declared rules: impossible combinations, columns that do not follow from others, missing values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrays import Flags
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.columns import values_of
from marginweave.columns.computed import computed_values
from marginweave.configuration.attributes import Forbidden
from marginweave.configuration.columns import SetColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.computed import ComputedColumn, DeterminedColumn
from marginweave.configuration.rules.structure import Structure
from marginweave.configuration.values import declared_number
from marginweave.domain.zeros import broken_records, rule_masks
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import column_codes
from marginweave.released.evaluation import BrokenRule

BrokenRules = tuple[BrokenRule, ...]
NamedRule = tuple[str, str, Flags]
"""The key of a rule, its columns, and which records break it."""


def broken_rules(table: pa.Table, configuration: Configuration) -> BrokenRules:
    """Count the records of a table that break each declared rule; the inconsistencies of the NIST CRC reports.

    Args:
        table: The counted columns, as they are read from a source or written to a release, and computed ones.
        configuration: What is declared, bounds resolved.

    Returns:
        One entry a rule, in the order of the declaration; computed columns that the table lacks are left out.
        DP: as private as the table.
    """
    rules: list[BrokenRule] = []
    for rule, subject, broken in _broken(table, configuration):
        records = broken.sum()
        share = float(records / max(len(broken), 1))
        broken_rule = BrokenRule(rule=rule, subject=subject, records=int(records), share=share)
        rules.append(broken_rule)
    return tuple(rules)


def add_rules(blocks: Sequence[tuple[BrokenRules, int]]) -> BrokenRules:
    """Return the result of `broken_rules` for a table, from that of each of its blocks and their numbers of records.

    DP: as private as the blocks.
    """
    total_records = sum(records for _, records in blocks)
    rules_of_blocks = [rules for rules, _ in blocks]
    added: list[BrokenRule] = []
    for rules in zip(*rules_of_blocks, strict=True):  # the same rule in every block
        broken = sum(rule.records for rule in rules)
        share = broken / max(total_records, 1)
        sums = {"records": broken, "share": share}
        added.append(rules[0].model_copy(update=sums))
    return tuple(added)


def _broken(table: pa.Table, configuration: Configuration) -> Iterator[NamedRule]:
    """Yield the key of each rule, its columns, and which records break it."""
    clean = clean_table(table, configuration)
    structure = configuration.structure or Structure()
    yield from _between_columns(clean, configuration.as_recorded, structure)
    for name, column in configuration.columns.items():
        if isinstance(column, SetColumn) and name in configuration.names:
            codes, labels = column_codes(clean, configuration, name, None)
            has_value = codes < len(labels)
            values = has_value.sum(axis=1)
            yield "max_values", name, values > column.max_values
    for rule in structure.computed:
        if rule.computed in table.column_names:
            yield rule.key, rule.computed, _differs(table, clean, configuration, rule)
    for name in configuration.names:
        if not configuration.can_be_missing(name):
            missing = clean.column(name).combine_chunks().is_null()
            yield "never missing", name, to_numpy(missing)


def _between_columns(
    clean: pa.Table, configuration: Configuration, structure: Structure
) -> Iterator[NamedRule]:
    """Yield the rules between columns as `_broken` does."""
    if structure.forbidden:
        boxes = configuration.excluded_by(Structure(forbidden=structure.forbidden))
        yield "structural zeros", "", _excluded(clean, configuration, boxes)
    for universe in structure.applies or ():
        boxes = configuration.excluded_by(Structure(applies=(universe,)))
        yield "applies", ", ".join(universe.columns), _excluded(clean, configuration, boxes)
    for order in structure.ordered or ():
        yield "ordered", ", ".join(order.columns), _out_of_order(clean, Structure(ordered=(order,)))


def _excluded(
    clean: pa.Table, configuration: Configuration, forbidden: Sequence[Forbidden]
) -> Flags:
    """Return which records have one of the forbidden combinations."""
    attributes = configuration.attributes
    labels: list[tuple[str, ...]] = [()] * len(attributes)
    no_codes: NDArray[np.integer] = np.zeros(clean.num_rows, np.uint8)
    codes = [no_codes] * len(attributes)
    places: set[int] = set()
    for box in forbidden:
        places.update(place for place, _ in box)
    for place in places:
        name = attributes[place].column
        codes[place], labels[place] = column_codes(clean, configuration, name, None)
    masks = rule_masks(forbidden, attributes, labels)
    return broken_records(codes, masks)


def _out_of_order(clean: pa.Table, rules: Structure) -> Flags:
    """Return which records have a later value that is too small; by the values themselves, whatever their bins are."""
    broken = np.zeros(clean.num_rows, np.bool_)
    for (low_name, high_name), is_strict in rules.orders.items():
        low = _numbers(clean, low_name)
        high = _numbers(clean, high_name)
        is_wrong = pc.greater_equal(low, high) if is_strict else pc.greater(low, high)
        filled = pc.fill_null(is_wrong, False)
        broken |= to_numpy(filled)
    return broken


def _numbers(clean: pa.Table, name: str) -> pa.Array:
    """Return the values of a column; of labels behind a dictionary their numbers, null for one that is no number."""
    values = clean.column(name).combine_chunks()
    if pa.types.is_dictionary(values.type):
        declared = [declared_number(label) for label in values.dictionary.to_pylist()]
        numbers = [None if number is None else float(number) for number in declared]
        return pa.array(numbers, pa.float64()).take(values.indices)
    return values


def _decoded(values: pa.Array) -> pa.Array:
    """Return the values themselves where they are behind a dictionary."""
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    return values


def _differs(
    table: pa.Table,
    clean: pa.Table,
    configuration: Configuration,
    rule: ComputedColumn,
) -> Flags:
    """Return which records have another value than the rule gives; a difference or sum needs all of its values."""
    name = rule.computed
    missing_texts = configuration.missing_texts(name)
    kind = values_of(configuration.columns[name], missing_texts)
    wanted = _decoded(computed_values(rule, clean, configuration.columns))
    released = table.column(name).combine_chunks()
    values = _decoded(kind.clean(released))
    is_other = pc.not_equal(wanted, values)
    unlike = pc.fill_null(is_other, False)
    if isinstance(rule, DeterminedColumn):
        is_one_missing = pc.xor(wanted.is_null(), values.is_null())
        unlike = pc.or_(unlike, is_one_missing)
    broken: Flags = to_numpy(unlike)
    return broken
