"""The notebook interface: `Synthesizer(config).fit(frame).sample(n)`, under the same ledger as everything else."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.flows.orchestration.environment import home_directory
from marginweave.flows.orchestration.session import prefect_session
from marginweave.flows.run.lookup import run_lock
from marginweave.flows.run.preparation import attended
from marginweave.flows.run.request import default_run, read_request
from marginweave.schemas.configuration.columns import DateColumn, NumberColumn
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.synthesis import MAX_RECORDS
from marginweave.schemas.configuration.yaml_source import mapping_of
from marginweave.schemas.errors import InputError, OperatorError
from marginweave.tasks.accounting.plan.resolve import load_configuration, parse_configuration
from marginweave.tasks.arrow import schema_types
from marginweave.tasks.checkpoint.files import PRIVATE_MODE, at_place, replace_file
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.publish.reader import PublishedRelease


class Synthesizer:
    """Releases a data frame and samples from the release.

    `config` is a path, a mapping with the keys of the file, or a Configuration; its `source` is not read. `fit` charges the
    dataset's account once: the same frame and configuration again find the finished release.
    """

    def __init__(self, config: str | Path | Mapping[str, Any] | Configuration, home: str | Path | None = None) -> None:
        if isinstance(config, Configuration):
            self.configuration = config
        elif isinstance(config, Mapping):
            self.configuration = parse_configuration(dict(config))
        else:
            self.configuration = load_configuration(Path(config))
        self._home = home_directory(Path(home) if home is not None else None, os.environ)
        self._release: PublishedRelease | None = None

    def fit(self, frame: pd.DataFrame, run: str | None = None) -> Self:
        """Release `frame`: the whole flow, with a Prefect server of its own.

        The run is called `<dataset>-<hash of the configuration>-frame` unless `run` names it: a release of its own, charged
        even where a file with the same rows was released before.

        DP: (epsilon, delta) of the configuration, charged to the account of the dataset.

        Raises:
            InputError: the frame lacks a declared column, breaks a declared rule, or is not usable as declared; or a release
                has to be approved first.
            BudgetError: there is no ledger or account, or not enough budget.
            StageError: the run is in progress, in another process or another thread.
        """
        if self.configuration.publish.approval is not None:
            raise InputError(
                "publish.approval (required) keeps a release from a notebook; use marginweave run and approve"
            )
        content = _parquet(frame, self.configuration)
        types = frame_types(frame, self.configuration.output_names)
        folder = RunFolder.at(self._home, run or default_run(self.configuration, self._home, "-frame"))
        stopped: OperatorError | None = None
        with run_lock(folder):
            folder.create_internal()
            config = folder.internal / "configuration.yaml"
            replace_file(config, _file_of(self.configuration), PRIVATE_MODE)
            with _unnamed(content, folder.internal / "frame.parquet") as source:
                try:
                    with attended(types=types):
                        self._release = PublishedRelease.read(self._run(config, source, folder.run))
                except OperatorError as stop:
                    stopped = stop
        if stopped is not None:
            raise InputError(stopped.detail)
        return self

    def sample(self, n: int | None = None, seed: int | None = None) -> pd.DataFrame:
        """`n` synthetic records (the protected record count by default), in the dtypes of the frame.

        No dtype depends on what is drawn: a column of int64 or bool that can be missing is Int64 or boolean. DP:
        post-processing, free of charge.

        Raises:
            InputError: `fit` was not called, or `n` is negative.
        """
        release = self.release
        if n is not None and not 0 <= n <= MAX_RECORDS:
            raise InputError(f"n ({n}) must lie in [0, {MAX_RECORDS}]")
        frame: pd.DataFrame = pa.concat_tables(release.synthesize(release.settings(n, seed))).to_pandas()
        return frame

    @property
    def release(self) -> PublishedRelease:
        """The published counts and the privacy statement.

        Raises:
            InputError: `fit` was not called.
        """
        if self._release is None:
            raise InputError("fit must be called before a release can be used")
        return self._release

    def _run(self, config: Path, source: Path, run: str | None) -> Path:
        request = read_request(config, run=run, source=str(source), home=self._home)
        with prefect_session(self._home, request.folder.internal):
            from marginweave.flows import release

            return Path(release(str(config), request.folder.run, str(source), str(self._home)))


def _file_of(configuration: Configuration) -> bytes:
    """A configuration file that says what the user wrote; JSON is YAML."""
    execution = configuration.execution.model_dump(mode="json", exclude_defaults=True)
    return json.dumps({**mapping_of(configuration.written), **execution}, ensure_ascii=False).encode()


@contextmanager
def _unnamed(content: bytes, link: Path) -> Iterator[Path]:
    """`content` in a file without a name, which the kernel removes with this process, however it ends.

    `link` leads there as long as the process lives, and to nothing afterwards.
    """
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


def _parquet(frame: pd.DataFrame, configuration: Configuration) -> bytes:
    """The declared columns as Parquet: numbers and dates as they are, everything else as text."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError("fit takes a pandas DataFrame")
    repeated = [name for name in configuration.source_names if list(frame.columns).count(name) > 1]
    if repeated:
        raise InputError(f"the frame has the column {', '.join(map(repr, repeated))} more than once")
    absent = [name for name in configuration.source_names if name not in frame.columns]
    if absent:
        raise InputError(f"the frame lacks the declared column {', '.join(map(repr, absent))}")
    natives = {name: _NATIVE.get(type(configuration.columns[name]), "") for name in configuration.source_names}
    arrays = {name: _array(frame[name], native) for name, native in natives.items()}
    unusable = next((name for name, array in arrays.items() if array is None), None)
    if unusable is not None:
        raise InputError(f"the frame has the column {unusable!r} with values that are neither text nor number")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), sink)
    return bytes(sink.getvalue())


def frame_types(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, str]:
    """The types of the columns that a data frame has, from its dtypes, as `schema_types`; `object` is none."""
    found: dict[str, str] = {}
    for name in names:
        with suppress(KeyError, pa.ArrowException):
            found |= schema_types(pa.Schema.from_pandas(frame.loc[:, [name]].iloc[:0], preserve_index=False), [name])
    return found


_NATIVE: dict[type[Any], str] = {NumberColumn: "iuf", DateColumn: "M"}  # the kinds of dtypes that do not become texts


def _array(series: pd.Series[Any], native: str) -> pa.Array | None:
    """The cells of a column; None of what is neither text nor number: the library's error would quote the value."""
    try:
        return pa.array(series if series.dtype.kind in native else series.astype("string"), from_pandas=True)
    except (ValueError, TypeError, pa.ArrowException):
        return None
