"""Parts of a table on the workers of a Dask cluster: over TLS, or inside this machine.

The data that a worker receives and returns are private: paths of blocks, the keys that open them, exact counts. None of them is
in a key, a name or a log of Dask: tasks are numbered, their values have no representation, and a failure is reported by its
kind and place, as everywhere (`tasks.stage.quiet`). A worker that dies is replaced and its parts are repeated; the result of a
part is taken once, whatever happened to it.
"""

from __future__ import annotations

import logging
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import dask.config
from distributed import Client, KilledWorker, LocalCluster, Security
from distributed.comm.core import CommClosedError

from marginweave.base.errors import MachineError, MarginweaveError, StageError, place_of
from marginweave.base.parallel import available_cores, in_order
from marginweave.checkpoints.spill import scratch_folder
from marginweave.configuration.execution import LOCAL, EngineSettings
from marginweave.draws.program import program_identity

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE = 30.0  # seconds
# Seconds to wait for a result before checking that there is a worker at all, and seconds for which there may be none.
_LOOK = 1.0
_DESERTED = 60.0
# Nothing about a run is served: no dashboard, no page, no metrics; and nothing is written to disk.
_SILENT = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


@dataclass(frozen=True, repr=False)
class _Hidden(Generic[T]):
    """A value without a representation: Dask writes the arguments of a failed call into its log."""

    value: T


@dataclass(frozen=True)
class _Fault:
    """A failure on a worker, without its data."""

    kind: type[MarginweaveError]
    text: str


@dataclass(frozen=True)
class DaskEngine:
    """An `Engine` on a Dask cluster; `cores` are those of all workers."""

    client: Any  # a Client: by its annotations, any answer may be a coroutine
    cores: int

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """Yield the results of the parts, as `Engine.map` does.

        Raises:
            StageError, MachineError: the function failed; the workers that a part was given to died one after the other; or
                there is no worker left for a minute, or no scheduler.
        """
        name = f"marginweave-{secrets.token_hex(8)}"
        # A task, not scattered data: the value of a dead worker is made again. Never hashed: a hash would reveal data.
        hidden = self._submit(f"{name}-function", _hold, _Hidden(function))

        def submit(numbered: tuple[int, T]) -> Callable[[], R]:
            number, part = numbered
            future = self._submit(f"{name}-{number}", _apply, hidden, _Hidden(part), _code())
            return lambda: _taken(self.client, future)

        yield from in_order(submit, list(enumerate(parts)), 2 * self.cores)

    def _submit(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the function is large
            return self.client.submit(function, *arguments, key=key, pure=False)


@contextmanager
def dask_engine(
    settings: EngineSettings,
    certificates: Sequence[Path],
    private: Path,
) -> Iterator[DaskEngine]:
    """Yield the engine of the cluster that the settings name; a cluster of this machine lives as long as the engine.

    Args:
        settings: with `dask`.
        certificates: files of the authority, of our certificate, and of its key, where the scheduler is encrypted.
        private: the run's private folder.

    Raises:
        StageError: there is no scheduler, or no worker.
        MachineError: those of this machine do not start.
    """
    assert settings.dask is not None
    _silence()
    if settings.dask == LOCAL:
        with (
            _local_cluster(private) as cluster,
            _engine(cluster.scheduler_address, cluster.security) as engine,
        ):
            yield engine
    else:
        security = Security(require_encryption=False)
        if settings.encrypted:
            ca, cert, key = map(str, certificates)
            security = Security(
                require_encryption=True,
                tls_ca_file=ca,
                tls_client_cert=cert,
                tls_client_key=key,
            )
        with _engine(settings.dask, security) as engine:
            yield engine


def check_workers(engine: DaskEngine) -> None:
    """Refuse a cluster without a worker, or with a worker of another version, before anything is counted.

    Raises:
        StageError: names the version that every worker must have.
    """
    expected = _code()
    programs = engine.client.run(_code, on_error="return").values()
    if any(program != expected for program in programs):
        raise StageError(f"engine: every worker must have marginweave {expected}")


def _silence() -> None:
    """Turn off Dask's log in this process: whatever matters is raised."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.split(".")[0] == "distributed" and isinstance(logger, logging.Logger):
            logger.disabled = True


@contextmanager
def _local_cluster(private: Path) -> Iterator[LocalCluster]:
    """Start a process for every core, over TLS with temporary certificates: other users of the machine are kept out."""
    with (
        scratch_folder(private) as scratch,
        # the scheduler has no argument for its folder
        dask.config.set({**_SILENT, "temporary-directory": str(scratch)}),
        _started(scratch) as cluster,
    ):
        yield cluster  # pyright: ignore[reportReturnType] - annotated as a coroutine too


def _started(scratch: Path) -> LocalCluster:
    """Start the processes; raises MachineError if they are killed, or have no memory, while they start."""
    start = partial(
        LocalCluster,
        n_workers=available_cores(),
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        protocol="tls",
        security=Security.temporary(),
        dashboard_address=None,  # pyright: ignore[reportArgumentType] - annotated as a text, and may be None
        # the scheduler opens a port even without a page, by default one that may be taken
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        memory_limit=0,
        local_directory=str(scratch),
        silence_logs=logging.CRITICAL,
    )
    return _attempt(start, MachineError, "the workers of this machine do not start")


@contextmanager
def _engine(address: str, security: Security) -> Iterator[DaskEngine]:
    connect = partial(
        Client,
        address,
        security=security,
        timeout=_PATIENCE,
        set_as_default=False,
    )
    client: Any = _attempt(connect, StageError, f"the scheduler at {address} cannot be reached")
    try:
        _attempt(
            partial(client.wait_for_workers, 1, timeout=_PATIENCE),
            StageError,
            "the scheduler has no worker",
        )
        yield DaskEngine(client, max(1, sum(client.nthreads().values())))
    finally:
        # this may fail too if the scheduler is lost: finished results are already taken, and others raise their own error
        with suppress(Exception):
            client.close()


def _attempt(
    call: Callable[[], R],
    kind: type[MarginweaveError],
    text: str,
) -> R:
    """Return the result of `call`; a failure is raised as `kind`, and Dask's exception is not even its context."""
    try:
        return call()
    except Exception as error:
        fault = f"engine: {text} ({type(error).__name__})"
    raise kind(fault)


def _taken(client: Client, future: Any) -> Any:
    """Return the result of a task, and release it; a fault is raised here."""
    try:
        result = _awaited(client, future)
    except KilledWorker:
        result = _Fault(
            MachineError, "engine: workers died one after the other over the same part of the work"
        )
    except Exception as error:
        result = _Fault(StageError, f"engine: a worker cannot do its work ({type(error).__name__})")
        # the client notices a moment after its connection is lost
        if isinstance(error, CommClosedError) or client.status != "running":
            result = _Fault(MachineError, "engine: the scheduler is lost")
    finally:
        future.release()
    if isinstance(result, _Fault):
        raise result.kind(result.text)
    return result.value


def _awaited(client: Client, future: Any) -> Any:
    """Return the result of a task, or a fault where there is no worker to compute it and none comes back for a while.

    The wait for a finished result is longer than `_LOOK`: its counts have to come over the network.
    """
    deserted = 0.0
    while deserted < _DESERTED:
        with suppress(TimeoutError):
            return future.result(timeout=_DESERTED if future.done() else _LOOK)
        deserted = 0.0 if client.nthreads() else deserted + _LOOK
    return _Fault(
        MachineError, f"engine: the scheduler has had no worker for {_DESERTED:.0f} seconds"
    )


def _hold(function: _Hidden[Callable[[T], R]]) -> _Hidden[Callable[[T], R]]:
    return function


def _apply(
    function: _Hidden[Callable[[T], R]],
    part: _Hidden[T],
    version: str,
) -> _Hidden[R] | _Fault:
    """Apply the function on a worker, which must run the client's `version`: other code may count in another way.

    No exception is raised, for Dask would log it with its text.
    """
    if _code() != version:
        return _Fault(StageError, f"engine: every worker must have marginweave {version}")
    try:
        return _Hidden(function.value(part.value))
    except MarginweaveError as error:
        return _Fault(MachineError if isinstance(error, MachineError) else StageError, str(error))
    except Exception as error:
        kind = MachineError if isinstance(error, OSError) else StageError
        return _Fault(kind, f"{type(error).__name__} at {place_of(error)}, on a worker")


def _code() -> str:
    """Return the program of this process, which must be that of all workers."""
    return program_identity().digest
