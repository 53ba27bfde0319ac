"""Checks whether a column keeps a rule of its contract: of all its cells at once, and of equal texts once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Flags
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy
from marginweave.columns.base import distinct_texts
from marginweave.configuration.columns.base import Rule


def keeps(rule: Rule, values: pa.Array) -> bool:
    """Return whether every cell keeps the rule; a null cell does. Private, as the cells are."""
    if rule.labels is not None:
        labels = values.dictionary.to_pylist()
        return tuple(labels) == rule.labels
    if rule.limits is not None or rule.values is not None:
        is_value = _is_value(rule, values)
        is_kept = pc.or_(values.is_null(), is_value)
        all_kept = pc.all(is_kept, min_count=0)
        return bool(all_kept.as_py())
    texts, _ = distinct_texts(values.drop_null())
    trimmed = [text.strip() for text in texts.to_pylist()]
    is_kept = kept_texts(rule, trimmed)
    return bool(is_kept.all())


def kept_texts(rule: Rule, texts: Sequence[str]) -> Flags:
    """Return which trimmed texts keep a rule about texts or their parts; `test` is called once for equal parts."""
    if rule.separator is None:
        assert rule.test is not None
        passes = [rule.test(text) for text in texts]
        return np.array(passes, np.bool_)
    cells = pc.split_pattern(pa.array(texts, pa.string()), rule.separator)
    lengths = to_numpy(cells.value_lengths())
    # the text, and the distinct part, of every part
    owners = np.repeat(np.arange(len(texts)), lengths)
    encoded = cells.flatten().dictionary_encode()
    codes = to_numpy(encoded.indices)
    is_filled = np.ones(len(encoded.dictionary), np.bool_)
    is_refused = np.zeros(len(encoded.dictionary), np.bool_)
    for code, part in enumerate(encoded.dictionary.to_pylist()):
        trimmed = part.strip()
        is_filled[code] = trimmed != ""
        if trimmed and rule.test is not None:
            is_refused[code] = not rule.test(trimmed)
    owners_of_filled = owners[is_filled[codes]]
    filled_parts = np.bincount(owners_of_filled, minlength=len(texts))
    at_most = np.inf if rule.at_most is None else rule.at_most
    is_kept = (filled_parts >= rule.at_least) & (filled_parts <= at_most)
    owners_of_refused = owners[is_refused[codes]]
    is_kept[owners_of_refused] = False
    return is_kept


def _is_value(rule: Rule, values: pa.Array) -> pa.Array:
    """Return which cells are within the limits, or are one of the values; for a null cell true, false or null."""
    if pa.types.is_integer(values.type):  # limits have decimals
        values = values.cast(pa.float64(), safe=False)
    is_listed = None
    if rule.values is not None:
        listed_values = pa.array(rule.values, values.type)
        is_listed = pc.is_in(values, value_set=listed_values)
    if rule.limits is None:
        return is_listed
    low, high = rule.limits
    reaches_low = pc.greater_equal(values, pa.scalar(low, values.type))
    within_high = pc.less_equal(values, pa.scalar(high, values.type))
    is_inside = pc.and_(reaches_low, within_high)
    return is_inside if is_listed is None else pc.or_(is_inside, is_listed)
