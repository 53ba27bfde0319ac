"""Keys that earlier versions had, each with the sentence that says what to write instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from marginweave.base.errors import InputError

GONE_KEYS: Mapping[str, str] = {
    "aggregate.fabrication": "leave it out; thresholds: {fixed: {2: 30}} keeps out what noise may have made",
    "aggregate.on_overflow": "leave it out; the threshold is raised where more than max_combinations would be kept",
    "aggregate.thresholds: uncontrolled": "leave it out; nothing is held back by default",
    "aggregate.thresholds: balanced": "write thresholds: {adaptive: {2: 0.55}}",
    "aggregate.thresholds: minimize": "write thresholds: {adaptive: {2: 0.01, 3: 0.01}}, a rate for each length",
    "aggregate.thresholds: progressive": "write thresholds: {adaptive: {2: 0.1, 3: 1}}, a rate for each length",
    "aggregate.split": "leave it out; the shares of aggregate divide the budget",
    "structure.grouped": "forbid the combinations that cannot be, in structure.forbidden; the columns are counted as they are",
    "structure.at_most": "forbid the combinations of bins that cannot add up, in structure.forbidden",
    "columns.*.bins.quantiles": "write a list of edges that are public, a count of bins, or bins: {log: 12}",
    "structure.repair": "leave it out; a record that breaks a rule becomes the nearest that keeps all",
    "privacy.accountant": "leave it out; noise is priced by Gaussian differential privacy, which zCDP checks",
}
"""Sentences by dotted key, in which `*` is any name (of a column), or by `key: value` where only that value is gone."""


def refuse_gone(raw: Mapping[str, Any]) -> None:
    """Raise InputError for the first key of the configuration `raw`, or value, that is gone: what to write instead."""
    for written, sentence in GONE_KEYS.items():
        key, _, gone_value = written.partition(": ")
        for place, value in _values_at(raw, key.split(".")):
            if not gone_value:
                raise InputError(f"{place} is gone: {sentence}")
            if str(value) == gone_value:
                raise InputError(f"{place} ({value}) is gone: {sentence}")


def _values_at(section: Any, path: list[str]) -> Iterator[tuple[str, Any]]:
    """The places below `section` that `path` leads to, and what stands there; nothing where a key is missing."""
    if not isinstance(section, Mapping):
        return
    name, *rest = path
    for key, value in section.items():
        if name not in ("*", key):
            continue
        if not rest:
            yield str(key), value
        for place, below in _values_at(value, rest) if rest else ():
            yield f"{key}.{place}", below
