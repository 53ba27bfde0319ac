"""A request for a run: made by a command, or read from the files of a run that was begun earlier."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from marginweave.accounting.charges import ChargedPlan
from marginweave.base.durable import PRIVATE_MODE, read_file, replace_file
from marginweave.base.errors import InputError, MarginweaveError, StageError
from marginweave.base.places import EXAMPLE_PREFIX, refuse_long
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.configuration.load import load_configuration
from marginweave.configuration.release import Configuration
from marginweave.ledger import LedgerLocation, example_ledger_location, ledger_location
from marginweave.linked.places import TablePlaces
from marginweave.released.manifest import RunState
from marginweave.runs.earlier import EarlierRelease, earlier_releases
from marginweave.sources.kinds import check_kind
from marginweave.sources.parts import find_from

if TYPE_CHECKING:
    from marginweave.measurements.plan import Plan

_REQUEST = "request.json"
STOPPED = "stopped.txt"
"""Name of the file in `internal/` that says why a run stopped before its first draw."""
SKIPPED = "skipped.txt"
"""Name of the file in `internal/` that says which release a skipped run would have repeated."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a run, as the configuration and the options say it; the table was not read yet."""

    path: Path
    # the folder that the paths of the configuration are relative to
    below: Path
    configuration: Configuration
    folder: RunFolder
    source: str
    linked: Mapping[str, str] = field(
        default_factory=dict
    )  # places of linked tables, by their names
    # the ledger of an example; None: the environment says where the ledger is
    ledger_file: Path | None = None
    suites: tuple[Path | None, Path | None] = (None, None)
    certificates: tuple[Path, ...] = ()  # files of the engine: authority, certificate, key
    supersedes: str | None = None  # the run that is to be corrected
    earlier: tuple[EarlierRelease, ...] = ()
    # None where nothing had to be checked, because the run has ended
    checked_plan: Plan | None = None

    @cached_property
    def plan(self) -> Plan:
        """Split of the budget."""
        from marginweave.measurements.split import plan_budget

        return self.checked_plan or plan_budget(self.configuration)

    @cached_property
    def charged_plan(self) -> ChargedPlan:
        """Plan as it is reserved in the ledger, with the terms of each draw."""
        return self.plan.charged(self.configuration)

    @property
    def places(self) -> TablePlaces:
        """Places of all tables."""
        return TablePlaces(self.source, self.linked)

    @property
    def is_example(self) -> bool:
        """Return whether the source is public example data."""
        return self.source.startswith(EXAMPLE_PREFIX)

    @property
    def ledger_location(self) -> LedgerLocation:
        """Location of the ledger."""
        return self.ledger_file or ledger_location(os.environ)


def read_request(
    path: Path,
    *,
    run: str | None,
    source: str | None,
    home: Path,
    supersedes: str | None = None,
    below: Path | None = None,
    linked: Mapping[str, str] | None = None,
) -> Request:
    """Return the request of a configuration file and the options; its paths are relative to `below`, or to the file.

    `source` is the place of the source, and `linked` of linked tables, where these are elsewhere than the configuration says.

    Raises:
        InputError: the configuration, the run's name or a suite of expectations breaks a rule.
        StageError: the run's manifest is damaged.
    """
    configuration = load_configuration(path)
    if run == "":
        raise InputError("the name of a run must not be empty")
    folder = RunFolder.at(home, run or configuration.default_run)
    begun = folder.read_manifest()
    named_releases = configuration.earlier
    # a run keeps the resolution of the version that began it
    if begun is not None and begun.is_of(configuration):
        configuration = configuration.as_resolved(begun.configuration)
    checked_plan = None
    if begun is None or begun.state == RunState.RUNNING:
        from marginweave.runs.limits import check_size

        checked_plan = check_size(configuration)
    below = below or _folder_of_paths(path, folder)
    source_name = configuration.source.file if source is None else source
    if not source_name.strip():
        raise InputError("the name of a source must not be empty")
    source_name = find_from(below if source is None else Path.cwd(), source_name)
    check_kind(source_name, configuration.source)
    places = TablePlaces.of(configuration, source_name, below, linked or {})
    return Request(
        path=path.resolve(),
        below=below.resolve(),
        configuration=configuration,
        folder=folder,
        source=source_name,
        linked=places.linked,
        ledger_file=example_ledger_location(home)
        if source_name.startswith(EXAMPLE_PREFIX)
        else None,
        suites=_suites(configuration, below),
        certificates=_certificates(configuration, below),
        supersedes=supersedes,
        earlier=earlier_releases(named_releases, configuration),
        checked_plan=checked_plan,
    )


def _folder_of_paths(path: Path, folder: RunFolder) -> Path:
    """Return the folder that the paths of the configuration at `path` are relative to.

    It is that of the file. A run that was begun in Python has a copy of its configuration, and another folder.
    """
    with suppress(MarginweaveError):  # there is no such run yet, or its file is damaged
        original = original_request(folder.home, folder.run)
        if original.configuration == path.resolve():
            return original.below
    return path.resolve().parent


def _suites(configuration: Configuration, below: Path) -> tuple[Path | None, Path | None]:
    """Return the files of the suites of expectations, for the table and for the records; refuse one that cannot be read."""
    expectations = configuration.expectations
    table_suite = None if expectations.input is None else below / expectations.input
    records_suite = None if expectations.output is None else below / expectations.output
    for suite in (table_suite, records_suite):
        if suite is not None:
            from marginweave.sources.suites import read_suite

            read_suite(suite, raw_input=suite is table_suite)
    return table_suite, records_suite


def _certificates(configuration: Configuration, below: Path) -> tuple[Path, ...]:
    """Return the files of certificates; refuse an engine that cannot work, or that would have nothing to count."""
    engine = configuration.engine
    if engine.dask is not None and importlib.util.find_spec("distributed") is None:
        raise InputError("engine: dask needs dask.distributed: pip install 'marginweave[dask]'")
    files = tuple(below / file for file in engine.files if file is not None)
    for file in files:
        refuse_long("engine: a certificate or key", file)
        if not file.is_file():
            raise InputError(f"engine: {file} does not exist")
    if engine.dask is not None and configuration.marginals is not None:
        raise InputError(
            "engine: dask counts k-tuples alone; marginals are counted on this machine: leave engine out"
        )
    return files


def remember(request: Request) -> None:
    """Write the paths of a request on this machine for `resume`: to `internal/`, which nobody publishes."""
    content = {
        "configuration": str(request.path),
        "below": str(request.below),
        "source": request.source,
    }
    replace_file(request.folder.internal / _REQUEST, json.dumps(content).encode(), PRIVATE_MODE)


@dataclass(frozen=True, kw_only=True)
class OriginalRequest:
    """What a run was begun with: its configuration file, the folder that the paths in it are relative to, and its source."""

    configuration: Path
    below: Path
    source: str


def was_skipped(folder: RunFolder) -> bool:
    """Return whether the run was skipped, because its table had not changed (`unchanged: skip`), and not begun since."""
    return (folder.internal / SKIPPED).exists() and folder.read_manifest() is None


def no_such_run(folder: RunFolder) -> InputError:
    """Return the error of a command about a run without a manifest: it was skipped, or there is none of this name."""
    if was_skipped(folder):
        return InputError(
            f"run {folder.run} was skipped: it has no release, and nothing to resume or to purge; "
            f"{folder.internal / SKIPPED} says why"
        )
    place = folder.home / "runs"
    return InputError(
        f"run {folder.run} does not exist in {place}; `marginweave runs` lists the runs"
    )


def original_request(home: Path, run: str) -> OriginalRequest:
    """Return what a run was begun with.

    Raises:
        InputError: there is no such run, or it was skipped.
        StageError: the file that says it is damaged.
    """
    folder = RunFolder.at(home, run)
    path = folder.internal / _REQUEST
    content = read_file(path)
    if content is None and folder.manifest_file.exists():
        raise InputError(
            f"run {run} has lost {path.name}; resume it: marginweave run CONFIG --run {run}"
        )
    if content is None:
        raise no_such_run(folder)
    try:
        request = json.loads(content)
        configuration = Path(request["configuration"])
        below = Path(request["below"])
        return OriginalRequest(
            configuration=configuration, below=below, source=str(request["source"])
        )
    except (ValueError, KeyError, TypeError):
        raise StageError(
            f"{path} is damaged; resume the run: marginweave run CONFIG --run {run}"
        ) from None


def resumed_request(home: Path, run: str) -> Request:
    """Return the request of a run as it was begun, but for what it corrects, which its manifest has.

    Raises:
        InputError: as `original_request` and `read_request`.
        StageError: as these.
    """
    original = original_request(home, run)
    return read_request(
        original.configuration, run=run, source=original.source, home=home, below=original.below
    )


def ledger_of(folder: RunFolder, home: Path) -> LedgerLocation:
    """Return the location of an existing run's ledger."""
    return ledger_file_of(folder, home) or ledger_location(os.environ)


def ledger_file_of(folder: RunFolder, home: Path) -> Path | None:
    """Return the ledger file of an existing run on example data, or None: the environment says where the ledger is.

    Raises:
        InputError: there is no such run.
        StageError: what it was begun with is not there, and its manifest is damaged.
    """
    return example_ledger_location(home) if is_example(folder) else None


def is_example(folder: RunFolder) -> bool:
    """Return whether a run was begun with public example data, which has a separate ledger.

    Where `internal/` was removed, the source is the one in its manifest.

    Raises:
        InputError: there is no such run.
        StageError: what it was begun with is not there, and its manifest is damaged.
    """
    try:
        source = original_request(folder.home, folder.run).source
    except MarginweaveError:
        manifest = folder.read_manifest()
        if manifest is None:
            raise
        source = manifest.source
    return source.startswith(EXAMPLE_PREFIX)
