"""Records that break what is declared of them: combinations that cannot be, columns that do not follow from others, gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.base.arrow import compute as pc
from marginweave.columns import values_of
from marginweave.columns.computed import computed_values
from marginweave.configuration.attributes import Forbidden
from marginweave.configuration.columns import SetColumn
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.computed import ComputedColumn, DeterminedColumn
from marginweave.configuration.rules.structure import Structure
from marginweave.domain.zeros import broken_records, rule_masks
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import column_codes
from marginweave.released.evaluation import BrokenRule

Broken = NDArray[np.bool_]


def broken_rules(table: pa.Table, configuration: Configuration) -> tuple[BrokenRule, ...]:
    """Count the records of a table that break each declared rule; the inconsistencies of the NIST CRC reports.

    Args:
        table: The counted columns, as they are read from a source or written to a release, and computed ones.
        configuration: What is declared, bounds resolved.

    Returns:
        One entry a rule, in the order of the declaration; computed columns that the table lacks are left out.
        DP: as private as the table.
    """
    rules = []
    for rule, subject, broken in _broken(table, configuration):
        share = float(broken.sum() / max(len(broken), 1))
        rules.append(BrokenRule(rule=rule, subject=subject, records=int(broken.sum()), share=share))
    return tuple(rules)


def add_rules(blocks: Sequence[tuple[tuple[BrokenRule, ...], int]]) -> tuple[BrokenRule, ...]:
    """What `broken_rules` says of a table, from what it says of each of its blocks and how many records these have.

    DP: as private as the blocks.
    """
    total = sum(records for _, records in blocks)
    broken = [sum(rule.records for rule in rules) for rules in zip(*(rules for rules, _ in blocks), strict=True)]
    return tuple(
        rule.model_copy(update={"records": records, "share": records / max(total, 1)})
        for rule, records in zip(blocks[0][0], broken, strict=True)
    )


def _broken(table: pa.Table, configuration: Configuration) -> Iterator[tuple[str, str, Broken]]:
    clean, structure = clean_table(table, configuration), configuration.structure or Structure()
    yield from _between_columns(clean, configuration.as_recorded, structure)
    for name, column in configuration.columns.items():
        if isinstance(column, SetColumn) and name in configuration.names:
            codes, labels = column_codes(clean, configuration, name, None)
            yield "max_values", name, (codes < len(labels)).sum(axis=1) > column.max_values
    for rule in structure.computed:
        if rule.computed in table.column_names:
            yield rule.key, rule.computed, _differs(table, clean, configuration, rule)
    for name in configuration.names:
        if not configuration.can_be_missing(name):
            yield "never missing", name, clean.column(name).combine_chunks().is_null().to_numpy(zero_copy_only=False)


def _between_columns(
    clean: pa.Table, configuration: Configuration, structure: Structure
) -> Iterator[tuple[str, str, Broken]]:
    if structure.forbidden:
        yield (
            "structural zeros",
            "",
            _excluded(clean, configuration, configuration.excluded_by(Structure(forbidden=structure.forbidden))),
        )
    for universe in structure.applies or ():
        boxes = configuration.excluded_by(Structure(applies=(universe,)))
        yield "applies", ", ".join(universe.columns), _excluded(clean, configuration, boxes)
    for order in structure.ordered or ():
        yield "ordered", ", ".join(order.columns), _out_of_order(clean, Structure(ordered=(order,)))


def _excluded(clean: pa.Table, configuration: Configuration, forbidden: Sequence[Forbidden]) -> Broken:
    """Records with one of these combinations."""
    places = {j for box in forbidden for j, _ in box}
    names = {j: configuration.attributes[j].column for j in places}
    encoded = {j: column_codes(clean, configuration, name, None) for j, name in names.items()}
    labels = [encoded[j][1] if j in encoded else () for j in range(len(configuration.attributes))]
    codes = [encoded[j][0] if j in encoded else np.zeros(clean.num_rows, np.uint8) for j in range(len(labels))]
    return broken_records(codes, rule_masks(forbidden, configuration.attributes, labels))


def _out_of_order(clean: pa.Table, rules: Structure) -> Broken:
    """Records in which a later value is too small; by the values themselves, whatever their bins are."""
    broken = np.zeros(clean.num_rows, np.bool_)
    for (low, high), steps in rules.orders.items():
        one, other = (clean.column(name).combine_chunks() for name in (low, high))
        one, other = (
            v.dictionary_decode().cast(pa.float64()) if pa.types.is_dictionary(v.type) else v for v in (one, other)
        )
        wrong = pc.greater_equal(one, other) if steps else pc.greater(one, other)
        broken |= pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)
    return broken


def _differs(table: pa.Table, clean: pa.Table, configuration: Configuration, rule: ComputedColumn) -> Broken:
    """Records whose value is not the one that the rule gives; a difference or sum needs all of its values."""
    name, wanted = rule.computed, computed_values(rule, clean, configuration.columns)
    released = values_of(configuration.columns[name], configuration.missing_texts(name))
    given = released.clean(table.column(name).combine_chunks())
    one, other = (v.dictionary_decode() if pa.types.is_dictionary(v.type) else v for v in (wanted, given))
    unlike = pc.fill_null(pc.not_equal(one, other), False)
    if isinstance(rule, DeterminedColumn):
        unlike = pc.or_(unlike, pc.xor(one.is_null(), other.is_null()))
    broken: Broken = unlike.to_numpy(zero_copy_only=False)
    return broken
