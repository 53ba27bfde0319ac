"""From a command to a run: everything that can be refused is refused here, before Prefect is even imported."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from marginweave.schemas.configuration import EXAMPLE_PREFIX, Configuration
from marginweave.schemas.errors import BudgetError, InputError, StageError
from marginweave.schemas.ledger import Account
from marginweave.schemas.load import load_configuration
from marginweave.schemas.manifest import Manifest, RunState
from marginweave.tasks.aggregate.candidates import MAX_CELLS
from marginweave.tasks.budget.ledger import (
    Ledger,
    LedgerLocation,
    example_ledger_location,
    ledger_location,
    opening_command,
)
from marginweave.tasks.budget.mechanisms import deviation
from marginweave.tasks.budget.noise_table import MAX_DEVIATION
from marginweave.tasks.budget.split import plan_budget
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, read_file, replace_file, write_once
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.references import RunReference, code_version
from marginweave.tasks.validate.expectations import read_suite
from marginweave.tasks.validate.source import check_source, source_chunks

# The account that `run` opens for an example by itself: public data, so its cap only has to leave room for trying.
_EXAMPLE_EPSILON = 10.0
_REQUEST = "request.json"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for, before anything was looked at but the configuration."""

    path: Path
    configuration: Configuration
    folder: RunFolder
    source: str
    ledger_file: Path | None  # of an example; None: where the environment says
    suites: tuple[Path | None, Path | None]

    @property
    def is_example(self) -> bool:
        """Whether the source is public example data."""
        return self.source.startswith(EXAMPLE_PREFIX)

    @property
    def ledger_location(self) -> LedgerLocation:
        """Where the ledger is."""
        return self.ledger_file or ledger_location(os.environ)


def read_request(path: Path, *, run: str | None, source: str | None, home: Path) -> Request:
    """The request that a configuration file and the options make.

    Raises:
        InputError: the configuration, the run's name or a suite of expectations breaks a rule.
    """
    configuration = load_configuration(path)
    _check_size(configuration)
    below = path.resolve().parent
    named = configuration.source if source is None else source
    if not named.strip() or run == "":
        raise InputError("--run and --source must not be empty")
    if not named.startswith(EXAMPLE_PREFIX):
        named = str((below / named) if source is None else Path(named).absolute())
    expectations = configuration.expectations
    suites = tuple(None if name is None else below / name for name in (expectations.input, expectations.output))
    for suite, raw_input in zip(suites, (True, False), strict=True):
        if suite is not None:
            read_suite(suite, raw_input=raw_input)
    return Request(
        path=path.resolve(),
        configuration=configuration,
        folder=RunFolder.at(home, run or configuration.default_run),
        source=named,
        ledger_file=example_ledger_location(home) if named.startswith(EXAMPLE_PREFIX) else None,
        suites=(suites[0], suites[1]),
    )


def prepare_run(request: Request) -> tuple[RunReference, RunState]:
    """The run that a request stands for: a new one, one to go on with, or a finished one.

    A run that was purged before it was finished cannot go on: what it had drawn is gone.

    Raises:
        InputError: the source is broken, or the name stands for another configuration or other source bytes.
        BudgetError: there is no ledger, key or account; nothing is created.
        StageError: a finished run whose released files were changed.
    """
    present = request.folder.read_manifest()
    if present is not None:
        _check_same_configuration(request, present)
        if present.state == RunState.FAILED:
            raise InputError(
                f"run {present.run} was purged before it was finished; give the new release a name with --run"
            )
    ledger = check_request(request)
    if not request.is_example:
        _check_history(request, ledger)
    _check_continuity(request.folder, present, ledger)
    digest = ledger.source_digest(source_chunks(request.source))
    if present is None:
        present = _new_manifest(request, digest)
        request.folder.create()
        write_once(request.folder.private / "key", secrets.token_bytes(32))
        _remember(request)
        request.folder.write_manifest(present)
    elif present.source_digest != digest:
        raise InputError(
            f"run {present.run} was made from other source bytes, or under another ledger; "
            "give the new release a name of its own with --run"
        )
    elif present.state == RunState.RUNNING:
        present = _published_before_its_end(request.folder, present, ledger)
    reference = RunReference(
        folder=request.folder,
        source=request.source,
        ledger_file=request.ledger_file,
        lease=uuid.uuid4().hex,
        suites=request.suites,
    )
    if present.state == RunState.FINISHED:
        check_outputs(request.folder, present)
        unpurged = any(entry.purged is None for entry in present.stages.values())
        if unpurged and not request.configuration.publish.keep_private:
            request.folder.purge_private()  # the run ended between its last word and the end of its purge
    return reference, present.state


def _check_history(request: Request, ledger: Ledger) -> None:
    """Refuse a ledger that does not know what the runs of this home have spent: it was replaced, or restored too old."""
    from marginweave.flows.audit import unknown_charges  # it imports this module

    dataset = request.configuration.dataset
    known = frozenset(record.release for record in ledger.releases(dataset))
    run = unknown_charges(request.folder.path.parent.parent, dataset, known)
    if run is not None:
        raise BudgetError(
            f"run {run} was charged to account {dataset}, but the ledger {ledger.location} does not know it: it is new, or an "
            "old backup; restore the ledger that the run was charged in"
        )


def _published_before_its_end(folder: RunFolder, present: Manifest, ledger: Ledger) -> Manifest:
    """The manifest of a run that ended between the ledger's word that it is published and its own."""
    record = ledger.release(present.release)
    if record is None or not record.outputs:
        return present
    finished = present.with_outputs(dict(record.outputs)).with_state(RunState.FINISHED)
    check_outputs(folder, finished)
    folder.write_manifest(finished)
    return finished


def begun_with(home: Path, run: str) -> tuple[Path, str]:
    """Configuration file and source with which a run was begun.

    Raises:
        InputError: there is no such run, or it was not begun.
    """
    path = RunFolder.at(home, run).internal / _REQUEST
    content = read_file(path)
    if content is None and RunFolder.at(home, run).manifest_file.exists():
        raise InputError(f"run {run} has lost {path.name}; go on with it by `marginweave run CONFIG --run {run}`")
    if content is None:
        raise InputError(f"run {run} does not exist in {home / 'runs'}; `marginweave runs` lists the runs")
    try:
        request = json.loads(content)
        return Path(request["configuration"]), str(request["source"])
    except (ValueError, KeyError, TypeError):
        raise StageError(f"{path} is damaged; go on with the run by `marginweave run CONFIG --run {run}`") from None


def ledger_of(folder: RunFolder, home: Path) -> LedgerLocation:
    """Where the ledger of an existing run is."""
    return ledger_file_of(folder, home) or ledger_location(os.environ)


def ledger_file_of(folder: RunFolder, home: Path) -> Path | None:
    """The ledger file of an existing run on example data, or None: the environment says where the ledger is."""
    source = begun_with(home, folder.run)[1]
    return example_ledger_location(home) if source.startswith(EXAMPLE_PREFIX) else None


def _remember(request: Request) -> None:
    """Paths on this machine, for `resume`; in `internal/`, which nobody publishes."""
    content = {"configuration": str(request.path), "source": request.source}
    replace_file(request.folder.internal / _REQUEST, json.dumps(content).encode(), PRIVATE_MODE)


def check_request(request: Request) -> Ledger:
    """What can be refused before a run leaves any trace: the source, and a ledger that is not there; returns the ledger.

    Raises:
        InputError, BudgetError: as `prepare_run`.
    """
    check_source(request.source, request.configuration.names)
    return open_ledger(request)


def _check_continuity(folder: RunFolder, present: Manifest | None, ledger: Ledger) -> None:
    """Refuse a run whose parts do not belong together: going on would charge for what was drawn already.

    Raises:
        StageError: draws without their manifest, or a run without its key.
        BudgetError: a finished run that the ledger does not know, as after the restore of an old copy.
    """
    release = ledger.release(present.release) if present is not None else None
    drawn = folder.draws.is_dir() and any(folder.draws.iterdir())
    if drawn and release is None:
        raise StageError(
            f"run {folder.run} has draws, but its manifest is missing or is not that of a release in the ledger; "
            "restore manifest.json, or give a new release a name with --run"
        )
    if present is None:
        return
    if present.state == RunState.RUNNING and not (folder.private / "key").is_file():
        raise StageError(
            f"run {folder.run} has lost private/key and cannot go on; give a new release a name with --run"
        )
    if present.state == RunState.FINISHED and (release is None or dict(release.outputs) != present.outputs):
        raise BudgetError(
            f"run {folder.run} is finished, but the ledger does not know its release as it is: is this an older copy of it?"
        )


def open_ledger(request: Request) -> Ledger:
    """The ledger with the dataset's account; for an example both are made where they are missing.

    Raises:
        BudgetError: no ledger, key or account.
    """
    configuration = request.configuration
    privacy = configuration.privacy
    if not request.is_example:
        command = opening_command(configuration.dataset, privacy.epsilon, privacy.delta)
        ledger = Ledger.open(request.ledger_location, command=command)
        ledger.forecast(configuration.dataset, plan_budget(configuration))  # refuses where there is no account
        return ledger
    ledger = Ledger.create(request.ledger_location)
    if all(total.account.dataset != configuration.dataset for total in ledger.accounts()):
        ledger.open_account(
            Account(
                dataset=configuration.dataset,
                epsilon=Decimal(repr(max(_EXAMPLE_EPSILON, privacy.epsilon))),
                delta=Decimal(repr(privacy.delta)),
                unit=privacy.unit,
                neighbors=privacy.neighbors,
            ),
            actor="marginweave run (example)",
        )
    return ledger


def _check_size(configuration: Configuration) -> None:
    """Refuse, from public facts and before any draw, a plan with more cells or more noise than can be handled."""
    sizes = sorted(((len(c.labels), name) for name, c in configuration.columns.items()), reverse=True)
    largest = sizes[: configuration.reporting_length]
    cells = math.prod(size + 1 for size, _ in largest)
    if len(largest) > 1 and cells > MAX_CELLS:
        names = ", ".join(name for _, name in largest)
        raise InputError(
            f"columns {names} have {cells} combinations, more than {MAX_CELLS}; use coarser bins, fewer values or a smaller "
            "aggregate.reporting_length"
        )
    for draw in plan_budget(configuration).draws:
        if draw.mechanism == "rounded-gaussian":
            bound = math.comb(len(configuration.columns), draw.length)
            if deviation(draw.parameter, bound, configuration.privacy.neighbors) > MAX_DEVIATION:
                raise InputError(
                    f"the noise of {draw.name} may have a standard deviation above {MAX_DEVIATION}; raise privacy.epsilon, or "
                    "use fewer columns or a smaller aggregate.reporting_length"
                )


def _new_manifest(request: Request, digest: str) -> Manifest:
    configuration = request.configuration
    return Manifest(
        run=request.folder.run,
        dataset=configuration.dataset,
        release=str(uuid.uuid4()),
        configuration=configuration.canonical(),
        configuration_digest=configuration.digest,
        source=configuration.source,
        source_digest=digest,
        code_version=code_version(),
        created=datetime.now(UTC),
    )


def _check_same_configuration(request: Request, present: Manifest) -> None:
    if present.configuration_digest == request.configuration.digest:
        return
    before, now = json.loads(present.configuration), json.loads(request.configuration.canonical())
    places = ", ".join(_differences(before, now, ""))
    raise InputError(
        f"run {present.run} has another configuration; it differs in {places}. Give the new release a name with --run"
    )


def _differences(before: object, now: object, place: str) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted({*before, *now})
        return [
            d for key in keys for d in _differences(before.get(key), now.get(key), f"{place}.{key}" if place else key)
        ]
    if place == "columns" and isinstance(before, list) and isinstance(now, list):
        one, other = dict(before), dict(now)
        order = ["the order of columns"] if list(one) != list(other) else []
        return _differences(one, other, place) or order
    return [] if before == now else [place]


def internal_evaluation_due(reference: RunReference) -> bool:
    """Whether the configuration asks for an internal evaluation that has not been made."""
    return reference.configuration.evaluate.internal and not reference.folder.internal_evaluation.exists()


def check_outputs(folder: RunFolder, manifest: Manifest) -> None:
    """Refuse a release whose files are not those that were published.

    Raises:
        StageError: a file is missing or was changed.
    """
    for file, digest in manifest.outputs.items():
        content = read_file(folder.path / file)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise StageError(f"{folder.path / file} is missing or was changed since it was published; it is not used")
