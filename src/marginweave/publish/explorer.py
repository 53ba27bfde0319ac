"""The page explore.html: released counts, their estimates with intervals, and a sample of the synthetic records."""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from marginweave.answers.cells import CellTable
from marginweave.answers.intervals import Reach, count_ends
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.base import NOT_RELEASED
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.domain.zeros import gaps_told_apart, never_counted, uncounted_codes
from marginweave.estimate.intervals import LEVEL, censored_bound
from marginweave.publish.best import best_counts, best_records, tuple_intervals
from marginweave.publish.reader import PublishedRelease, ShownRecords, titled_labels
from marginweave.publish.templates import read_text, render

SCRIPTS = ("explore", "explore_page", "explore_save")
STEPS = 1024
"""Parts of a record in which the page holds estimates; the whole ones that it shows are exact."""
# Of numbers like these the highest effort takes 15 times as long for 6 % less: 16 seconds for 1.7 million combinations.
_EFFORT = 5

Arrays = dict[str, NDArray[Any]]


def render_explorer(published: PublishedRelease, shown: ShownRecords) -> str:
    """The page as HTML text, the same for the same release and what is shown of its records. DP: post-processing."""
    data, texts = base64.b64encode(explorer_data(published, shown)).decode(), read_text("explore.texts.json")
    parts = [f"const TEXT = {texts.strip()};\n", *(read_text(f"{name}.js") for name in SCRIPTS)]
    script = Markup("".join(parts))  # noqa: S704 - our own files
    return render("explore.html.j2", published=published, shown=shown, data=data, script=script, text=json.loads(texts))


def explorer_data(published: PublishedRelease, shown: ShownRecords) -> bytes:
    """What the page's script reads: gzip of a length (uint32), a header in JSON of that many bytes, and its arrays.

    `header.arrays` has name, type and size of each array, little-endian, in order: `codes-J`, attribute by attribute, row by
    row. Of k-tuples for each length k from 1 `values-k` (k codes a combination), `counts-k`, `low-k` and `high-k`, the ends of
    the interval, and `below-k` and `above-k`, those of each of two that hold together; `header.sets[k - 1]` has the attributes
    of each set of columns and its first combination; a set ends where the next begins, and combinations are sorted within;
    `header.bounds[k - 1]` is the most that one of length k can have which was not published; `header.excluded` has what
    rules allow no record to have, in pairs of an attribute and codes, and `header.left_out` what is
    not counted by rules that change no row. Of marginals for each length k
    from 0 `estimate-k`, `low-k`, `high-k`, `below-k` and `above-k` (how far below and above it these ends lie), `rest-k` (what
    it lacks to the exact estimate, in `steps`), `variance-k`, `shared-k`, and `whole-k` and `spread-k`, the two `wholes`
    (`CellTable`; 0 where a cell was measured together with others); `header.tables` has attributes and first cell of each
    table, whose shape `sizes` says. DP: post-processing.
    """
    declared = published.configuration
    labels = published.aggregates.domain.labels
    counted = declared.with_undeclared(declared.undeclared)
    codes = gaps_told_apart(shown.sample, counted, labels)
    attributes = counted.attributes
    columns = declared.columns
    arrays: Arrays = {f"codes-{j}": code for j, code in enumerate(codes)}
    undeclared = {one.attribute: "found" if one.found else "noise" for one in published.statement.undeclared or ()}
    found = _tuples(published, arrays) if published.measured is None else _tables(published, arrays)
    packed = {name: _packed(array) for name, array in arrays.items()}
    labelled = zip(attributes, declared.titled_names.values(), titled_labels(published), codes, strict=True)
    header = {
        "attributes": [
            {
                "name": name,
                "labels": list(labels),
                "set": code.ndim == 2,
                "width": math.prod(code.shape[1:]),
                "kind": columns[a.column].type,
                "binned": isinstance(columns[a.column], BinnedColumn),
                "about": columns[a.column].description,
                "edges": _edges(columns[a.column]) if a.bins else None,
                "undeclared": undeclared.get(a.name)
                if len(a.gaps) > 1 or a.name not in declared.missing_by_rule
                else None,
                "gaps": max(len(a.gaps), 1),
                "gap": _gap(a, labels),
            }
            for a, name, labels, code in labelled
        ],
        "records": len(codes[0]),
        "of": shown.records,
        "dataset": published.statement.dataset,
        "level": LEVEL,
        "arrays": [[name, array.dtype.name, array.size] for name, array in packed.items()],
        **found,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    content = b"".join([struct.pack("<I", len(text)), text, *(a.tobytes() for a in packed.values())])
    return gzip.compress(content, _EFFORT, mtime=0)


def _gap(attribute: Attribute, labels: Sequence[str]) -> str | None:
    """What the code behind those of values is, in the words of `marginweave table`; None: a cell without a value."""
    if attribute.of_set:
        return f"(not {labels[0]})"
    return NOT_RELEASED if attribute.private else None


def _edges(column: object) -> list[float] | None:
    return list(column.edges) if isinstance(column, NumberColumn) else None


def _tuples(published: PublishedRelease, arrays: Arrays) -> dict[str, Any]:
    each, sets, total = published.reach.each.level, [], best_records(published)
    for level, inside in best_counts(published):
        wider = tuple_intervals(published, level.length, each)
        sets.append([[list(columns), rows.start] for columns, rows in level.by_columns()])
        arrays[f"values-{level.length}"] = level.values
        arrays[f"counts-{level.length}"] = inside.measured
        arrays[f"low-{level.length}"] = inside.low
        arrays[f"high-{level.length}"] = inside.high
        arrays[f"below-{level.length}"] = wider.low
        arrays[f"above-{level.length}"] = wider.high
    wide = best_records(published, each)
    bounds = [censored_bound(noise.threshold, noise.deviation) for noise in published.aggregates.noise]
    labels = published.aggregates.domain.labels
    excluded = never_counted(published.configuration, labels)
    left_out = uncounted_codes(published.configuration, labels)
    count = [total.estimate, total.low, total.high, wide.low, wide.high]
    return {"sets": sets, "count": count, "bounds": bounds, "excluded": excluded, "left_out": left_out}


def _tables(published: PublishedRelease, arrays: Arrays) -> dict[str, Any]:
    reach, tables = published.reach, published.cells
    sizes = published.counted_sizes
    placed: list[Any] = []
    for length in range(1 + max((len(table.attributes) for table in tables), default=0)):
        own = [table for table in tables if len(table.attributes) == length]
        starts = np.cumsum([0, *(table.estimates.size for table in own)]).tolist()
        placed += [[list(table.attributes), start] for table, start in zip(own, starts, strict=False)]
        arrays |= {f"{name}-{length}": array for name, array in _cells(own, reach).items()}
    return {"tables": placed, "sizes": list(sizes), "reach": reach.sigmas, "steps": STEPS}


def _cells(tables: Iterable[CellTable], reach: Reach) -> Arrays:
    """The arrays of tables of one length; no variance where a cell was measured together with others."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for table in tables:
        known, reaches = table.known, (reach, reach.each)
        ends = np.stack([count_ends(table.estimates, table.variances, one) for one in reaches])
        (estimates, low, high), (_, below, above) = (
            ends if table.merged is None else np.where(known, ends, table.merged)
        )
        rest = np.where(known, np.round((table.estimates - estimates) * STEPS), 0)
        whole = {"estimate": estimates, "low": estimates - low, "rest": rest, "high": high - estimates}
        whole |= {"below": estimates - below, "above": above - estimates}
        found = {name: array.astype(np.int64) for name, array in whole.items()}
        found |= {"variance": np.where(known, table.variances, 0), "shared": np.where(known, table.shared, 0)}
        found |= dict(zip(("whole", "spread"), np.where(known, table.wholes, 0), strict=True))
        for name, array in found.items():
            parts.setdefault(name, []).append(array.ravel())
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _packed(array: NDArray[Any]) -> NDArray[Any]:
    """The array in the smallest type that holds its whole numbers; a page reads floats up to 2^53. Others have 32 bits."""
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, np.dtype("<f4"))
    least, largest = int(array.min(initial=0)), int(array.max(initial=0))
    smallest = (
        np.promote_types(np.min_scalar_type(least), np.min_scalar_type(largest))
        if least
        else np.min_scalar_type(largest)
    )
    kind = smallest if smallest.itemsize < 8 else np.dtype(np.float64)
    return np.ascontiguousarray(array).astype(kind.newbyteorder("<"))
