"""Checks that codes and counts are in their domain: a stage that returns a table checks what a table's type cannot say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from marginweave.base.errors import refuse_broken
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns.base import RULE_DECLARED, RULE_LABELS
from marginweave.domain.combinations import Level

RULE_CODES = "every code has a label"
RULE_COUNTS = "every count is positive"
RULE_ORDER = "combinations stand in canonical order, each once"
RULE_COLUMNS = "the columns of a combination increase"


def check_levels(
    levels: Iterable[Level],
    sizes: Sequence[int],
    stage: str,
) -> None:
    """Check order, domain and sign of the counts of every length, over columns of `sizes`; raises as `refuse_broken`."""
    for level in levels:
        refuse_broken(stage, _broken_level(level, sizes))


def _broken_level(level: Level, sizes: Sequence[int]) -> set[tuple[str, str]]:
    """Return every broken rule of a level's combinations, with the column (column_1 …, value_1 …, count) or `table`."""
    columns = level.columns
    values = level.values
    is_column = (columns >= 0) & (columns < len(sizes))
    # a number that is no column's has no values
    size_of_column = np.asarray([*sizes, 0])
    sizes_of_values = size_of_column[np.where(is_column, columns, -1)]
    keys = np.concatenate([columns, values], axis=1)
    order = np.lexsort(keys.T[::-1])
    in_order = (np.diff(order) > 0).all()
    differs = (keys[1:] != keys[:-1]).any(axis=1)
    each_once = differs.all()
    increases = columns[:, :-1] < columns[:, 1:]
    rules = {
        ("count", RULE_COUNTS): level.counts >= 1,
        ("table", RULE_CODES): values < sizes_of_values,
        ("table", RULE_COLUMNS): increases,
        ("table", RULE_ORDER): in_order and each_once,
    }
    for i in range(level.length):
        rules[f"column_{i + 1}", RULE_DECLARED] = is_column[:, i]
        rules[f"value_{i + 1}", RULE_CODES] = values[:, i] >= 0
    return {rule for rule, holds in rules.items() if not np.all(holds)}


def check_codes(
    attributes: Sequence[Attribute],
    sizes: Sequence[int],
    codes: Sequence[Any],
    stage: str,
    *,
    complete: bool,
) -> None:
    """Check the sizes of public domains, and that codes lie in 0 … size; with `complete`, those above it only for gaps.

    Codes of an attribute have shape (n,), or (n, width) for a set. Raises StageError as `refuse_broken`.
    """
    broken: set[tuple[str, str]] = set()
    numbers_of_records = {len(values) for values in codes}
    if len(numbers_of_records) > 1:
        broken.add(("table", RULE_CODES))
    for attribute, size, values in zip(attributes, sizes, codes, strict=True):
        if not attribute.private and size != len(attribute.labels):
            broken.add((attribute.name, RULE_LABELS))
        gaps = max(len(attribute.gaps), not complete)
        largest = size + gaps - 1
        width = 1 if values.ndim == 1 else values.shape[1]
        are_codes = np.all(values >= 0) and np.all(values <= largest)
        if width != attribute.width or not are_codes:
            broken.add((attribute.name, RULE_CODES))
    refuse_broken(stage, broken)
