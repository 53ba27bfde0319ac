"""Door of the budget: reserve the whole plan of a release before its first draw."""

from __future__ import annotations

from marginweave.schemas.budget import BudgetPlan
from marginweave.tasks.checkpoint.draws import reconcile
from marginweave.tasks.door import stage_task
from marginweave.tasks.program import program_identity
from marginweave.tasks.references import RunReference
from marginweave.tasks.validate.source import TableSource


@stage_task("budget")
def reserve_budget(reference: RunReference, plan: BudgetPlan, actor: str) -> None:
    """Book every planned draw as RESERVED in the account of the dataset; the same release again changes nothing.

    From here on this attempt holds the release's lease, what an earlier one had begun is settled, and every draw that is still
    to come has a secret of its own.

    Raises:
        BudgetError: the account does not admit the release; nothing was drawn.
        InputError: the release was reserved with another plan.
    """
    configuration, corrected = reference.configuration, reference.manifest.supersedes
    release, ledger = reference.manifest.release, reference.ledger
    ledger.reserve(
        dataset=configuration.dataset,
        release_id=release,
        run=reference.manifest.run,
        plan=plan,
        plan_digest=reference.manifest.plan_digest,
        source=ledger.source_digest(TableSource(reference.source, configuration.source).chunks()),
        unit=configuration.privacy.unit_key,
        program=program_identity(),
        actor=actor,
        needs_approval=configuration.publish.approval is not None,
        supersedes=None if corrected is None else corrected.release,
    )
    ledger.take_lease(release, reference.lease)
    reconcile(ledger, reference.draws, reference.secrets, reference.attempt)
