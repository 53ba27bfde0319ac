"""Releases in the ledger: reserved, refused, published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.schemas.program import Program
from marginweave.tasks.ledger.admission import Largest, Request, admitted, check_identity, refusal
from marginweave.tasks.ledger.books import release_body, release_of
from marginweave.tasks.ledger.checks import account_in, check_plan, release_in
from marginweave.tasks.ledger.core import LedgerCore, now
from marginweave.tasks.ledger.location import opening_command
from marginweave.tasks.ledger.moves import LEDGER_ACTOR, check_lease
from marginweave.tasks.ledger.openings import opening_for, planned_statement
from marginweave.tasks.ledger.publishing import check_correction, check_settled, publication
from marginweave.tasks.ledger.refusals import note_refusal
from marginweave.tasks.ledger.reserved import check_same_plan
from marginweave.tasks.ledger.sources import SourceDigest


class Releases(LedgerCore):
    """The methods of the ledger on releases."""

    def releases(self, dataset: str) -> tuple[ReleaseRecord, ...]:
        """The releases of one account, in order of reservation.

        Raises:
            BudgetError: no such account.
        """
        view = self._now()
        account_in(view.accounts, dataset, opening_command(dataset))
        return tuple(record for record in view.releases.values() if record.dataset == dataset)

    def release(self, release_id: str) -> ReleaseRecord | None:
        """The release of this id, or None if it was never reserved."""
        with self._reading() as journal:
            return release_of(journal.release_events(release_id))

    def reserve(  # noqa: PLR0913 - each one a fact of the release
        self,
        *,
        dataset: str,
        release_id: str,
        run: str,
        plan: BudgetPlan,
        plan_digest: str,
        source: SourceDigest,
        unit: str,
        program: Program,
        actor: str,
        needs_approval: bool = False,
        supersedes: str | None = None,
        largest: Largest | None = None,
    ) -> ReleaseRecord:
        """Charge the whole plan before anything is drawn, or return the release that this id already stands for.

        One RESERVED row for the release and one for each draw. A refusal is written down, too, once, and depends on the plan,
        the ledger, the clock and the keyed digest of the source (`SourceDigest`) only. A release that `needs_approval` is
        published by `approve` alone; `supersedes` is a published release of the same account that this one corrects.
        `largest` is for the words of a refusal.

        Raises:
            BudgetError: no account; another unit or neighbors; the source has another account; over the cap, or over the
                policy of this period.
            InputError: the id was reserved with another dataset, configuration, source or plan; a plan that does not fit its
                own statement; a release to correct that is not published in this account, or is corrected already.
        """
        check_plan(plan)
        request = _request(release_id, dataset, plan, unit, plan_digest, source)
        body = release_body(
            plan,
            run=run,
            plan_digest=plan_digest,
            source_mark=source.mark(release_id),
            unit=unit,
            program=program,
            needs_approval=needs_approval,
            supersedes=supersedes,
        )
        with self._writing(charging=True) as journal:
            view = self._view(journal)
            account = account_in(view.accounts, dataset, opening_for(dataset, plan))
            releases = view.releases
            if release_id in releases:
                check_identity(request, releases[release_id])
                check_same_plan(releases[release_id], plan, program)
                return releases[release_id]
            check_correction(dataset, supersedes, releases)
            moment, spent = now(), view.spent_of(dataset)
            refused = refusal(request, account, spent, releases.values(), moment, largest)
            if refused is None:
                if admitted(account, spent, request.cost, request.statement) == "statement":
                    body["admitted"] = "statement"
                journal.append_all(_bookings(request, plan, body, actor, moment))
                return release_in(journal, release_id)
            note_refusal(journal, request, refused, run, actor, moment)
        raise BudgetError(refused.message)  # outside the transaction, which keeps the refusal

    def check_admission(
        self,
        *,
        dataset: str,
        run: str,
        plan: BudgetPlan,
        plan_digest: str,
        unit: str,
        actor: str,
        source: SourceDigest | None = None,
        largest: Largest | None = None,
    ) -> None:
        """Refuse a release that could not be reserved now, before a row of its table is read; nothing is charged.

        Without `source` all but the source is looked at.

        Raises:
            BudgetError, InputError: as `reserve`.
        """
        check_plan(plan)
        request = _request("", dataset, plan, unit, plan_digest, source)
        with self._writing() as journal:
            view = self._view(journal)
            account, moment = account_in(view.accounts, dataset, opening_for(dataset, plan)), now()
            refused = refusal(request, account, view.spent_of(dataset), view.releases.values(), moment, largest)
            if refused is None:
                return
            note_refusal(journal, request, refused, run, actor, moment)
        raise BudgetError(refused.message)

    def finish(self, release_id: str, lease: str, outputs: Mapping[str, str], *, actor: str = LEDGER_ACTOR) -> None:
        """Book the publication of `outputs` (released file → SHA-256); the same outputs again are booked once.

        Raises:
            BudgetError: no such release, a lease that is not the current one, a draw that is neither committed, returned
                nor lost, or a release that needs an approval.
            InputError: a correction of what another one has corrected meanwhile.
        """
        with self._writing() as journal:
            record = release_in(journal, release_id)
            check_lease(record, lease)
            check_settled(record)
            if record.needs_approval:
                raise BudgetError(f"release {release_id} is published by an approval, not by its run")
            if dict(outputs) != record.outputs:
                journal.append_all(publication(record, outputs, self._view(journal).releases, actor, now()))


def _request(
    release: str, dataset: str, plan: BudgetPlan, unit: str, plan_digest: str, source: SourceDigest | None
) -> Request:
    return Request(
        release=release,
        dataset=dataset,
        cost=plan.cost,
        statement=planned_statement(plan),
        unit=unit,
        neighbors=plan.neighbors,
        plan_digest=plan_digest,
        source=source,
    )


def _bookings(request: Request, plan: BudgetPlan, body: Mapping[str, Any], actor: str, moment: datetime) -> list[Event]:
    """The RESERVED rows of a release: its own, and one for each draw."""
    first = Event(
        kind=EventKind.RESERVED,
        actor=actor,
        created=moment,
        account=request.dataset,
        release=request.release,
        body=body,
    )
    return [first, *(replace(first, draw=draw.name, cost=draw.cost, body={}) for draw in plan.draws)]
