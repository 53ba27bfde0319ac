"""The task of the report's internal twin: the report with the comparison with the sensitive table in it, never for release."""

from __future__ import annotations

from marginweave.schemas.errors import StageError
from marginweave.schemas.released.evaluation import InternalEvaluation
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, read_file, replace_file
from marginweave.tasks.publish.pages import internal_report
from marginweave.tasks.references import RunReference
from marginweave.tasks.stage import stage_task


@stage_task("report internally", patient=True)
def report_internally(reference: RunReference) -> None:
    """Write `internal/report.html` (0600) from the release and `internal/evaluation.json`. DP: none.

    Raises:
        StageError: there is no internal evaluation.
    """
    evaluation = read_file(reference.folder.internal_evaluation)
    if evaluation is None:
        raise StageError(f"{reference.folder.internal_evaluation} is missing")
    page = internal_report(reference.folder.release, InternalEvaluation.from_json(evaluation))
    replace_file(reference.folder.internal_report, page, PRIVATE_MODE)
