"""Exports the ledger: all events as JSON Lines and CSV, and one record per release for the public registry.

The shape of a record follows the schema of the Differential Privacy Deployments Registry (OpenDP and others; repository
opendp/deployments-registry-data, its deployments-schema.yaml as of commit 057e5d8). Entries that only the curator
knows are empty texts, and the record is a draft.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marginweave.accounting.records import DrawRecord, ReleaseRecord, State
from marginweave.configuration.privacy import SUBJECT_PREFIX, unit_noun
from marginweave.ledger.tables import EVENTS, canonical
from marginweave.mechanisms.catalogue import MECHANISMS

_COLUMNS = tuple(column.name for column in EVENTS.columns)
_NEIGHBORS = {
    "add-remove": "Two tables are neighbors if one is the other without one {unit}.",
    "replace-one": "Two tables are neighbors if one is the other with one {unit} replaced by another.",
}
_NOT_KNOWN = (
    "Exact tables that the output follows, where there are any, are in privacy.json (invariants)."
)
COMPOSITION = (
    "Gaussian differential privacy: mu^2 of all draws adds; deltas of thresholds add. Zero-concentrated differential "
    "privacy (rho adds) is kept beside it. What is known in plain (epsilon, delta) only is added to either. Later draws may "
    "follow from earlier results. Every draw is recorded in an append-only ledger before it is made."
)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return one JSON object per row, its body as an object; with the columns and hashes by which the chain is checked."""
    lines = [json.dumps(_exported(row), ensure_ascii=False) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def comma_separated(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the rows as CSV with a header, the body as JSON in one cell."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, fieldnames=_COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for row in map(_exported, rows):
        writer.writerow({**row, "body": canonical(row["body"])})
    return buffer.getvalue().encode()


def registry_record(
    record: ReleaseRecord, assumptions: Sequence[str], version: str
) -> dict[str, Any]:
    """Return one published release in the shape of the registry. DP: nothing but what was public before the data was seen.

    Epsilon and delta are the planned ones, by which the release was admitted. The number of records is left out: the ledger
    does not know it.

    Raises:
        ValueError: the release is not published.
    """
    if record.published is None:
        raise ValueError(f"release {record.release} is not published")
    return {
        "url_slug": f"{record.dataset}-{record.run}-{record.release[:8]}".lower(),
        "deployment": {
            "basic": {
                "name": f"{record.dataset}: {record.run}",
                "data_curators": [{"data_curator_name": "", "data_curator_type": ""}],
                "description": "Noisy counts of attribute combinations, and synthetic records made from published counts.",
                "intended_use": "",
                "data_product_type": "Synthetic data",
                "data_product_region": "",
                "publication_date": record.published.date().isoformat(),
            },
            **_guarantee(record),
            "deployment_model": {
                "model_name": "Central",
                "trust_assumptions": _list(assumptions),
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "mechanisms": _list(map(_mechanism, record.draws)),
                "composition": COMPOSITION,
                "post_processing": "Normalization of the counts, synthesis of records, and their comparison with the counts.",
                "additional_information": f"marginweave {version}; release {record.release}; configuration (SHA-256) "
                f"{record.plan_digest}",
            },
            "administrative": {"status": "Draft", "registry_authors": [""], "tier": 3},
        },
    }


def _guarantee(record: ReleaseRecord) -> dict[str, Any]:
    """Return the parts of a record about the variant of privacy and its parameters."""
    lost = sum(draw.state == State.CHARGED_LOST for draw in record.draws)
    details = f"epsilon {record.epsilon:f} at delta {float(record.delta)!r} as planned; charged {record.charged}"
    if lost:
        details += (
            f"; among it {lost} draw(s) that were charged and lost in a crash, and are in no file"
        )
    unit = unit_noun(record.unit)
    size = (
        ""
        if record.neighbors == "add-remove"
        else f"Under replace-one the number of {unit}s is not protected. "
    )
    column = record.unit.removeprefix(SUBJECT_PREFIX)
    protected = "row" if unit == "row" else f"subject: all rows with one value of column {column!r}"
    if record.tables > 1:
        protected += (
            f" in the source, and all rows with this value in {record.tables - 1} linked table(s)"
        )
    return {
        "dp_variant": {
            "variant_name": "Approximate DP" if record.delta else "Pure DP",
            "data_domain": "All tables with the columns, types and ranges of the public configuration.",
            "unprotected_quantities": f"{size}{_NOT_KNOWN}",
        },
        "privacy_loss": {
            "privacy_unit": record.unit,
            "privacy_unit_details": f"One {protected}. {_NEIGHBORS[record.neighbors].format(unit=unit)} ({record.neighbors})",
            "privacy_parameters": {"epsilon": float(record.epsilon), "delta": float(record.delta)},
            "privacy_parameters_details": details,
        },
    }


def _mechanism(draw: DrawRecord) -> str:
    """Return the sentence about one draw: state, mechanism with its parameter, and cost."""
    mechanism = MECHANISMS.get(draw.mechanism)
    words = draw.mechanism if mechanism is None else mechanism.words
    text = words if draw.parameter is None else words.format(parameter=draw.parameter)
    return f"{draw.name} ({draw.state}): {text}; {draw.cost}"


def _list(items: Iterable[str]) -> str:
    """Return the items as a Markdown list."""
    return "".join(f"- {item}\n" for item in items)


def _exported(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row as it is exported: its body as an object."""
    columns = {name: row[name] for name in _COLUMNS}
    columns["body"] = json.loads(row["body"])
    return columns
