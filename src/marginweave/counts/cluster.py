"""Parts of a table on the workers of a Dask cluster: over TLS, or inside this machine.

What a worker is sent and gives back is private: paths of blocks, the keys that open them, exact counts. Nothing of it stands in
a key, a name or a log of Dask: tasks are numbered, what they hold does not show itself, and what fails is reported by its kind
and place, as everywhere (`tasks.stage.quiet`). A worker that dies is replaced, its parts are worked on again, and a part's
result is taken once whatever happened to it.
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
# How long a result is waited for before it is asked whether there is a worker at all, and how long there may be none.
_LOOK, _DESERTED = 1.0, 60.0
# Nothing is served about what runs: no dashboard, no page, no metrics; and nothing is written to disk.
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
    """A value that does not show itself: Dask writes the arguments of what fails into its log."""

    value: T


@dataclass(frozen=True)
class _Fault:
    """What went wrong on a worker, without its data."""

    kind: type[MarginweaveError]
    text: str


@dataclass(frozen=True)
class DaskEngine:
    """See `Engine`; `cores` are those of all workers together."""

    client: Any  # a Client: by its annotations, whatever it answers may be a coroutine
    cores: int

    def map(self, function: Callable[[T], R], parts: Sequence[T]) -> Iterator[R]:
        """See `Engine`.

        Raises:
            StageError, MachineError: the function failed; the workers that a part was given to died one after the other; or
                there is no worker left for a minute, or no scheduler.
        """
        name = f"marginweave-{secrets.token_hex(8)}"
        # A task, not scattered data: what a dead worker held is made again. Never hashed: a hash would tell about the data.
        hidden = self._submit(f"{name}-function", _hold, _Hidden(function))

        def submit(numbered: tuple[int, T]) -> Callable[[], R]:
            number, part = numbered
            future = self._submit(f"{name}-{number}", _apply, hidden, _Hidden(part), _code())
            return lambda: _taken(self.client, future)

        yield from in_order(submit, list(enumerate(parts)), 2 * self.cores)

    def _submit(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the function is large
            return self.client.submit(function, *arguments, key=key, pure=False)


@contextmanager
def dask_engine(settings: EngineSettings, certificates: Sequence[Path], private: Path) -> Iterator[DaskEngine]:
    """The engine of the cluster that the settings name; one of this machine lives as long as the engine.

    Args:
        settings: `dask` is given.
        certificates: files of the authority, of our certificate, and of its key, where the scheduler is encrypted.
        private: the run's private folder.

    Raises:
        StageError: there is no scheduler, or no worker.
        MachineError: those of this machine do not start.
    """
    assert settings.dask is not None
    _silence()
    if settings.dask == LOCAL:
        with _local_cluster(private) as cluster, _engine(cluster.scheduler_address, cluster.security) as engine:
            yield engine
    else:
        security = Security(require_encryption=False)
        if settings.encrypted:
            ca, cert, key = map(str, certificates)
            security = Security(require_encryption=True, tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key)
        with _engine(settings.dask, security) as engine:
            yield engine


def check_workers(engine: DaskEngine) -> None:
    """Refuse a cluster of which a worker runs another version, or none, before anything is counted.

    Raises:
        StageError: names the version that every worker must have.
    """
    expected = _code()
    if any(found != expected for found in engine.client.run(_code, on_error="return").values()):
        raise StageError(f"engine: every worker must have marginweave {expected}")


def _silence() -> None:
    """Let Dask's own log in this process tell of nothing: what matters is raised."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.split(".")[0] == "distributed" and isinstance(logger, logging.Logger):
            logger.disabled = True


@contextmanager
def _local_cluster(private: Path) -> Iterator[LocalCluster]:
    """A process for every core, over TLS with certificates of the moment: other users of the machine are kept out."""
    with (
        scratch_folder(private) as scratch,
        # the scheduler has no argument for its folder
        dask.config.set({**_SILENT, "temporary-directory": str(scratch)}),
        _started(scratch) as cluster,
    ):
        yield cluster  # pyright: ignore[reportReturnType] - annotated as a coroutine too


def _started(scratch: Path) -> LocalCluster:
    """The processes, which may be killed, or find no memory, while they start: raises MachineError."""
    start = partial(
        LocalCluster,
        n_workers=available_cores(),
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        protocol="tls",
        security=Security.temporary(),
        dashboard_address=None,  # pyright: ignore[reportArgumentType] - annotated as a text, and may be None
        # all the same the scheduler opens a port without a page, by default one that may be taken
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        memory_limit=0,
        local_directory=str(scratch),
        silence_logs=logging.CRITICAL,
    )
    return _attempt(start, MachineError, "the workers of this machine do not start")


@contextmanager
def _engine(address: str, security: Security) -> Iterator[DaskEngine]:
    connect = partial(Client, address, security=security, timeout=_PATIENCE, set_as_default=False)
    client: Any = _attempt(connect, StageError, f"the scheduler at {address} cannot be reached")
    try:
        _attempt(partial(client.wait_for_workers, 1, timeout=_PATIENCE), StageError, "the scheduler has no worker")
        yield DaskEngine(client, max(1, sum(client.nthreads().values())))
    finally:
        # where the scheduler is lost this may fail too: what it has done is taken, and the rest has an error of its own
        with suppress(Exception):
            client.close()


def _attempt(call: Callable[[], R], kind: type[MarginweaveError], text: str) -> R:
    """What `call` returns; a failure is raised as `kind`, and what Dask has raised is not even its context."""
    try:
        return call()
    except Exception as error:
        fault = f"engine: {text} ({type(error).__name__})"
    raise kind(fault)


def _taken(client: Client, future: Any) -> Any:
    """The result of a task, which is then let go; a fault is raised here."""
    try:
        result = _awaited(client, future)
    except KilledWorker:
        result = _Fault(MachineError, "engine: workers died one after the other over the same part of the work")
    except Exception as error:
        result = _Fault(StageError, f"engine: a worker cannot do its work ({type(error).__name__})")
        # the client notices a moment after its connection has gone
        if isinstance(error, CommClosedError) or client.status != "running":
            result = _Fault(MachineError, "engine: the scheduler is lost")
    finally:
        future.release()
    if isinstance(result, _Fault):
        raise result.kind(result.text)
    return result.value


def _awaited(client: Client, future: Any) -> Any:
    """The result of a task, or a fault where no worker is there to make it and none comes back for a while.

    A result that is there is waited for longer than for a look: its counts have to come over the network.
    """
    deserted = 0.0
    while deserted < _DESERTED:
        with suppress(TimeoutError):
            return future.result(timeout=_DESERTED if future.done() else _LOOK)
        deserted = 0.0 if client.nthreads() else deserted + _LOOK
    return _Fault(MachineError, f"engine: the scheduler has had no worker for {_DESERTED:.0f} seconds")


def _hold(function: _Hidden[Callable[[T], R]]) -> _Hidden[Callable[[T], R]]:
    return function


def _apply(function: _Hidden[Callable[[T], R]], part: _Hidden[T], version: str) -> _Hidden[R] | _Fault:
    """On a worker, which must run the client's `version`: other code may count in another way.

    No exception leaves, for Dask would log it with its text.
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
    """The program of this process, which must be that of all workers."""
    return program_identity().digest
