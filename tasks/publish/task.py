"""Door of the stage: write `release/`, the only place from which anything may leave."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from marginweave.schemas.budget import BudgetPlan
from marginweave.tasks.aggregate.payloads import unpack_aggregates
from marginweave.tasks.checkpoint.codecs import unpack_table
from marginweave.tasks.checkpoint.files import replace_file
from marginweave.tasks.door import stage_task
from marginweave.tasks.publish.report import render_report
from marginweave.tasks.publish.statement import privacy_statement, warnings
from marginweave.tasks.publish.tables import counts_table, csv_bytes, parquet_bytes
from marginweave.tasks.references import DerivedReference, StageResult


@stage_task("publish", patient=True)
def publish(
    reference: DerivedReference,
    place: Path,
    plan: BudgetPlan,
    parts: dict[str, StageResult],
    account: dict[str, Any],
    release: dict[str, Any],
) -> dict[str, str]:
    """Write the released files to `place` and return their names with their SHA-256.

    `parts` has the results of `normalize`, `decode` and `evaluate`; `account` what the ledger says of the dataset, `release`
    who the release is. DP: post-processing.
    """
    configuration = reference.configuration
    aggregates = unpack_aggregates(reference.load(parts["normalize"]))
    synthetic = unpack_table(reference.load(parts["decode"]))
    evaluation = reference.load(parts["evaluate"])
    counts = counts_table(aggregates)
    statement = privacy_statement(configuration, plan, aggregates, account, release)
    report = render_report(
        statement, aggregates, synthetic, json.loads(evaluation), warnings(configuration, aggregates)
    )
    files = {
        "aggregates.parquet": parquet_bytes(counts),
        "aggregates.csv": csv_bytes(counts),
        "synthetic.parquet": parquet_bytes(synthetic),
        "synthetic.csv": csv_bytes(synthetic),
        "evaluation.json": evaluation,
        "privacy.json": (json.dumps(statement, indent=2, ensure_ascii=False) + "\n").encode(),
        "report.html": report.encode(),
    }
    for name, content in files.items():
        replace_file(place / name, content)
    return {f"{place.name}/{name}": hashlib.sha256(content).hexdigest() for name, content in files.items()}
