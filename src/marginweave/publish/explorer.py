"""Renders explore.html: released counts, their estimates with intervals, and a sample of the synthetic records."""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from marginweave.answers.cells import CellTable
from marginweave.answers.codes import Codes
from marginweave.answers.intervals import Reach, count_ends
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.base import NOT_RELEASED
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import (
    counted_masks,
    never_counted,
    uncounted_codes,
    with_undeclared_code,
)
from marginweave.estimate.intervals import LEVEL, censored_bound
from marginweave.publish.best import best_counts, best_records, tuple_intervals
from marginweave.publish.pooled_tables import Ends, pack_numbers, pack_rules, pack_squares
from marginweave.publish.preparation_words import moment_sentences, value_sentences
from marginweave.publish.reader import PublishedRelease, ShownRecords, titled_labels
from marginweave.publish.templates import read_text, render
from marginweave.texts.sentences import Sentence, counts_sentence

SCRIPTS = ("explore_sums", "explore_numbers", "explore", "explore_page", "explore_save")
# Of numbers like these the highest effort takes 15 times as long for 6 % less: 16 seconds for 1.7 million combinations.
_EFFORT = 5

Arrays = dict[str, NDArray[Any]]


def render_explorer(published: PublishedRelease, shown: ShownRecords) -> str:
    """Return the page as HTML text; the same release and the same records shown give the same text. DP: post-processing."""
    data = base64.b64encode(explorer_data(published, shown)).decode()
    texts = read_text("explore.texts.json")
    parts = [f"const TEXT = {texts.strip()};\n", *(read_text(f"{name}.js") for name in SCRIPTS)]
    script = Markup("".join(parts))  # noqa: S704 - our own files
    return render(
        "explore.html.j2",
        published=published,
        shown=shown,
        data=data,
        script=script,
        text=json.loads(texts),
    )


def explorer_data(published: PublishedRelease, shown: ShownRecords) -> bytes:
    """Return what the page's script reads: gzip of a length (uint32), a header in JSON of that many bytes, and its arrays.

    `header.arrays` has name, type and size of each array, little-endian, in order: `codes-J`, attribute by attribute, row by
    row.

    Of k-tuples, for each length k from 1: `values-k` (k codes a combination), `counts-k`, `low-k` and `high-k`, the ends of
    the interval, and `below-k` and `above-k`, the ends of each of two intervals that hold jointly. `header.sets[k - 1]` has the
    attributes of each set of columns and its first combination; a set ends where the next begins, and combinations are sorted
    within it. `header.bounds[k - 1]` is the largest count that an unpublished combination of length k can have.
    `header.excluded` lists what rules allow no record to have, in pairs of an attribute and codes. `header.left_out` lists what
    is not counted by rules that change no row.

    Of marginals, for each length k from 0: `estimate-k`, `low-k`, `high-k`, `below-k` and `above-k` (how far below and above it
    these ends lie), and `variance-k` (0 where a cell was measured together with others). `header.tables` has attributes and
    first cell of each table, whose shape is in `sizes`; `header.squares` and `header.rules` have what sums of several values
    are computed from (`pack_squares`, `pack_rules`). `header.counted` has the words for what counts are of.
    DP: post-processing.
    """
    declared = published.configuration
    counted = declared.with_undeclared(declared.undeclared)
    codes = with_undeclared_code(shown.sample, counted, published.aggregates.domain.labels)
    codes = _with_undeclared_share(codes, published)
    arrays: Arrays = {f"codes-{j}": code for j, code in enumerate(codes)}
    lengths = published.aggregates.bounds if published.measured is None else {}
    facts = _tuples(published, arrays) if published.measured is None else _tables(published, arrays)
    packed = {name: _packed(array) for name, array in arrays.items()}
    header = {
        "attributes": list(_attributes(published, counted.attributes, codes)),
        "records": len(codes[0]),
        "of": shown.records,
        "dataset": published.statement.dataset,
        "level": LEVEL,
        "arrays": [[name, array.dtype.name, array.size] for name, array in packed.items()],
        "counted": _counted_words(declared, lengths),
        **facts,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    size = struct.pack("<I", len(text))
    content = b"".join([size, text, *(array.tobytes() for array in packed.values())])
    return gzip.compress(content, _EFFORT, mtime=0)


def _with_undeclared_share(
    codes: Sequence[NDArray[Any]], published: PublishedRelease
) -> tuple[NDArray[Any], ...]:
    """Return the records with as many empty cells of derived columns not as declared as were counted; the others are missing.

    Which ones is a draw: the records do not say why a cell is empty, and no rule does. DP: post-processing.
    """
    changed = list(codes)
    configuration = published.configuration
    sizes = published.aggregates.domain.sizes
    places = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    rng = np.random.default_rng(configuration.synthesize.seed)  # post-processing
    for row in published.statement.undeclared or ():
        if not row.found or not configuration.linked_table_of(row.attribute):
            continue  # a column of sets is no attribute
        j = places[row.attribute]
        if configuration.optional[j]:
            empty = np.flatnonzero(changed[j] == sizes[j])
            share = row.count / max(published.aggregates.record_count, 1)
            number = min(round(share * len(changed[j])), len(empty))
            is_undeclared = np.zeros(len(changed[j]), np.bool_)
            is_undeclared[rng.choice(empty, number, replace=False)] = True
            changed[j] = np.where(is_undeclared, sizes[j] + 1, changed[j])
    return tuple(changed)


def _attributes(
    published: PublishedRelease,
    attributes: Sequence[Attribute],
    codes: Sequence[NDArray[Any]],
) -> Iterator[dict[str, Any]]:
    """Yield the header's entry of each attribute; its first `ordered` values have an order, in which they stand."""
    moments = moment_sentences(published.configuration, published.statement)
    declared = published.configuration
    undeclared = {}
    left_out = {}
    for row in published.statement.undeclared or ():
        undeclared[row.attribute] = "found" if row.found else "noise"
        if row.found:
            left_out[row.attribute] = row.words
    titles = declared.titled_names.values()
    domain = published.aggregates.domain
    counted_codes = Codes.of(declared.with_undeclared(declared.undeclared), domain)
    numbers = pack_numbers(counted_codes)
    lowered = counted_codes.lowered
    columns = zip(attributes, titles, titled_labels(published), codes, strict=True)
    for place, (attribute, name, labels, code) in enumerate(columns):
        column = declared.columns[attribute.column]
        is_told_apart = len(attribute.gaps) > 1 or attribute.name not in declared.missing_by_rule
        yield {
            "name": name,
            "labels": list(labels),
            "set": code.ndim == 2,
            "width": math.prod(code.shape[1:]),
            "single": attribute.of_set,
            "hidden": attribute.private,
            "kind": column.type,
            "binned": isinstance(column, BinnedColumn),
            "about": column.description,
            "edges": _edges(column) if attribute.bins else None,
            "undeclared": undeclared.get(attribute.name) if is_told_apart else None,
            "gaps": max(len(attribute.gaps), 1),
            "lowered": lowered.get(place, 0),
            "gap": _gap(attribute, labels),
            "ordered": len(labels)
            if place in declared.ordered
            else _increasing(numbers.get(place)),
            "numbers": numbers.get(place),
            "left_out": left_out.get(attribute.name),
            "clamped": _clamped(declared, attribute.column, moments.get(attribute.column)),
        }


def _clamped(configuration: Configuration, name: str, moment: Sentence | None) -> dict[str, Any]:
    """Return what values beyond the bounds of a column count as, by the bin of the bound (None for any), and its sentences.

    `moment` is one of these, where the column has moments that may have a zone.
    """
    ends: list[tuple[int | None, str]] = []
    for end in configuration.clamped_ends(name):
        words = configuration.clamped_words(name, [end])
        ends.append((end.code, f"of {name}, {words}"))
    return {
        "ends": ends,
        "says": " ".join(map(str, filter(None, [*value_sentences(configuration, name), moment]))),
    }


def _increasing(ends: Ends | None) -> int:
    """Return how many codes are in the order of their numbers, from the first one on; 0 if a number comes after these."""
    codes = ends or []
    number = 0
    least = -math.inf
    for bounds in codes:
        if bounds is None or (number and (bounds[0] is None or bounds[0] <= least)):
            break
        least = -math.inf if bounds[0] is None else bounds[0]
        number += 1
    is_mixed = any(bounds is not None for bounds in codes[number:])
    return 0 if is_mixed else number


def _gap(attribute: Attribute, labels: Sequence[str]) -> str | None:
    """Return the words of `marginweave table` for the code that follows those of values; None for a cell without a value."""
    if attribute.of_set:
        return f"(not {labels[0]})"
    return NOT_RELEASED if attribute.private else None


def _counted_words(configuration: Configuration, bounds: Mapping[int, int]) -> dict[str, Any]:
    """Return the parts of the words for what counts of some columns are of (`counted_among`), which the page joins.

    `bounds` are the most combinations of a record that k-tuples counted, by length.
    """
    columns = [attribute.column for attribute in configuration.attributes]
    resized = None
    if configuration.resize is not None:
        records = configuration.resize.records
        resized = [
            str(counts_sentence("of.resized", records=records)),
            str(counts_sentence("of.resized-part", records=records, part="{part}")),
        ]
    imputed = configuration.imputed_columns
    return {
        "all": configuration.privacy.counted_words,
        "columns": columns,
        "cut": configuration.cut_sets,
        "imputed": list(imputed),
        "filled": str(counts_sentence("of.filled", columns="{columns}")),
        "repaired": list(configuration.repaired_columns),
        "mended": str(counts_sentence("of.mended", columns="{columns}")),
        "and": str(counts_sentence("of.and", first="{first}", second="{second}")),
        "resized": resized,
        "lengths": [
            length for length, bound in bounds.items() if configuration.is_cut(length, bound)
        ],
        "combinations": str(counts_sentence("of.combinations")),
    }


def _edges(column: object) -> list[float] | None:
    return list(column.edges) if isinstance(column, NumberColumn) else None


def _tuples(published: PublishedRelease, arrays: Arrays) -> dict[str, Any]:
    """Add the arrays of k-tuples to `arrays`, and return their facts for the header."""
    confidence = published.reach.each.level  # of each of two intervals that hold jointly
    sets = []
    for level, intervals in best_counts(published):
        wider = tuple_intervals(published, level.length, confidence)
        sets.append([[list(columns), rows.start] for columns, rows in level.by_columns()])
        arrays[f"values-{level.length}"] = level.values
        arrays[f"counts-{level.length}"] = intervals.measured
        arrays[f"low-{level.length}"] = intervals.low
        arrays[f"high-{level.length}"] = intervals.high
        arrays[f"below-{level.length}"] = wider.low
        arrays[f"above-{level.length}"] = wider.high
    total = best_records(published)
    wider_total = best_records(published, confidence)
    labels = published.aggregates.domain.labels
    return {
        "sets": sets,
        "count": [total.estimate, total.low, total.high, wider_total.low, wider_total.high],
        "bounds": [
            censored_bound(noise.threshold, noise.deviation) for noise in published.aggregates.noise
        ],
        "excluded": never_counted(published.configuration, labels),
        "left_out": uncounted_codes(published.configuration, labels),
    }


def _tables(published: PublishedRelease, arrays: Arrays) -> dict[str, Any]:
    """Add the arrays of measured tables to `arrays`, and return their facts for the header."""
    measured = published.measured
    assert measured is not None  # `explorer_data` asks
    reach = published.reach
    configuration = published.configuration
    counted = configuration.with_undeclared(configuration.undeclared)
    domain = published.aggregates.domain
    rules = counted_masks(counted, domain.labels)
    numeric = pack_numbers(Codes.of(counted, domain))
    shown = {table.attributes for table in published.cells}
    longest = max((len(table.attributes) for table in published.cells), default=0)
    placed: list[Any] = []
    for length in range(longest + 1):
        tables = [table for table in published.cells if len(table.attributes) == length]
        start = 0
        for table in tables:
            placed.append([list(table.attributes), start])
            start += table.estimates.size
        for name, array in _cells(tables, reach).items():
            arrays[f"{name}-{length}"] = array
    return {
        "tables": placed,
        "sizes": list(published.counted_sizes),
        "reach": reach.sigmas,
        "squares": pack_squares(measured, shown, numeric, reach, arrays),
        "rules": pack_rules(rules, arrays),
    }


def _cells(tables: Iterable[CellTable], reach: Reach) -> Arrays:
    """Return the arrays of tables of one length; without a variance where a cell was measured together with others."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for table in tables:
        for name, array in _cells_of_table(table, reach).items():
            parts.setdefault(name, []).append(array.ravel())
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _cells_of_table(table: CellTable, reach: Reach) -> Arrays:
    """Return the arrays of one table, in the order of the page's header."""
    single = count_ends(table.estimates, table.variances, reach)
    joint = count_ends(table.estimates, table.variances, reach.each)
    ends = np.stack([single, joint])
    if table.merged is not None:
        ends = np.where(table.is_measured, ends, table.merged)
    (estimates, low, high), (_, below, above) = ends
    numbers = {
        "estimate": estimates,
        "low": estimates - low,
        "high": high - estimates,
        "below": estimates - below,
        "above": above - estimates,
    }
    arrays: Arrays = {name: array.astype(np.int64) for name, array in numbers.items()}
    variances = np.where(table.is_measured, table.variances, 0)
    arrays["variance"] = variances.astype(np.float32)
    return arrays


def _packed(array: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers in the smallest type that holds them, and others as they are; a page reads floats up to 2^53."""
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    least = int(array.min(initial=0))
    smallest = np.min_scalar_type(int(array.max(initial=0)))
    if least:
        smallest = np.promote_types(np.min_scalar_type(least), smallest)
    kind = smallest if smallest.itemsize < 8 else np.dtype(np.float64)
    return np.ascontiguousarray(array).astype(kind.newbyteorder("<"))
