"""Door of the releasable evaluation: synthetic records against the released counts; it cannot open a private file."""

from __future__ import annotations

import json
from dataclasses import asdict

from marginweave.tasks.aggregate.payloads import unpack_aggregates
from marginweave.tasks.checkpoint.codecs import unpack_arrays
from marginweave.tasks.door import stage_task
from marginweave.tasks.evaluate.metrics import Evaluation, evaluate_release
from marginweave.tasks.references import DerivedReference, StageResult


@stage_task("evaluate")
def evaluate(reference: DerivedReference, synthesized: StageResult, normalized: StageResult) -> StageResult:
    """How well the synthetic records keep the released counts. DP: post-processing."""

    def compute() -> bytes:
        records = unpack_arrays(reference.load(synthesized))[0]["records"]
        return evaluation_json(evaluate_release(records, unpack_aggregates(reference.load(normalized))))

    return reference.checkpoint("evaluate", [synthesized, normalized], compute)


def evaluation_json(evaluation: Evaluation) -> bytes:
    """An evaluation as indented JSON."""
    return (json.dumps(asdict(evaluation), indent=2) + "\n").encode()
