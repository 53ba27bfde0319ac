"""explore.html: released counts and synthetic records to look into, one page that needs no network and no server."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from marginweave.tasks.evaluate.intervals import record_interval
from marginweave.tasks.publish.reader import PublishedRelease
from marginweave.tasks.publish.records import RecordCodes, ShownRecords
from marginweave.tasks.publish.templates import read_text, render

# Of numbers like these the highest effort takes 15 times as long for 6 % less: 16 seconds for 1.7 million combinations.
_EFFORT = 5
_TYPES = (np.uint8, np.uint16, np.uint32, np.float64)  # those that a page can read without loss up to 2^53


def render_explorer(published: PublishedRelease, shown: ShownRecords) -> str:
    """The page as HTML text, the same for the same release and what is shown of its records. DP: post-processing."""
    return render(
        "explore.html.j2",
        statement=published.statement,
        made=shown.records,
        sampled=len(shown.sample[0]),
        record_count=published.aggregates.record_count,
        reporting_length=published.aggregates.reporting_length,
        data=base64.b64encode(explorer_data(published, shown.sample)).decode(),
        script=Markup(read_text("explore.js")),  # noqa: S704 - our own file
    )


def explorer_data(published: PublishedRelease, codes: RecordCodes) -> bytes:
    """What the page's script reads: gzip of a length (uint32), a header in JSON of that many bytes, and its arrays.

    `header.arrays` has name, type and size of each array, little-endian, in order: `codes-J`, attribute by attribute, row by
    row; for each length k from 1 `values-k` (k codes a combination), `counts-k`, and `low-k` and `high-k`, the ends of
    the interval. `header.sets[k - 1]` has the attributes of each set of columns and its first combination;
    a set ends where the next begins, and combinations are sorted within. DP: post-processing.
    """
    aggregates = published.aggregates
    arrays: dict[str, NDArray[Any]] = {f"codes-{j}": code for j, code in enumerate(codes)}
    sets = []
    for level, inside in zip(aggregates.levels, published.intervals, strict=True):
        sets.append([[list(columns), rows.start] for columns, rows in level.by_columns()])
        arrays[f"values-{level.length}"] = level.values
        arrays[f"counts-{level.length}"] = level.counts
        arrays[f"low-{level.length}"] = inside.low
        arrays[f"high-{level.length}"] = inside.high
    packed = {name: _packed(array) for name, array in arrays.items()}
    header = {
        "attributes": [
            {
                "name": name,
                "labels": list(labels),
                "set": code.ndim == 2,
                "width": code.shape[1] if code.ndim == 2 else 1,
            }
            for name, labels, code in zip(aggregates.domain.names, aggregates.domain.labels, codes, strict=True)
        ],
        "records": len(codes[0]),
        "count": [aggregates.record_count, *record_interval(aggregates)],
        "sets": sets,
        "arrays": [[name, array.dtype.name, array.size] for name, array in packed.items()],
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    content = b"".join([struct.pack("<I", len(text)), text, *(a.tobytes() for a in packed.values())])
    return gzip.compress(content, _EFFORT, mtime=0)


def _packed(array: NDArray[Any]) -> NDArray[Any]:
    """The array in the smallest type that holds its numbers, none of which is negative."""
    largest = int(array.max(initial=0))
    kind = next((t for t in _TYPES[:3] if largest <= np.iinfo(t).max), _TYPES[3])
    return np.ascontiguousarray(array).astype(np.dtype(kind).newbyteorder("<"))
