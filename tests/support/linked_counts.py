"""A small hospital whose stays are counted: its histograms, as the program counts them, without noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from marginweave.base.arrays import Counts
from marginweave.configuration.release import Configuration
from marginweave.measurements.linked_counts import LinkedHistograms
from marginweave.prepare.clean import CleanBlocks, pack_clean
from marginweave.prepare.codes import EncodedTable
from marginweave.prepare.encode import encode_blocks
from marginweave.prepare.nested import NestedCodes
from marginweave.prepare.rows import prepare_blocks
from tests.support.linked_tables import Stay, hospital, linked_source
from tests.support.stage_draws import MeasuredTable

KEY = bytes(range(32))
AT_MOST = 2
Patient = tuple[str | None, str]
"""The id of a patient, None where the row has none, and the sex."""


@cache
def counted_hospital(neighbors: str = "add-remove", at_most: int = AT_MOST) -> Configuration:
    """A hospital with two sexes, the number of stays, and stays of two columns, which are counted with little noise."""
    return hospital(
        privacy={
            "epsilon": 30,
            "delta": 1e-6,
            "neighbors": neighbors,
            "unit": {"column": "patient", "max_records": 1},
        },
        columns={
            "sex": {"type": "category", "values": ["f", "m"]},
            "number": {"type": "number", "bounds": [0, 3], "decimals": 0, "bins": [0, 1, 2, 3]},
        },
        tables={
            "stays": {
                "source": "stays.csv",
                "by": "patient_id",
                "at_most": at_most,
                "columns": {
                    "kind": {"type": "category", "values": ["planned", "emergency"]},
                    "days": {"type": "number", "bounds": [0, 60], "decimals": 0, "bins": 2},
                },
                "derive": {"number": "count"},
            }
        },
    )


def encoded_records(
    configuration: Configuration,
    patients: Sequence[Patient],
    stays: Sequence[tuple[str | None, Stay]],
    folder: Path,
) -> EncodedTable:
    """The records that are counted, with their stays, in a secret order that the key decides."""
    source = linked_source(configuration, patients, stays)
    columns = (*configuration.source_names, *configuration.nested_names)
    raw = list(source.tables(columns))
    clean = CleanBlocks(list(pack_clean(prepare_blocks(raw, configuration, KEY, folder))))
    return joined(list(encode_blocks(clean, configuration, KEY)))


def joined(tables: Sequence[EncodedTable]) -> EncodedTable:
    """All records in one block."""
    nested = []
    for parts in zip(*(table.nested for table in tables), strict=True):
        codes = zip(*(part.codes for part in parts), strict=True)
        nested.append(
            NestedCodes(
                lengths=np.concatenate([part.lengths for part in parts]),
                codes=tuple(map(np.concatenate, codes)),
            )
        )
    columns = zip(*(table.codes for table in tables), strict=True)
    return EncodedTable(
        codes=tuple(map(np.concatenate, columns)), labels=tables[0].labels, nested=tuple(nested)
    )


def exact_histograms(
    configuration: Configuration,
    patients: Sequence[Patient],
    stays: Sequence[tuple[str | None, Stay]],
    folder: Path,
) -> dict[str, list[Counts]]:
    """The exact histograms of each draw of a linked table, in steps, by the name of the draw."""
    records = encoded_records(configuration, patients, stays, folder)
    measured = MeasuredTable(configuration, records, folder)
    histograms: dict[str, list[Any]] = {}
    for draw in measured.plan.draws:
        if isinstance(draw, LinkedHistograms):
            histograms[draw.name] = list(draw.count(measured.rows, measured).counts.tables)
    return histograms
