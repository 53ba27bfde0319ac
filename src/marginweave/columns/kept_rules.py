"""Checks whether a column keeps a rule of its contract: of all its cells at once, and of equal texts once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Flags
from marginweave.base.arrow import compute as pc
from marginweave.columns.base import distinct_texts
from marginweave.configuration.columns.base import Rule


def keeps(rule: Rule, values: pa.Array) -> bool:
    """Return whether every cell keeps the rule; a null cell does. Private, as the cells are."""
    if rule.labels is not None:
        return tuple(values.dictionary.to_pylist()) == rule.labels
    if rule.limits is not None or rule.values is not None:
        is_kept = pc.or_(values.is_null(), _is_value(rule, values))
        return bool(pc.all(is_kept, min_count=0).as_py())
    texts, _ = distinct_texts(values.drop_null())
    trimmed = [text.strip() for text in texts.to_pylist()]
    return bool(kept_texts(rule, trimmed).all())


def kept_texts(rule: Rule, texts: Sequence[str]) -> Flags:
    """Return which trimmed texts keep a rule about texts or their parts; `test` is called once for equal parts."""
    if rule.separator is None:
        assert rule.test is not None
        passes = [rule.test(text) for text in texts]
        return np.array(passes, np.bool_)
    cells = pc.split_pattern(pa.array(texts, pa.string()), rule.separator)
    lengths = cells.value_lengths().to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(len(texts)), lengths)
    encoded = cells.flatten().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    parts = [part.strip() for part in encoded.dictionary.to_pylist()]
    is_filled = np.array([part != "" for part in parts], np.bool_)
    number = np.bincount(owners[is_filled[codes]], minlength=len(texts))
    at_most = np.inf if rule.at_most is None else rule.at_most
    is_kept = (number >= rule.at_least) & (number <= at_most)
    if rule.test is not None:
        is_refused = [part != "" and not rule.test(part) for part in parts]
        refused = np.array(is_refused, np.bool_)
        is_kept[owners[refused[codes]]] = False
    return is_kept


def _is_value(rule: Rule, values: pa.Array) -> pa.Array:
    """Return which cells are within the limits, or are one of the values; for a null cell true, false or null."""
    if pa.types.is_integer(values.type):  # limits have decimals
        values = values.cast(pa.float64(), safe=False)
    among = None
    if rule.values is not None:
        among = pc.is_in(values, value_set=pa.array(rule.values, values.type))
    if rule.limits is None:
        return among
    low, high = (pa.scalar(limit, values.type) for limit in rule.limits)
    is_above_low = pc.greater_equal(values, low)
    inside = pc.and_(is_above_low, pc.less_equal(values, high))
    return inside if among is None else pc.or_(inside, among)
