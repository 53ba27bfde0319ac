"""Keys and values of configurations that are gone, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from marginweave.base.errors import InputError

GONE_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "privacy.redraws": "leave it out; a draw that was begun is made again with the same bits",
        "evaluate.target": "leave it out; scripts over synthetic.csv can train what they like",
        "synthesize.method: pgm": "write method: mixture, which makes records of the same counts",
        "evaluate.paid": "leave it out; `marginweave evaluate RUN --internal` compares a finished release with its table",
        "aggregate.fabrication": "leave it out; thresholds: {fixed: {2: 30}} keeps out what noise may have made",
        "aggregate.on_overflow": "leave it out; the threshold is raised where more than max_combinations would be kept",
        "aggregate.thresholds: uncontrolled": "leave it out; nothing is held back by default",
        "aggregate.thresholds: balanced": "write thresholds: {adaptive: {2: 0.55}}",
        "aggregate.thresholds: minimize": "write thresholds: {adaptive: {2: 0.01, 3: 0.01}}, a rate for each length",
        "aggregate.thresholds: progressive": "write thresholds: {adaptive: {2: 0.1, 3: 1}}, a rate for each length",
        "aggregate.split": "leave it out; the shares of aggregate divide the budget",
        "structure.at_most": "forbid the combinations of bins that cannot add up, in structure.forbidden",
        "privacy.accountant": "leave it out; noise is priced by Gaussian differential privacy, which zCDP checks",
        "structure.grouped": "forbid the combinations that cannot be, in structure.forbidden",
        "columns.*.bins.quantiles": "write a list of edges that are public, a count of bins, or bins: {log: 12}",
        "structure.levels": "list the column in structure.determined, whose mapping has values and no bins",
        "structure.repair": "leave it out; a record that breaks a rule becomes the nearest that keeps all",
    }
)
"""Keys from the top, joined by dots, or `key: value` for a value that is gone: what to do instead.

`*` is the name of any column, or any entry of a list.
"""


def refuse_gone(raw: dict[str, Any]) -> None:
    """Refuse the first key or value of `GONE_KEYS` that is in `raw` (InputError), with advice on what to write instead."""
    for key, instead in GONE_KEYS.items():
        path, _, gone_value = key.partition(": ")
        for place, value in _values_at(raw, path.split(".")):
            if not gone_value:
                raise InputError(f"{place} is gone: {instead}")
            if value == gone_value:
                raise InputError(f"{place}: {gone_value} is gone: {instead}")


def _values_at(section: Any, path: list[str], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted place and the value of every entry that `path` leads to."""
    if not path:
        yield place, section
        return
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(section, list):
        entries = enumerate(section, 1)
    elif isinstance(section, dict):
        entries = section.items()
    first, *path_below = path
    for name, value in entries:
        if first in ("*", name):
            yield from _values_at(value, path_below, f"{place}.{name}" if place else str(name))
