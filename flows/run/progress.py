"""What an operator sees of a run: stage names and nothing that depends on the data."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text


class Reporter:
    """Prints one JSON line a stage, for pipelines; without clock or duration, so that two runs print the same.

    Without a stream it prints nothing: in notebooks and workers Prefect's own pages show the stages. The command line asks at
    the end for the lease that the run continued under.
    """

    lease: str | None = None

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def begin(self, stages: int) -> None:
        """A run of so many stages begins."""

    def attempt(self, lease: str) -> None:
        """The run continues under `lease`, which every draw that it begins will carry in the ledger."""
        self.lease = lease

    def note(self, text: str) -> None:
        """Print something that the operator should know; public facts alone."""
        self._print({"event": "note", "text": text})

    def started(self, stage: str) -> None:
        """A stage begins."""

    def finished(self, stage: str, charged: tuple[str, ...]) -> None:
        """Print a stage that ended, and the draws that it was charged for."""
        self._print({"event": "stage", "stage": stage, "charged": list(charged)})

    def end(self) -> None:
        """The run is over, one way or another."""

    def _print(self, line: dict[str, object]) -> None:
        if self._stream is not None:
            with suppress(OSError):  # nobody listens any more: no reason to stop a release
                self._stream.write(json.dumps(line) + "\n")
                self._stream.flush()


class TerminalReporter(Reporter):
    """A progress bar over the stages."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        columns = SpinnerColumn(), TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn()
        self._progress = Progress(*columns, console=console, transient=True)
        self._bar = self._progress.add_task("starting", total=None)
        self._progress.start()

    def begin(self, stages: int) -> None:
        """Show how many stages there are."""
        self._progress.update(self._bar, total=stages)

    def note(self, text: str) -> None:
        """Leave a line behind."""
        self._progress.console.print(Text(text, "dim"))

    def started(self, stage: str) -> None:
        """Show the stage's name."""
        self._progress.update(self._bar, description=stage)

    def finished(self, stage: str, charged: tuple[str, ...]) -> None:
        """Leave a line behind and go on."""
        spent = f" charged {', '.join(charged)}" if charged else ""
        self._progress.console.print(Text.assemble(("✓", "green"), f" {stage}", (spent, "dim")))
        self._progress.advance(self._bar)

    def end(self) -> None:
        """Remove the bar."""
        self._progress.stop()


_REPORTER: ContextVar[Reporter] = ContextVar("reporter")


def reporter() -> Reporter:
    """The reporter of this run, or one that prints nothing."""
    return _REPORTER.get(None) or Reporter()


@contextmanager
def reporting(console: Console | None) -> Iterator[Reporter]:
    """Report on `console` if it is a terminal, else in JSON lines on standard output."""
    chosen = TerminalReporter(console) if console and console.is_terminal else Reporter(sys.stdout)
    token = _REPORTER.set(chosen)
    try:
        yield chosen
    finally:
        chosen.end()
        _REPORTER.reset(token)
