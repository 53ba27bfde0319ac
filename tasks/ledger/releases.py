"""Releases in the ledger: reserved, refused, published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.records import LEDGER_ACTOR, Event, EventKind, ReleaseRecord, now
from marginweave.tasks.ledger.accounts import account_in
from marginweave.tasks.ledger.admission import ReleaseRequest, check_identity, record_refusal, refusal
from marginweave.tasks.ledger.boxes import Admitted, admitted
from marginweave.tasks.ledger.draws import check_lease
from marginweave.tasks.ledger.location import opening_for
from marginweave.tasks.ledger.plans import check_plan, check_same_plan
from marginweave.tasks.ledger.records import cap_body
from marginweave.tasks.ledger.session import Session


@dataclass(frozen=True)
class Releases:
    """The releases of a ledger."""

    session: Session

    def of(self, dataset: str) -> tuple[ReleaseRecord, ...]:
        """The releases of one account, in order of reservation.

        Raises:
            BudgetError: no such account.
        """
        view = self.session.view()
        account_in(view.accounts, dataset)
        return tuple(record for record in view.releases.values() if record.dataset == dataset)

    def find(self, release_id: str) -> ReleaseRecord | None:
        """The release of this id, or None if it was never reserved."""
        return self.session.find(release_id)

    def reserve(self, request: ReleaseRequest) -> ReleaseRecord:
        """Charge the whole plan before anything is drawn, or return the release that this id was reserved for before.

        One RESERVED row for the release and one for each draw. A refusal is a row, too, once, and depends on the plan, the
        ledger, the clock and the keyed digest of the source (`SourceDigest`) only.

        Raises:
            BudgetError: no account; another unit or neighbors; the source has another account; over the cap, or over the
                policy of this period.
            InputError: the id was reserved with another dataset, configuration, source or plan; a plan that does not fit its
                own statement; a release to correct that is not published in this account, or is corrected already.
        """
        check_plan(request.plan)
        dataset = request.dataset
        with self.session.writing(charging=True) as journal:
            view, moment = self.session.view(journal), now()
            account = account_in(view.accounts, dataset, opening_for(dataset, request.plan))
            if (known := view.releases.get(request.release)) is not None:
                check_identity(request, known)
                check_same_plan(known, request.plan, request.program)
                return known
            check_correction(dataset, request.supersedes, view.releases)
            refused = refusal(request, account, view, moment)
            if refused is None:
                how = admitted(account, view.spent_of(dataset), request.cost, request.plan.statement)
                journal.append(*reservation(request, how, moment))
                return journal.release(request.release)
            record_refusal(journal, request, refused, moment)
        raise BudgetError(refused.message)  # outside the transaction, which keeps the refusal

    def check_admission(self, request: ReleaseRequest) -> None:
        """Refuse a release that could not be reserved now, before a row of its table is read; nothing is charged.

        Raises:
            BudgetError, InputError: as `reserve`.
        """
        check_plan(request.plan)
        with self.session.writing() as journal:
            view, moment = self.session.view(journal), now()
            account = account_in(view.accounts, request.dataset, opening_for(request.dataset, request.plan))
            refused = refusal(request, account, view, moment)
            if refused is None:
                return
            record_refusal(journal, request, refused, moment)
        raise BudgetError(refused.message)

    def publish(self, release_id: str, lease: str, outputs: Mapping[str, str], *, actor: str = LEDGER_ACTOR) -> None:
        """Write down the publication of `outputs` (released file → SHA-256), once, however often they are published.

        Raises:
            BudgetError: no such release, a lease that is not the current one, a draw that is neither committed, returned
                nor lost, or a release that needs an approval.
            InputError: a correction of what another one has corrected meanwhile.
        """
        with self.session.writing() as journal:
            record = journal.release(release_id)
            check_lease(record, lease)
            check_draws_ended(record)
            if record.needs_approval:
                raise BudgetError(f"release {release_id} is published by an approval, not by its run")
            if dict(outputs) != record.outputs:
                releases = self.session.view(journal).releases
                journal.append(*publication(record, outputs, releases, actor, now()))


def check_draws_ended(record: ReleaseRecord) -> None:
    """Refuse a release with draws that may still be made.

    Raises:
        BudgetError: a draw is neither committed, returned nor lost.
    """
    if record.pending:
        raise BudgetError(
            f"release {record.release} is not finished: {', '.join(record.pending)} must be committed or given back"
        )


def check_correction(dataset: str, supersedes: str | None, releases: Mapping[str, ReleaseRecord]) -> None:
    """Refuse a correction of what is not there to be corrected; None corrects nothing.

    Raises:
        InputError: no such published release in the account, or one that is corrected already.
    """
    if supersedes is None:
        return
    old = releases.get(supersedes)
    if old is None or old.dataset != dataset or not old.outputs:
        raise InputError(f"release {supersedes} is not a published release of account {dataset}")
    if old.superseded_by is not None:
        raise InputError(
            f"run {old.run} is superseded already, by run {releases[old.superseded_by].run}: correct that one"
        )


def publication(
    record: ReleaseRecord,
    outputs: Mapping[str, str],
    releases: Mapping[str, ReleaseRecord],
    actor: str,
    moment: datetime,
) -> list[Event]:
    """The PUBLISHED row of a release with `outputs`, and that of the release that it supersedes, if there is one.

    Two corrections of one release may be begun: `releases`, as they are in this transaction, say which one was first.

    Raises:
        InputError: another correction was published before.
    """
    about = Event(kind=EventKind.PUBLISHED, actor=actor, created=moment, account=record.dataset, release=record.release)
    row = replace(about, body={"outputs": dict(outputs)})
    if record.outputs or record.supersedes is None:
        return [row]
    check_correction(record.dataset, record.supersedes, releases)
    return [row, replace(row, kind=EventKind.SUPERSEDED, release=record.supersedes, body={"by": record.release})]


def reservation(request: ReleaseRequest, how: Admitted | None, moment: datetime) -> list[Event]:
    """The RESERVED rows of a release: its own, with its public facts and its whole plan, and one for each draw."""
    assert request.source is not None
    plan = request.plan
    optional = {
        "approval": "required" if request.needs_approval else None,
        "supersedes": request.supersedes,
        "discovery": plan.discovery and asdict(plan.discovery),
        "program": request.program and request.program.model_dump(),
        "admitted": how if how == "statement" else None,
    }
    body = {
        **{name: value for name, value in optional.items() if value is not None},
        **cap_body(plan.epsilon, plan.delta),
        "run": request.run,
        "plan_digest": request.plan_digest,
        "source": request.source.mark(request.release),
        "unit": request.unit,
        "neighbors": plan.neighbors,
        "accountant": plan.accountant,
        "delta_threshold": plan.delta_threshold,
        "spent_epsilon": plan.spent_epsilon,
        "draws": [draw.facts for draw in plan.draws],
    }
    about = Event(
        kind=EventKind.RESERVED, actor=request.actor, created=moment, account=request.dataset, release=request.release
    )
    return [replace(about, body=body), *(replace(about, draw=draw.name, cost=draw.cost) for draw in plan.draws)]
