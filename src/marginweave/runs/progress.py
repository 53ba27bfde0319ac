"""Progress of a run for its operator: stage names, and nothing that depends on the data."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

from marginweave.base.errors import BudgetError, MarginweaveError
from marginweave.base.interruption import INTERRUPTION, Stopped
from marginweave.base.progress import LISTENER
from marginweave.runs.stopping import UNFINISHED

if TYPE_CHECKING:
    from rich.console import Console

_FIRST = 2.0  # seconds after which a stage logs its progress for the first time
_NEXT = 10.0  # seconds between two such lines


class Ending(StrEnum):
    """The ways in which an attempt at a release ends, for pipelines and monitors."""

    FINISHED = "finished"
    REFUSED = "refused"
    STOPPED = "stopped"
    FAILED = "failed"

    @classmethod
    def of(cls, error: BaseException) -> Ending:
        """Return the ending for an error: stopped by a signal, refused by the ledger, or failed.

        After a signal any error is a stop: a library may have turned `Stopped` into an error of its class.
        """
        if isinstance(error, Stopped) or INTERRUPTION.asked is not None:
            return cls.STOPPED
        return cls.REFUSED if isinstance(error, BudgetError) else cls.FAILED


class Reporter:
    """Reports the progress of a run. This base class prints nothing."""

    lease: str | None = None
    _stage = ""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._due = self._begun + _FIRST

    def begin(self, stages: int) -> None:
        """Report that a run of `stages` stages begins."""

    def attempt(self, lease: str) -> None:
        """Remember that the run continues under `lease`, which every draw that it begins carries in the ledger."""
        self.lease = lease

    def note(self, text: str) -> None:
        """Report something that the operator should know; public facts alone."""

    def started(self, stage: str) -> None:
        """Report that a stage begins."""
        self._stage = stage
        self._begun = time.monotonic()
        self._due = self._begun + _FIRST

    def advanced(self, text: str) -> None:
        """Take the progress of the current stage, from any of its threads, and report it from time to time."""
        moment = time.monotonic()
        if moment >= self._due:
            self._due = moment + _NEXT
            self.progress(text, moment - self._begun)

    def progress(self, text: str, seconds: float) -> None:
        """Report how far the current stage is after `seconds`."""

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """Report that a stage ended; `charged` names the draws that it was charged for."""

    def stopped(self, error: BaseException) -> None:
        """Report that the run ends with an error, before all of its stages have ended."""

    def published(self, release: str, *, is_waiting: bool) -> None:
        """Report that the run ends well, with the place of its release, or that the release awaits approval."""

    def skipped(self, reason: str) -> None:
        """Report that nothing was done, with the file that says why, for the operator alone."""

    def end(self) -> None:
        """Report that the run is over, whether it ended well or not."""


class LineReporter(Reporter):
    """Prints a JSON line for each event, for pipelines; `time` is UTC."""

    def __init__(self, stream: TextIO, run: str, dataset: str) -> None:
        super().__init__()
        self._stream = stream
        self._run = run
        self._dataset = dataset

    def note(self, text: str) -> None:
        """Print the note."""
        self.line("note", text=text)

    def progress(self, text: str, seconds: float) -> None:
        """Print how far the current stage is."""
        self.line("progress", stage=self._stage, text=text, seconds=round(seconds, 3))

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """Print the stage, its time and its charges."""
        self.line("stage", stage=stage, seconds=round(seconds, 3), charged=charged)

    def stopped(self, error: BaseException) -> None:
        """Print the last stage and the kind of error; text that depends on the data goes to standard error alone."""
        # of an `OperatorError` this leaves out its detail
        message = str(error) if isinstance(error, MarginweaveError) else ""
        self.line(Ending.of(error), stage=self._stage, error=type(error).__name__, message=message)

    def published(self, release: str, *, is_waiting: bool) -> None:
        """Print the place of the release."""
        self.line("awaiting approval" if is_waiting else "finished", release=release)

    def skipped(self, reason: str) -> None:
        """Print the file."""
        self.line("skipped", reason=reason, charged_now=False)

    def line(self, event: str, **facts: object) -> None:
        """Print one line."""
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "event": event, "run": self._run, "dataset": self._dataset, **facts}
        with suppress(OSError):  # nobody reads the lines any more: no reason to stop a release
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()


class LogReporter(Reporter):
    """Gives lines to `say`: Prefect's log of the flow run, where a worker has started it, or standard error of a notebook."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def note(self, text: str) -> None:
        """Say the note."""
        self._say(text)

    def progress(self, text: str, seconds: float) -> None:
        """Say how far the current stage is."""
        self._say(f"{self._stage}: {text}, {seconds:.0f} s so far")

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """Say the stage and its charges."""
        self._say(f"{stage}: {seconds:.1f} s{_charges(charged)}")


class ServiceReporter(LogReporter):
    """Prints lines that begin with the run's name: for `marginweave serve` in a terminal, where runs of datasets alternate."""

    def __init__(self, stream: TextIO, run: str) -> None:
        super().__init__(self._print)
        self._stream = stream
        self._run = run

    def _print(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(f"{self._run}: {text}\n")
            self._stream.flush()

    def stopped(self, error: BaseException) -> None:
        """Print how the run ends; the text of an `OperatorError` names the file that has its reason."""
        words = str(error) if isinstance(error, MarginweaveError) else type(error).__name__
        self._print(f"{Ending.of(error)} in {self._stage or 'its checks'}: {words}")

    def published(self, release: str, *, is_waiting: bool) -> None:
        """Print the place of the release."""
        self._print(f"{'awaiting approval' if is_waiting else 'released'}: {release}")

    def skipped(self, reason: str) -> None:
        """Print the file."""
        self._print(f"skipped; only the operator sees the reason, in {reason}")


def _charges(charged: tuple[str, ...]) -> str:
    return f", drawn and charged {', '.join(charged)}" if charged else ""


class TerminalReporter(Reporter):
    """Shows a progress bar over the stages."""

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        super().__init__()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._bar = self._progress.add_task("starting", total=None)
        self._progress.start()

    def begin(self, stages: int) -> None:
        """Show how many stages there are."""
        self._progress.update(self._bar, total=stages)

    def note(self, text: str) -> None:
        """Print the note above the bar."""
        self._progress.console.print(text, style="dim", markup=False, highlight=False, emoji=False)

    def started(self, stage: str) -> None:
        """Show the stage's name."""
        super().started(stage)
        self._progress.update(self._bar, description=stage)

    def advanced(self, text: str) -> None:
        """Show the stage's progress after its name."""
        self._progress.update(self._bar, description=f"{self._stage}: {text}")

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """Print a line for the stage above the bar, and advance the bar."""
        from rich.text import Text

        facts = f"  {seconds:.1f} s{_charges(charged)}"
        line = Text.assemble(("✓", "green"), f" {stage}", (facts, "dim"))
        self._progress.console.print(line)
        self._progress.advance(self._bar)

    def end(self) -> None:
        """Remove the bar."""
        self._progress.stop()


class LateReporter(Reporter):
    """Shows a bar for work that takes longer than two seconds, on standard error if it can show a bar; else nothing."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = stage
        self._bar = Reporter()

    def advanced(self, text: str) -> None:
        """Show the progress, once there is a bar."""
        super().advanced(text)
        self._bar.advanced(text)

    def progress(self, text: str, seconds: float) -> None:  # noqa: ARG002 - what the bar shows by itself
        """Begin the bar if there is none yet, and a console can show it."""
        if type(self._bar) is not Reporter:
            return
        console = bar_console()
        if console is not None:
            self._bar = TerminalReporter(console)
            self._bar.started(self._stage)

    def end(self) -> None:
        """Remove the bar."""
        self._bar.end()


def bar_console() -> Console | None:
    """Return standard error if it is a terminal or a notebook that can show a bar, else None."""
    from rich.console import Console

    console = Console(stderr=True)
    can_show_bar = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets"))
    return console if can_show_bar else None


@contextmanager
def shown_late(stage: str) -> Iterator[None]:
    """Show the progress of the work inside, where it takes long and somebody looks (`LateReporter`)."""
    late_reporter = LateReporter(stage)
    listener_token = LISTENER.set(late_reporter.advanced)
    try:
        yield
    finally:
        late_reporter.end()
        LISTENER.reset(listener_token)


_REPORTER: ContextVar[Reporter] = ContextVar("reporter")


def reporter() -> Reporter:
    """Return the reporter of this run, or one that prints nothing."""
    return _REPORTER.get(None) or Reporter()


def report_to(chosen: Reporter) -> None:
    """Report the progress of this run to `chosen` from now on."""
    _REPORTER.set(chosen)
    LISTENER.set(chosen.advanced)


@contextmanager
def reporting(
    to: Console | Reporter | None, run: str = "", dataset: str = ""
) -> Iterator[Reporter]:
    """Report the run inside, and an error that ends it: to the reporter `to`, to a console `to`, or in JSON lines.

    A console is used if it is a terminal; otherwise the lines go to standard output.
    """
    chosen: Reporter
    if isinstance(to, Reporter):
        chosen = to
    elif to and to.is_terminal:
        chosen = TerminalReporter(to)
    else:
        chosen = LineReporter(sys.stdout, run, dataset)
    reporter_token = _REPORTER.set(chosen)
    listener_token = LISTENER.set(chosen.advanced)
    UNFINISHED.append(chosen.stopped)
    try:
        yield chosen
    except BaseException as error:
        chosen.stopped(error)
        raise
    finally:
        UNFINISHED.remove(chosen.stopped)
        chosen.end()
        _REPORTER.reset(reporter_token)
        LISTENER.reset(listener_token)
