"""Door of the budget: reserve the whole plan of a release before its first draw."""

from __future__ import annotations

from functools import partial

from marginweave.tasks.budget.largest import largest_epsilon
from marginweave.tasks.checkpoint.draws import reconcile
from marginweave.tasks.door import stage_task
from marginweave.tasks.references import RunReference


@stage_task("budget")
def reserve_budget(reference: RunReference, actor: str) -> None:
    """Book every planned draw as RESERVED in the account of the dataset; the same release again changes nothing.

    From here on this attempt holds the release's lease, and what an earlier one had begun is settled.

    Raises:
        BudgetError: the account does not admit the release; nothing was drawn.
    """
    configuration, corrected = reference.configuration, reference.manifest.supersedes
    reference.ledger.reserve(
        dataset=configuration.dataset,
        release_id=reference.manifest.release,
        run=reference.manifest.run,
        plan=reference.plan,
        plan_digest=configuration.digest,
        source_digest=reference.manifest.source_digest,
        unit=configuration.privacy.unit_key,
        actor=actor,
        needs_approval=configuration.publish.approval is not None,
        supersedes=None if corrected is None else corrected.release,
        largest=partial(largest_epsilon, configuration),
    )
    reference.ledger.take_lease(reference.manifest.release, reference.lease)
    reconcile(reference.ledger, reference.draws, reference.manifest.release, reference.lease)
