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
    """Hears what begins and ends. This one shows nothing: in notebooks and workers Prefect's own pages show the stages."""

    def begin(self, stages: int) -> None:
        """A run of so many stages begins."""

    def attempt(self, lease: str) -> None:
        """The run continues under `lease`, which every draw that it begins will carry in the ledger."""

    def note(self, text: str) -> None:
        """Something that the operator should know; public facts alone."""

    def started(self, stage: str) -> None:
        """A stage begins."""

    def finished(self, stage: str, charged: tuple[str, ...]) -> None:
        """A stage ended; `charged` names the draws that it was charged for."""

    def end(self) -> None:
        """The run is over, one way or another."""


class CommandReporter(Reporter):
    """Of the command line, which asks at the end for the lease that the run continued under."""

    lease: str | None = None

    def attempt(self, lease: str) -> None:
        """Keep the lease for the summary."""
        self.lease = lease


class LineReporter(CommandReporter):
    """One JSON line a stage, for pipelines; without clock or duration, so that two runs print the same."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def note(self, text: str) -> None:
        """Print it."""
        self._print({"event": "note", "text": text})

    def finished(self, stage: str, charged: tuple[str, ...]) -> None:
        """Print the stage and its charges."""
        self._print({"event": "stage", "stage": stage, "charged": list(charged)})

    def _print(self, line: dict[str, object]) -> None:
        with suppress(OSError):  # nobody listens any more: no reason to stop a release
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()


class TerminalReporter(CommandReporter):
    """A progress bar over the stages."""

    def __init__(self, console: Console) -> None:
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


_REPORTER: ContextVar[Reporter] = ContextVar("reporter", default=Reporter())  # noqa: B039 - it has no state


def reporter() -> Reporter:
    """The reporter of this run."""
    return _REPORTER.get()


@contextmanager
def reporting(console: Console | None) -> Iterator[CommandReporter]:
    """Report on `console` if it is a terminal, else in JSON lines on standard output."""
    chosen = TerminalReporter(console) if console and console.is_terminal else LineReporter(sys.stdout)
    token = _REPORTER.set(chosen)
    try:
        yield chosen
    finally:
        chosen.end()
        _REPORTER.reset(token)
