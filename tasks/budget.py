"""The task of the stage: reserve the whole plan of a release before its first draw."""

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
    """Book every planned draw as RESERVED in the account of the dataset; the same release again changes nothing.

    Every draw that is still to come has its secret before it is booked. From here on this attempt holds the release's
    lease, and what an earlier one had begun is settled.

    Raises:
        BudgetError: the account does not admit the release; nothing was drawn.
        InputError: the release was reserved with another plan.
    """
    configuration, corrected = reference.configuration, reference.manifest.supersedes
    release, ledger = reference.manifest.release, reference.ledger
    known = ledger.releases.find(release)
    begun = frozenset[str]() if known is None else {draw.name for draw in known.draws if draw.state != State.RESERVED}
    for name in (draw.name for draw in plan.draws if draw.name not in begun):
        reference.secrets.make(release, name)
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
