"""Notebook interface: `Synthesizer(config).fit(frame).sample(n)`, with the same ledger as the command line."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from marginweave.base.errors import InputError, NotFittedError, OperatorError, must_be, printable
from marginweave.base.places import FRAME
from marginweave.base.shown import Shown
from marginweave.configuration.earlier import with_folders
from marginweave.configuration.load import configuration_of, load_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import mapping_of
from marginweave.runs.home import home_directory

if TYPE_CHECKING:
    import pandas as pd

    from marginweave.checkpoints.run_folder import RunFolder
    from marginweave.forecast.overview import PlannedRelease
    from marginweave.inference.opened import Release
    from marginweave.runs.capabilities import RunReference
    from marginweave.runs.frame_tables import FrameTables
    from marginweave.runs.progress import Reporter
    from marginweave.runs.request import Request

_LINKED = "linked-"  # at the beginning of the name of a linked table's file
_OF_FRAME = "-frame"  # at the end of the name of a frame's run
_INTERRUPTED = (
    "Nothing is lost or charged twice: the same fit resumes it. What was charged stays charged."
)


class Synthesizer(Shown):
    """Releases a table and samples from the release; an estimator by the conventions of scikit-learn.

    `config` is a path, a mapping (e.g. `marginweave.Configuration`), or an internal resolved `Configuration`.
    `fit` does not read its `source`. `home` is the folder in which `runs/` lives: MARGINWEAVE_HOME or the working directory.
    `fit` charges the dataset's account once: the same table and configuration again find the finished release.
    While it runs it reports its progress on standard error, unless `verbose` is False.

    Raises:
        InputError: the configuration breaks a rule, or something in it is not confirmed.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | Configuration,
        home: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        self.config = config
        self.home = home
        self.verbose = verbose
        if isinstance(config, str | Path):
            self._resolved = load_configuration(Path(config))
        elif isinstance(config, Configuration):
            self._resolved = config
        elif isinstance(config, Mapping):
            configuration_of(config)  # raises InputError for a rule that is broken
        else:
            raise InputError(
                "Synthesizer takes a configuration, not a table; make one with Configuration.draft(table, dataset)"
            )
        self._home = home_directory(home)
        self._release: Release | None = None

    @property
    def configuration(self) -> Configuration:
        """Configuration that `fit` releases, with all defaults: a mapping is re-read each time; a file was read once."""
        if isinstance(self.config, Mapping):
            return configuration_of(self.config)
        return self._resolved

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's signature
        """Return the arguments of the synthesizer by name, as scikit-learn's `clone` needs them; `deep` adds none."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change the arguments of the synthesizer; it is not fitted any more after that.

        Raises:
            InputError: there is no such parameter, or the configuration breaks a rule.
        """
        unknown = params.keys() - self.get_params()
        if unknown:
            raise InputError(
                f"{min(unknown)} is no parameter of a Synthesizer; there are config, home and verbose"
            )
        changed = type(self)(**{**self.get_params(), **params})
        vars(self).update(vars(changed))
        return self

    def plan(self) -> PlannedRelease:
        """Return the plan of `marginweave plan`, before anything is read or charged: noise, errors, account, expected use."""
        from marginweave.forecast.overview import PlannedRelease

        return PlannedRelease.of(self.configuration, self._request)

    @property
    def _below(self) -> Path:
        """The folder that the configuration's paths are relative to: that of its file, else the working folder."""
        if isinstance(self.config, str | Path):
            return Path(self.config).resolve().parent
        return Path.cwd()

    def _request(self) -> Request:
        """Return the request that `fit` would run: for a frame if such a run was begun, else for the source."""
        from marginweave.checkpoints.run_folder import RunFolder
        from marginweave.runs.earlier import earlier_releases
        from marginweave.runs.request import Request

        configuration = self.configuration
        folder = RunFolder.at(self._home, f"{configuration.default_run}{_OF_FRAME}")
        if folder.read_manifest() is None:
            folder = RunFolder.at(self._home, configuration.default_run)
        file = Path(self.config) if isinstance(self.config, str | Path) else None
        return Request(
            path=file or folder.internal / "configuration.yaml",
            below=self._below,
            configuration=configuration,
            folder=folder,
            source=configuration.source.file,
            earlier=earlier_releases(configuration.earlier, configuration),
        )

    def fit(self, data: Any, y: object = None, *, run: str | None = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Release a table, in this process and without Prefect: the stages of the flow, the same files, ledger and checkpoints.

        `data` is a frame of pandas or Polars, an Arrow table, or the path of a table that `marginweave run` could read. Where
        the configuration has linked tables it is a mapping of names to frames, with one name more: of the source. The run
        of a frame is called `<dataset>-<hash of the configuration>-frame`; a path's run has the command line's name.
        `run` names the run: a separate release, charged even if a file with the same rows has a release.
        A run that was stopped, also by Ctrl-C, is resumed by the same call. `y` is ignored, as pipelines of scikit-learn ask.

        DP: (epsilon, delta) of the configuration, charged to the account of the dataset.

        Raises:
            InputError: the table lacks a declared column, breaks a declared rule, or is not usable as declared; or a release
                has to be approved first.
            BudgetError: there is no ledger or account, or not enough budget.
            StageError: the run is in progress, in another process or another thread.
        """
        must_be("run", run, (str, type(None)), 'fit(table, run="visits-2")')
        configuration = self.configuration
        if configuration.publish.approval is not None:
            raise InputError(
                "publish.approval (required) keeps a release from a notebook; use marginweave run and approve"
            )
        from marginweave.base.durable import PRIVATE_MODE, replace_file
        from marginweave.checkpoints.run_folder import RunFolder
        from marginweave.inference.opened import Release
        from marginweave.runs.lookup import run_lock
        from marginweave.runs.preparation import attended

        is_path = isinstance(data, str | Path)
        tables = None
        if not is_path:
            from marginweave.runs.frame_tables import frame_tables  # pyarrow

            tables = frame_tables(data, configuration)
        name = run or f"{configuration.default_run}{'' if is_path else _OF_FRAME}"
        folder = RunFolder.at(self._home, name)
        stopped: OperatorError | KeyboardInterrupt | None = None
        with run_lock(folder), ExitStack() as files:
            folder.create_internal()
            config = folder.internal / "configuration.yaml"
            replace_file(config, _configuration_file(configuration), PRIVATE_MODE)
            source = str(data)
            linked: Mapping[str, str] = {}
            if tables is not None:
                source, linked = _files_of(tables, folder.internal, files)
            try:
                with attended(frame=None if tables is None else tables.frame):
                    self._release = Release(self._run(config, source, folder.run, linked))
            except (OperatorError, KeyboardInterrupt) as stop:
                stopped = stop
        # Raised here, so that the traceback has no frame of a stage.
        if isinstance(stopped, KeyboardInterrupt):
            raise KeyboardInterrupt(_INTERRUPTED)
        if stopped is not None:
            raise InputError(stopped.in_python)
        return self

    def sample(
        self,
        n: int | None = None,
        seed: int | None = None,
        where: Mapping[str, Any] | None = None,
        table: str | None = None,
        **unknown: object,
    ) -> pd.DataFrame:
        """Return synthetic records of the release (`Release.sample`): in the dtypes of the frame, free of charge.

        Raises:
            NotFittedError: `fit` was not called.
            InputError: as `Release.sample`.
        """
        return self.release.sample(n, seed, where, table, **unknown)

    @property
    def release(self) -> Release:
        """Release that `fit` has made or found.

        Raises:
            NotFittedError: `fit` was not called.
        """
        if self._release is None:
            raise NotFittedError("fit must be called before a release can be used")
        return self._release

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a release."""
        return self._release is not None

    def __repr__(self) -> str:
        configuration = self.configuration
        privacy = configuration.privacy
        release = "not fitted" if self._release is None else str(self._release.place)
        return f"Synthesizer({configuration.dataset}, epsilon {privacy.epsilon:g}, delta {privacy.delta:g}: {release})"

    def _run(self, config: Path, source: str, run: str, linked: Mapping[str, str]) -> Path:
        from marginweave.released.manifest import RunState
        from marginweave.runs.lookup import place_of_files
        from marginweave.runs.preparation import internal_evaluation_due, prepare_run
        from marginweave.runs.request import read_request
        from marginweave.runs.unchanged import unchanged_since

        request = read_request(
            config, run=run, source=source, home=self._home, below=self._below, linked=linked
        )
        earlier = unchanged_since(request)
        if earlier is not None:
            return self._place_of_earlier(earlier)
        reference, state = prepare_run(request)
        if state == RunState.RUNNING or internal_evaluation_due(reference):
            self._release_now(request, reference)
        else:
            self._say(_ending(request.folder, "Already released", "nothing"))
        return place_of_files(request.folder)

    def _place_of_earlier(self, earlier: str) -> Path:
        """Return the files of the run that has released the same frame before, where `unchanged: skip` is declared."""
        from marginweave.checkpoints.run_folder import RunFolder
        from marginweave.runs.lookup import place_of_files

        folder = RunFolder.at(self._home, earlier)
        if folder.read_manifest() is None:
            raise InputError(
                f"run {earlier} has released this table already, in another home: give that home, as in "
                f'Synthesizer(config, home="FOLDER"), or leave `unchanged: skip` out of the configuration'
            )
        self._say(_ending(folder, f"Already released as run {earlier}", "nothing"))
        return place_of_files(folder)

    def _release_now(self, request: Request, reference: RunReference) -> None:
        """Run the stages and say what `marginweave run` says; warn of repeated ids only at a terminal."""
        from marginweave.ledger.boxes import account_sums
        from marginweave.runs.bookkeeping import is_charged, tell_of_other_bytes
        from marginweave.runs.lookup import place_of_files, record_stop_reason
        from marginweave.runs.progress import reporting
        from marginweave.runs.published import next_words, outcome_lines, released_verdict

        folder = request.folder
        privacy = request.configuration.privacy
        for line in self._id_warnings(request):
            self._say(line)
        with reporting(self._reporter()) as reporter, record_stop_reason(folder):
            from .stages import run_in_process

            run_in_process(request, reference)
        tell_of_other_bytes(reference, self._say)
        place = place_of_files(folder)
        charged = "nothing"
        if is_charged(reference, reporter.lease):
            charged = f"epsilon {privacy.epsilon:g} and delta {privacy.delta:g}"
        self._say(_ending(folder, "Released", charged))
        account = account_sums(reference.ledger.accounts.total(request.configuration.dataset))
        verdict = released_verdict(place)
        for line in outcome_lines(account, verdict):
            self._say(line.text)
        if place == folder.release:
            self._say(next_words(folder.run, place / "report.html", verdict))

    def _id_warnings(self, request: Request) -> tuple[str, ...]:
        """Return warnings of ids that repeat; none if nobody watches at a terminal."""
        if not (self.verbose and sys.stderr.isatty()):
            return ()
        from .check.table import id_warnings

        return tuple(id_warnings(request))

    def _reporter(self) -> Reporter:
        """Return a progress bar for a terminal or a notebook that can show one, else lines; no output if not `verbose`."""
        from marginweave.runs.progress import LogReporter, Reporter, TerminalReporter, bar_console

        if not self.verbose:
            return Reporter()
        console = bar_console()
        return LogReporter(self._say) if console is None else TerminalReporter(console)

    def _say(self, text: str) -> None:
        if self.verbose:
            sys.stderr.write(f"{printable(text)}\n")


def _configuration_file(configuration: Configuration) -> bytes:
    """Return as a file, in JSON, which is YAML, what the user wrote, plus execution settings that are not the defaults."""
    execution = configuration.execution.model_dump(mode="json", exclude_defaults=True)
    written = with_folders(mapping_of(configuration.written), configuration.earlier)
    return json.dumps({**written, **execution}, ensure_ascii=False).encode()


@contextmanager
def _unnamed(content: bytes, link: Path) -> Iterator[Path]:
    """Write `content` to a file without a name, which the kernel removes with this process, however it ends.

    `link` is a link to the file while the process lives, and to nothing afterwards.
    """
    from marginweave.base.durable import at_place

    with ExitStack() as files:
        with at_place(link, "written"):
            rows = files.enter_context(tempfile.TemporaryFile(dir=link.parent))
            rows.write(content)
            rows.flush()
            link.unlink(missing_ok=True)
            link.symlink_to(f"/proc/{os.getpid()}/fd/{rows.fileno()}")
        try:
            yield link
        finally:
            link.unlink(missing_ok=True)


def _files_of(tables: FrameTables, folder: Path, files: ExitStack) -> tuple[str, dict[str, str]]:
    """Return the places of the tables in files that end with `files`: of the source, and of linked tables by their names."""
    source = files.enter_context(_unnamed(tables.root, folder / FRAME))
    linked = {
        name: str(files.enter_context(_unnamed(content, folder / f"{_LINKED}{name}.parquet")))
        for name, content in tables.linked.items()
    }
    return str(source), linked


def _ending(folder: RunFolder, done: str, charged: str) -> str:
    """Return a sentence on the place of a run's files, which are `done`, or which await approval."""
    from marginweave.runs.lookup import place_of_files, what_to_do

    place = place_of_files(folder)
    if place != folder.release:
        return f"Awaiting approval, {charged} charged, nothing is published yet: {place}. Then {what_to_do(folder.run)}"
    return f"{done}, {charged} charged: {place}"
