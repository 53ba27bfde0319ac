"""Stage `budget`: reserve the whole plan of a release before its first draw."""

from __future__ import annotations

from functools import partial

from marginweave.accounting.records import State
from marginweave.draws.program import program_identity
from marginweave.draws.protocol import reconcile
from marginweave.ledger import ReleaseRequest
from marginweave.measurements.largest import largest_epsilon
from marginweave.measurements.plan import Plan
from marginweave.runs.capabilities import RunReference

from .stage import stage


@stage("budget")
def reserve_budget(reference: RunReference, plan: Plan, actor: str) -> None:
    """Record every planned draw as RESERVED in the account of the dataset; the same release again changes nothing.

    Every draw that was not begun gets its secret before it is reserved. From here on this attempt holds the release's
    lease, and the draws that an earlier attempt had begun are settled.

    Raises:
        BudgetError: the account does not admit the release; nothing was drawn.
        InputError: the release was reserved with another plan.
    """
    configuration = reference.configuration
    corrected = reference.manifest.supersedes
    release = reference.manifest.release
    ledger = reference.ledger
    record = ledger.releases.find(release)
    begun: set[str] = set()
    if record is not None:
        begun = {draw.name for draw in record.draws if draw.state != State.RESERVED}
    for draw in plan.draws:
        if draw.name not in begun:
            reference.secrets.make(release, draw.name)
    request = ReleaseRequest(
        dataset=configuration.dataset,
        release=release,
        run=reference.manifest.run,
        plan=plan.charged(configuration),
        plan_digest=reference.manifest.plan_digest,
        source=reference.source_digest,
        unit=configuration.privacy.unit_key,
        program=program_identity(),
        actor=actor,
        needs_approval=configuration.publish.approval is not None,
        supersedes=None if corrected is None else corrected.release,
        largest=partial(largest_epsilon, configuration),
    )
    ledger.releases.reserve(request)
    ledger.draws.take_lease(release, reference.lease)
    reconcile(ledger.draws, reference.draws, reference.secrets, reference.attempt)
