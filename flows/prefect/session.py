"""A Prefect session of our own: a server on loopback, and a log file instead of console lines."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from marginweave.base.durable import at_place
from marginweave.base.errors import MarginweaveError, StageError
from marginweave.runs.home import service_directory
from marginweave.runs.process_hardening import closed_to_others

from .environment import prepare_environment
from .servers import LOG_ROOM, prefect_server


@contextmanager
def prefect_session(home: Path, log_folder: Path, port: int | None = None) -> Iterator[None]:
    """Run flows inside: analytics off, a server on loopback (with pages where a port is given), Prefect's log in `log_folder`.

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
            prefect_server(log_folder / "prefect-server.log", port) as url,
            _session(url, log_folder / "prefect.log"),
        ):
            yield
    except (RuntimeError, HTTPError) as error:
        if isinstance(error, RuntimeError) and "API" not in str(error):
            raise
    else:
        return
    raise StageError("the Prefect API does not answer, or not as it should; is PREFECT_API_URL right?")


@contextmanager
def _session(url: str, log: Path) -> Iterator[None]:
    """Prefect's settings for the server at `url`, and its log in a file; its errors never stand before ours."""
    # Imported here: before, it would have read its settings from an environment that was not ready.
    from httpx import HTTPError
    from prefect.events.worker import EventsWorker
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: url}), log_to(log):
        hidden: MarginweaveError | None = None
        try:
            yield
        except HTTPError as error:
            hidden = _hidden_by(error)
            if hidden is None:
                raise
        finally:
            EventsWorker.drain_all()  # a worker left over would look for this server in the next session
        if hidden is not None:
            raise hidden


def _hidden_by(error: BaseException) -> MarginweaveError | None:
    """The error of ours that Prefect was about to write down when its server failed as well."""
    chained: BaseException | None = error
    while chained is not None:
        if isinstance(chained, MarginweaveError):
            return chained
        chained = chained.__cause__ or chained.__context__
    return None


class _PatientFileHandler(logging.handlers.RotatingFileHandler):
    """Writes what it can, and keeps the newest: a full disk stops no run, and hides no error of it behind its own."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Say nothing: what the run itself cannot write is in its error."""

    def close(self) -> None:
        """Close, whether or not the last lines can be written."""
        with suppress(OSError):
            super().close()


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Send what Prefect logs on the console to a file for a while."""
    from prefect.logging.configuration import setup_logging

    setup_logging()
    with at_place(path, "written"):
        handler = _PatientFileHandler(path, encoding="utf-8", maxBytes=LOG_ROOM, backupCount=3)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    names = "prefect", "prefect.flow_runs", "prefect.task_runs", "prefect.server", "asyncio"
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, list(logger.handlers), logger.propagate) for logger in loggers]
    for logger in loggers:
        kept = [h for h in logger.handlers if type(h).__name__ == "APILogHandler"]
        logger.handlers = [*kept, handler]
        logger.propagate = False
    try:
        yield
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()
