"""A Prefect session of our own: environment, server, and a log file instead of console lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from marginweave.flows.environment import prepare_environment
from marginweave.flows.server import prefect_server
from marginweave.schemas.errors import StageError


@contextmanager
def prefect_session(home: Path, log_folder: Path) -> Iterator[None]:
    """Run flows inside: analytics off, a server on loopback, Prefect's own log in `log_folder`.

    Raises:
        StageError: the server does not start.
    """
    prepare_environment(home)
    log_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with prefect_server(log_folder / "prefect-server.log") as url:
        # Imported here: before, it would have read its settings from an environment that was not ready.
        from prefect.events.worker import EventsWorker
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings({PREFECT_API_URL: url}), _log_to(log_folder / "prefect.log"):
            try:
                yield
            except RuntimeError as error:
                unreachable = "API" in str(error)
                if not unreachable:
                    raise
            else:
                unreachable = False
            finally:
                EventsWorker.drain_all()  # a worker left over would look for this server in the next session
        if unreachable:
            raise StageError("the Prefect API does not answer; is PREFECT_API_URL right?")


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Send what Prefect logs on the console to a file for a while."""
    from prefect.logging.configuration import setup_logging

    setup_logging()
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    loggers = [
        logging.getLogger(name) for name in ("prefect", "prefect.flow_runs", "prefect.task_runs", "prefect.server")
    ]
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
