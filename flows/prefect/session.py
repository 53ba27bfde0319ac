"""A Prefect session: a server on loopback, and a log file instead of console lines."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from marginweave.base.durable import at_place
from marginweave.base.errors import MarginweaveError, StageError
from marginweave.runs.home import service_directory
from marginweave.runs.process_hardening import closed_to_others

from .environment import prepare_environment
from .servers import LOG_ROOM, prefect_server


@contextmanager
def prefect_session(
    home: Path,
    log_folder: Path,
    port: int | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Run flows inside: analytics off, a server on loopback (with pages where a port is given), Prefect's log in `log_folder`.

    `meanwhile` is called while a server of ours starts.

    Raises:
        MachineError: the disk refuses.
        StageError: the server does not start, or does not answer.
    """
    prepare_environment(home)
    for folder in (service_directory(home), log_folder):
        with at_place(folder, "created"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
    from httpx import HTTPError

    try:
        with (
            closed_to_others(),
            prefect_server(log_folder / "prefect-server.log", port, meanwhile) as url,
            _session(url, log_folder / "prefect.log"),
        ):
            yield
    except (RuntimeError, HTTPError) as error:
        if isinstance(error, RuntimeError) and "API" not in str(error):
            raise
    else:
        return
    raise StageError(
        "the Prefect API does not answer, or not as it should; is PREFECT_API_URL right?"
    )


@contextmanager
def _session(url: str, log: Path) -> Iterator[None]:
    """Set Prefect's settings for the server at `url`, and its log file; its errors never hide ours.

    Flow runs inside send signs of life only where PREFECT_FLOWS_HEARTBEAT_FREQUENCY says how often.
    """
    # Imported here, because Prefect reads its settings from the environment, which is ready only now.
    from httpx import HTTPError
    from prefect.events.worker import EventsWorker
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

    # Supervisors look at deployed flow runs alone, and a flow run that sends signs of life ends up to a second late.
    settings = temporary_settings(
        {PREFECT_API_URL: url}, set_defaults={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    )
    with settings, log_to(log):
        hidden: MarginweaveError | None = None
        try:
            yield
        except HTTPError as error:
            hidden = _hidden_by(error)
            if hidden is None:
                raise
        finally:
            # a worker that stays would look for this server in the next session
            EventsWorker.drain_all()
        if hidden is not None:
            raise hidden


def _hidden_by(error: BaseException) -> MarginweaveError | None:
    """Return our error that Prefect was recording when its server failed too, or None."""
    chained: BaseException | None = error
    while chained is not None:
        if isinstance(chained, MarginweaveError):
            return chained
        chained = chained.__cause__ or chained.__context__
    return None


# Prefect's, its workers' that send events and log lines (which have no prefix), and that of its event loop.
_LOGGERS = (
    *("prefect", "prefect.flow_runs", "prefect.task_runs", "prefect.server"),
    *("EventsWorker", "APILogWorker", "asyncio"),
)


class _PatientFileHandler(logging.handlers.RotatingFileHandler):
    """A log file that ignores errors of writing: a full disk stops no run, and its log error hides no error of the run."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Do nothing: if the run itself cannot write, its error says so."""

    def close(self) -> None:
        """Close, whether or not the last lines can be written."""
        with suppress(OSError):
            super().close()


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Send the lines that Prefect logs on the console to a file instead, inside this context."""
    import_module(
        "prefect.main"
    )  # its import sets the loggers up; a later one would take ours away
    with at_place(path, "written"):
        handler = _PatientFileHandler(path, encoding="utf-8", maxBytes=LOG_ROOM, backupCount=3)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    previous_states = [(logger, list(logger.handlers), logger.propagate) for logger in loggers]
    for logger in loggers:
        api_handlers = [h for h in logger.handlers if type(h).__name__ == "APILogHandler"]
        logger.handlers = [*api_handlers, handler]
        logger.propagate = False
    try:
        yield
    finally:
        for logger, handlers, propagate in previous_states:
            logger.handlers = handlers
            logger.propagate = propagate
        handler.close()
