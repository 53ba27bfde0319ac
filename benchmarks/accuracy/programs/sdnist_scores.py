"""SDNist's scores of records: python sdnist_scores.py TASK.json, in an environment that holds sdnist and nothing of ours.

SDNist looks for the table in a folder of its own and would download it: the folder is made here, of the table and its public
dictionary. Scores are those of its report: the k-marginal (within each PUMA, where that is a feature), the mean square error
of propensities, and the records that are inconsistent.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import sdnist.report  # noqa: F401  # pyright: ignore[reportMissingImports] - first: its metrics import it in a circle
from sdnist.load import TestDatasetName  # pyright: ignore[reportMissingImports] - in another environment
from sdnist.metrics.inconsistency import Inconsistencies  # pyright: ignore[reportMissingImports]
from sdnist.metrics.kmarginal import KMarginal  # pyright: ignore[reportMissingImports]
from sdnist.metrics.propensity import PropensityMSE  # pyright: ignore[reportMissingImports]
from sdnist.report.dataset import Dataset  # pyright: ignore[reportMissingImports]
from sdnist.utils import SimpleLogger  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Read the records, write the scores."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    np.random.seed(0)  # noqa: NPY002 - the tree of the propensities breaks ties by numpy's global state
    with redirect_stdout(sys.stderr):
        write_excerpts(Path("excerpts"), Path(task["table"]), Path(task["dictionary"]))
        scores = score(Path(task["records"]))
    Path(task["output"]).write_text(json.dumps(scores), encoding="utf-8")


def score(records: Path) -> dict[str, Any]:
    """Every score of one file of records."""
    found = Dataset(
        records, SimpleLogger(), TestDatasetName.ma2019, Path("excerpts"), download=False
    )
    groups = ["PUMA"] if "PUMA" in found.features else []
    marginal = KMarginal(found.d_target_data, found.d_synthetic_data, groups)
    propensity = PropensityMSE(found.t_target_data, found.t_synthetic_data, Path(), found.features)
    broken = Inconsistencies(found.c_synthetic_data, Path())
    scores = {
        "k_marginal": float(marginal.compute_score()),
        "pmse": float(propensity.compute_score()),
    }
    broken.compute()
    kinds = {
        entry["inconsistency_name"]: entry["inconsistent_data_indexes"]
        for part in ("age", "work", "housing")
        for entry in broken.report_data[part]["inconsistencies"]
    }
    worst = {"worst_puma": float(marginal.scores.min())} if groups else {}
    return {
        **scores,
        **worst,
        "inconsistent": len({record for those in kinds.values() for record in those}),
        "kinds": {kind: len(those) for kind, those in kinds.items()},
        "features": len(found.features),
    }


def write_excerpts(folder: Path, table: Path, dictionary: Path) -> None:
    """The folder that SDNist reads: the table, its dictionary, and what its own schema says of the columns."""
    described = json.loads(dictionary.read_text(encoding="utf-8"))
    with table.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    schema = {name: schema_of(name, values, described[name]) for name, values in columns.items()}
    names = {"PUMA": {code: {"name": text} for code, text in described["PUMA"]["values"].items()}}
    (folder / "massachusetts").mkdir(parents=True)
    (folder / "massachusetts" / "ma2019.csv").write_bytes(table.read_bytes())
    for name, value in (
        ("massachusetts/ma2019", {"schema": schema}),
        ("config", {}),
        ("mappings", names),
        ("data_dictionary", described),
    ):
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")


def schema_of(name: str, values: tuple[str, ...], described: Mapping[str, Any]) -> dict[str, Any]:
    """The type of a column, whether "N" stands in it, and its values or its range."""
    numbers = [float(value) for value in values if value != "N"] if name != "PUMA" else []
    kind = "int64" if all(number.is_integer() for number in numbers) else "float64"
    missing = {"has_null": True, "null_value": "N"} if "N" in values else {}
    made = {"dtype": "object" if missing or name == "PUMA" else kind, **missing}
    if "min" in described.get("values", {}) and name not in ("NOC", "NPF"):
        return {**made, "min": min(numbers), "max": max(numbers)}
    return {**made, "values": sorted(set(values))}


if __name__ == "__main__":
    main()
