"""A hospital in memory: patients, their stays, and what is derived of these, computed by the definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pyarrow as pa

from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.linked.places import TablePlaces
from marginweave.linked.source import ReleaseSource
from marginweave.sources.source import TableSource

STAYS: dict[str, Any] = {
    "source": "stays.csv",
    "by": "patient_id",
    "columns": {
        "kind": {"type": "category", "values": ["planned", "emergency", "birth"]},
        "days": {
            "type": "number",
            "bounds": [0, 60],
            "decimals": 0,
            "bins": 4,
            "codes": {99: "unknown"},
        },
        "admitted": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"], "bins": "month"},
        "discharged": {"type": "date", "bounds": ["2024-01-01", "2025-03-31"], "bins": "month"},
    },
    "derive": {
        "stays": "count",
        "emergency": {"any": {"kind": "emergency"}},
        "longest": {"largest": "days", "where": {"kind": ["planned", "birth"]}},
        "first": {"smallest": "admitted"},
        "readmitted": {"within": "30 days", "from": "discharged", "to": "admitted"},
    },
}
HOSPITAL: dict[str, Any] = {
    "dataset": "hospital",
    "source": "patients.csv",
    "privacy": {"epsilon": 1, "delta": 1e-6, "unit": {"column": "patient", "max_records": 1}},
    "missing": [""],
    "columns": {
        "sex": {"type": "category", "values": ["f", "m"]},
        "stays": {"type": "number", "bounds": [0, 6], "decimals": 0, "bins": [0, 1, 2, 3, 6]},
        "emergency": {"type": "boolean"},
        "longest": {"type": "number", "bounds": [0, 60], "decimals": 0, "bins": 4},
        "first": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"], "bins": "quarter"},
        "readmitted": {"type": "boolean", "true_values": ["yes"], "false_values": ["no"]},
    },
    "tables": {"stays": STAYS},
}
DERIVED = ("stays", "emergency", "longest", "first", "readmitted")


@dataclass(frozen=True)
class Stay:
    """A row of the linked table, as texts of a file; None where a cell is empty."""

    kind: str | None = "planned"
    days: str | None = "1"
    admitted: str | None = "2024-02-01"
    discharged: str | None = "2024-02-02"


@dataclass(frozen=True)
class InMemory(TableSource):
    """A source whose rows are in memory, read in pieces of two rows."""

    rows: pa.Table | None = None

    def _as_written(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        assert self.rows is not None
        table = self.rows.select(list(columns))
        yield table.slice(0, 0)
        for start in range(0, table.num_rows, 2):
            yield table.slice(start, 2)


def hospital(**changes: Any) -> Configuration:
    """The configuration of the hospital, with other sections."""
    return parse_configuration({**HOSPITAL, **changes})


def texts(rows: Sequence[Sequence[str | None]], names: Sequence[str]) -> pa.Table:
    """A table of texts behind dictionaries, as files are read."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    return pa.table(
        {
            name: pa.array(list(cells), pa.string()).dictionary_encode()
            for name, cells in zip(names, columns, strict=True)
        }
    )


def linked_source(
    configuration: Configuration,
    patients: Sequence[tuple[str | None, str]],
    stays: Sequence[tuple[str | None, Stay]],
) -> ReleaseSource:
    """The source of a release whose tables are in memory: patients with their sex, and stays, each with an id."""
    rows = [(owner, stay.kind, stay.days, stay.admitted, stay.discharged) for owner, stay in stays]
    names = ("patient_id", "kind", "days", "admitted", "discharged")
    source = ReleaseSource.of(TablePlaces("patients.csv", {"stays": "stays.csv"}), configuration)
    linked = source.linked[0]
    return replace(
        source,
        root=_in_memory(source.root, texts(patients, ("patient", "sex"))),
        linked=(replace(linked, source=_in_memory(linked.source, texts(rows, names))),),
    )


def _in_memory(source: TableSource, rows: pa.Table) -> InMemory:
    return InMemory(source.name, source.form, source.numbers, source.exact_text_columns, rows)


def derived_rows(source: ReleaseSource) -> list[dict[str, Any]]:
    """The rows of the source with their derived cells, in their order."""
    table = pa.concat_tables(source.tables(("patient", "sex", *DERIVED)))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def derived_by_definition(stays: Sequence[Stay]) -> dict[str, Any]:
    """What is derived of the stays of one patient, all of them as declared or empty."""
    ends = [
        int(s.days) for s in stays if s.days not in (None, "99") and s.kind in ("planned", "birth")
    ]
    dates = [date.fromisoformat(s.admitted) for s in stays if s.admitted]
    return {
        "stays": len(stays),
        "emergency": any(stay.kind == "emergency" for stay in stays),
        "longest": max(ends, default=None),
        "first": min(dates, default=None),
        "readmitted": "yes" if any(map(_is_near, *_pairs(stays))) else "no",
    }


def _pairs(stays: Sequence[Stay]) -> tuple[list[Stay], list[Stay]]:
    """Each stay beside each other stay."""
    pairs = [(s, t) for i, s in enumerate(stays) for j, t in enumerate(stays) if i != j]
    return [s for s, _ in pairs], [t for _, t in pairs]


def _is_near(stay: Stay, other: Stay) -> bool:
    """Whether the other stay begins 0 to 30 days after the end of a stay."""
    if stay.discharged is None or other.admitted is None:
        return False
    gap = date.fromisoformat(other.admitted) - date.fromisoformat(stay.discharged)
    return 0 <= gap.days <= 30
