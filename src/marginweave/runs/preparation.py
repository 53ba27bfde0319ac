"""Prepare a run for a request: everything that can be refused is refused here, before Prefect is even imported."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import State
from marginweave.base.durable import write_once
from marginweave.base.errors import NEW_NAME, BudgetError, InputError, OperatorError
from marginweave.base.user import user_name
from marginweave.configuration.release import Configuration
from marginweave.draws.program import program_identity
from marginweave.ledger import Ledger, ReleaseRequest, Witness, opening_for
from marginweave.ledger.keys import SourceDigest
from marginweave.ledger.releases import check_correction
from marginweave.measurements.largest import largest_epsilon
from marginweave.released.manifest import Correction, Manifest, RunState
from marginweave.runs import continuity
from marginweave.runs.capabilities import RunReference
from marginweave.runs.earlier import check_earlier, keep_earlier
from marginweave.runs.looks import record_look
from marginweave.runs.request import SKIPPED, STOPPED, Request, remember

# Cap of the account that `run` opens for an example by itself. The data are public, so it only has to leave room for trials.
_EXAMPLE_EPSILON = Decimal(10)

_ATTENDED: ContextVar[bool] = ContextVar("attended", default=False)


@dataclass(frozen=True)
class Frame:
    """The data frame that a source was made from: the types of its columns, and the bytes of all its cells.

    The source has the declared columns alone, in the order and form in which they are read. The bytes of the frame do not
    depend on what is declared. `contents` returns them, and those of the frames of linked tables by their names; the name of
    the source is empty.
    """

    types: dict[str, str]
    contents: Callable[[], Mapping[str, Iterable[bytes]]]


_FRAME: ContextVar[Frame | None] = ContextVar("frame", default=None)


@contextmanager
def attended(by_person: bool = True, frame: Frame | None = None) -> Iterator[None]:
    """Mark the runs inside as started by a person: they stop before their first draw if the table is not usable as declared.

    `serve`, a deployment and `--yes` are started by nobody. If these stopped, that would reveal something about the rows, so
    they do not. `frame` is the data frame that the source was made from.
    """
    attended_token = _ATTENDED.set(by_person)
    frame_token = _FRAME.set(frame)
    try:
        yield
    finally:
        _ATTENDED.reset(attended_token)
        _FRAME.reset(frame_token)


def prepare_run(request: Request) -> tuple[RunReference, RunState]:
    """Return the run that a request is for, and its state: a new run, one to resume, or a finished one.

    A run that was purged before it was finished cannot be resumed, because its draws are gone. Neither can a rejected one.

    Raises:
        InputError: the source is broken, the name is that of a run with another configuration or other source bytes, or there
            is nothing that the run could supersede.
        BudgetError: there is no ledger, key or account; nothing is created.
        StageError: a finished run whose released files were changed.
    """
    present = request.folder.read_manifest()
    if present is not None:
        continuity.check_same_configuration(request, present)
        if present.state == RunState.FAILED:
            raise InputError(f"run {present.run} was purged before it was finished; {NEW_NAME}")
    ledger = _checked_ledger(request, present)
    continuity.check_continuity(request.folder, present, ledger)
    continuity.check_same_draws(request, present, ledger)
    supersedes = continuity.check_correction(request, present)
    read_digest = ledger.keys.source_digest(request.places.contents())
    digest = read_digest if _FRAME.get() is None else table_digest(request, ledger)
    present = (
        _resume(request, present, ledger, digest)
        if present
        else _begin(request, ledger, digest, supersedes)
    )
    if present.state in {RunState.FINISHED, RunState.AWAITING}:
        _complete(request, present, ledger)
    reference = RunReference(
        folder=request.folder,
        source=request.source,
        linked=request.linked,
        ledger_file=request.ledger_file,
        lease=uuid.uuid4().hex,
        suites=request.suites,
        certificates=request.certificates,
        stops=_ATTENDED.get() or request.configuration.check == "stop",
        planned=request.plan if present.state == RunState.RUNNING else None,
    )
    ledger.follow(request.folder.path, present.release)
    reference.keep(manifest=present, ledger=ledger, source_digest=digest, read_digest=read_digest)
    return reference, present.state


def table_digest(request: Request, ledger: Ledger) -> SourceDigest:
    """Return the keyed digest of the table of a request: of the data frame that its source was made from, if there is one."""
    frame = _FRAME.get()
    tables = request.places.contents() if frame is None else frame.contents()
    return ledger.keys.source_digest(tables)


def _begin(
    request: Request, ledger: Ledger, digest: SourceDigest, supersedes: Correction | None
) -> Manifest:
    """Begin a new run if the ledger would admit its release: make its folder and key, and return its manifest."""
    _check_admission(request, ledger, digest)
    configuration = request.configuration
    release = str(uuid.uuid4())
    frame = _FRAME.get()
    if frame is not None:
        types = frame.types
    else:
        from marginweave.linked.source import ReleaseSource

        source = ReleaseSource.of(request.places, configuration)
        types = source.types(configuration.output_names)
    manifest = Manifest(
        run=request.folder.run,
        dataset=configuration.dataset,
        release=release,
        written=configuration.written,
        configuration=configuration.canonical(),
        configuration_digest=configuration.digest,
        execution=configuration.execution,
        source=configuration.source.file,
        source_digest=digest.mark(release),
        types=types,
        programs=(program_identity(),),
        created=datetime.now(UTC),
        supersedes=supersedes,
    )
    request.folder.create()
    (request.folder.internal / SKIPPED).unlink(missing_ok=True)
    write_once(request.folder.private / "key", secrets.token_bytes(32))
    remember(request)
    keep_earlier(request.earlier, request.folder.derived)
    request.folder.write_manifest(manifest)
    return manifest


def _resume(request: Request, present: Manifest, ledger: Ledger, digest: SourceDigest) -> Manifest:
    """Bring an existing run to its state in the ledger, and return its manifest.

    From here on, this program computes an unfinished run, with the execution settings of the present configuration. Where its
    reservation has expired before anything was drawn, it gets a new release, which the ledger admits or refuses like any other.
    Where nothing was reserved, because its table was not usable, it begins again with the present table.
    """
    if not digest.matches(present.release, present.source_digest):
        if present.state == RunState.RUNNING and ledger.releases.find(present.release) is None:
            request.folder.remove_private()
            (request.folder.internal / STOPPED).unlink(missing_ok=True)
            return _begin(request, ledger, digest, present.supersedes)
        raise InputError(
            f"run {present.run} was made from other source bytes, or under another ledger; {NEW_NAME}"
        )
    if present.state in {RunState.RUNNING, RunState.AWAITING}:
        present = continuity.sync_with_ledger(request.folder, present, ledger)
    if present.state == RunState.REJECTED:
        raise InputError(
            f"run {present.run} was rejected, and its charge stays; for one more charge, {NEW_NAME}"
        )
    if present.state != RunState.RUNNING:
        return present
    changed = present.with_execution(request.configuration.execution).with_program(
        program_identity()
    )
    record = ledger.releases.find(present.release)
    if (
        record is not None
        and record.draws
        and all(draw.state == State.RETURNED for draw in record.draws)
    ):
        release = str(uuid.uuid4())
        changed = changed.with_release(release, digest.mark(release))
    if changed != present:
        request.folder.write_manifest(changed)
    return changed


def _complete(request: Request, present: Manifest, ledger: Ledger) -> None:
    """Check the files of a finished run, and purge the files of an earlier purge that was interrupted."""
    if present.state == RunState.FINISHED:
        continuity.check_outputs(request.folder, present)
        continuity.restore_account(request.folder, present, ledger)
    unpurged = any(entry.purged is None for entry in present.stages.values())
    if unpurged and not request.configuration.publish.keep_private:
        request.folder.purge_private()


def check_request(request: Request) -> Ledger:
    """Refuse what can be refused before a run leaves any trace, and return the ledger.

    Refused before a row of the table is read are: a source whose header is not as declared, a missing ledger or one in which
    the runs of this home were not charged, a correction of a release that does not exist, and a release that the account does
    not admit. Refused last are rows that cannot be read.

    Raises:
        InputError, BudgetError: as `prepare_run`.
    """
    return _checked_ledger(request, request.folder.read_manifest())


def _checked_ledger(request: Request, present: Manifest | None) -> Ledger:
    """Check everything that `check_request` refuses, and return the ledger; `present` is the run's manifest, if it has one."""
    # else the digest of the source is enough
    reads_table = present is None or present.state == RunState.RUNNING
    if reads_table:
        from marginweave.linked.source import ReleaseSource

        ReleaseSource.of(request.places, request.configuration).check_header()
    ledger = open_ledger(request)
    check_earlier(request.configuration, ledger)
    if not request.is_example:
        continuity.check_history(request, present, ledger)
    correction = continuity.check_correction(request, present)
    if present is None and correction is not None:
        check_correction(request.configuration.dataset, correction.release, ledger.releases.find)
    if present is None or (
        present.state == RunState.RUNNING and ledger.releases.find(present.release) is None
    ):
        _check_admission(request, ledger)
    if reads_table:
        _check_rows(request)
    return ledger


def _check_rows(request: Request) -> None:
    """Stop where a row cannot be read. Its number depends on the table: the stop is a look, and only the operator sees it."""
    from marginweave.linked.source import ReleaseSource

    declared = request.configuration
    try:
        ReleaseSource.of(request.places, declared).check_rows()
    except InputError as error:
        reason = str(error)
    else:
        return
    # Outside the handler, because Prefect stores and logs an error with its context.
    record_look(request.folder.home, "run", declared.dataset, request.source, declared.written)
    raise OperatorError(reason)


def _check_admission(request: Request, ledger: Ledger, source: SourceDigest | None = None) -> None:
    """Refuse a release that the ledger would refuse to reserve; its source is checked too where the digest is known."""
    configuration = request.configuration
    ledger.releases.check_admission(
        ReleaseRequest(
            dataset=configuration.dataset,
            run=request.folder.run,
            plan=request.charged_plan,
            plan_digest=configuration.written_digest,
            source=source,
            unit=configuration.privacy.unit_key,
            actor=user_name(),
            largest=partial(largest_epsilon, configuration),
        )
    )


def open_ledger(request: Request) -> Ledger:
    """Return the ledger with the dataset's account; for an example both are made where they are missing.

    Raises:
        BudgetError: no ledger, key or account, or a ledger that lacks what this home has seen of it.
    """
    configuration = request.configuration
    witness = Witness(request.folder.home)
    if not request.is_example:
        try:
            ledger = Ledger.open(request.ledger_location, witness=witness)
            ledger.accounts.check(configuration.dataset, "")
        except BudgetError:
            # Again, with the command that opens the missing ledger or account: to make that text takes a plan.
            path = request.path if request.path.exists() else None  # a plan in Python has no file
            command = opening_for(configuration.dataset, request.charged_plan, path)
            ledger = Ledger.open(request.ledger_location, command=command, witness=witness)
            ledger.accounts.check(configuration.dataset, command)
        return ledger
    ledger = Ledger.create(request.ledger_location, witness=witness)
    if all(total.account.dataset != configuration.dataset for total in ledger.accounts.totals()):
        account = account_for(configuration)
        account = replace(account, epsilon=max(_EXAMPLE_EPSILON, account.epsilon))
        ledger.accounts.open(account, actor="marginweave run (example)")
    return ledger


def account_for(configuration: Configuration) -> Account:
    """Return an account for one release of a configuration: its cap, its unit, and a box for releases of its plan."""
    from marginweave.measurements.split import plan_budget

    plan = plan_budget(configuration)
    privacy = configuration.privacy
    return Account(
        dataset=configuration.dataset,
        epsilon=plan.statement.epsilon,
        delta=plan.statement.delta,
        unit=privacy.unit_key,
        neighbors=privacy.neighbors,
        kind_of_plan=plan.cost,
        weak_delta=privacy.weak_delta,
    )


def internal_evaluation_due(reference: RunReference) -> bool:
    """Return whether the configuration asks for an internal evaluation that was not made yet, or has no report.

    Never true before the release is published, nor while another release about the same people awaits approval: the person who
    approves must have seen nothing but files that may leave.
    """
    if not reference.configuration.evaluate.internal:
        return False
    folder = reference.folder
    manifest = folder.read_manifest()
    if manifest is None or manifest.state != RunState.FINISHED:
        return False
    if folder.internal_evaluation.exists() and folder.internal_report.exists():
        return False
    return reference.ledger.approvals.awaited(manifest.dataset) is None
