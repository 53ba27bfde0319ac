"""report.html: one plain page, no script, no network; what was released, under which guarantee, and how good it is."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
from jinja2 import Environment, StrictUndefined

from marginweave.schemas.aggregates import Aggregates
from marginweave.schemas.columns import NumberColumn
from marginweave.schemas.configuration import Configuration
from marginweave.tasks.encode.codes import encode_table
from marginweave.tasks.preprocess.clean import clean_table

_MOST_VALUES = 25


def render_report(
    statement: dict[str, Any],
    aggregates: Aggregates,
    synthetic: pa.Table,
    evaluation: dict[str, Any],
    warnings: tuple[str, ...],
) -> str:
    """The page as HTML text. DP: post-processing of released counts and records."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = files("marginweave.tasks.publish").joinpath("report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        statement=statement,
        evaluation=evaluation,
        warnings=warnings,
        record_count=aggregates.record_count,
        record_deviation=aggregates.record_deviation,
        records=synthetic.num_rows,
        combinations=[(level.length, len(level)) for level in aggregates.levels],
        columns=_columns(aggregates, synthetic, Configuration.from_canonical(statement["configuration"])),
    )


def _columns(aggregates: Aggregates, synthetic: pa.Table, configuration: Configuration) -> list[dict[str, Any]]:
    """For each column its values with the reported and the synthetic count, in declared order."""
    encoded = encode_table(clean_table(synthetic, configuration), configuration)
    first = aggregates.levels[0]
    columns = []
    for j, (name, labels) in enumerate(zip(aggregates.domain.names, aggregates.domain.labels, strict=True)):
        reported = np.zeros(len(labels), np.int64)
        rows = first.columns[:, 0] == j
        reported[first.values[rows, 0]] = first.counts[rows]
        position = {label: i for i, label in enumerate(encoded.labels[j])}
        made = np.bincount(encoded.codes[j], minlength=len(encoded.labels[j]) + 1)
        counts = [int(made[position[label]]) if label in position else 0 for label in labels]
        largest = max([1, *reported.tolist(), *counts])
        values = [
            {
                "label": label,
                "reported": int(r),
                "synthetic": s,
                "wide": 100 * int(r) / largest,
                "made": 100 * s / largest,
            }
            for label, r, s in zip(labels, reported.tolist(), counts, strict=True)
        ]
        columns.append(
            {
                "name": name,
                "kind": "number" if isinstance(configuration.columns[name], NumberColumn) else "category",
                "values": values[:_MOST_VALUES],
                "more": max(0, len(values) - _MOST_VALUES),
                "missing": int(made[-1]),
            }
        )
    return columns
