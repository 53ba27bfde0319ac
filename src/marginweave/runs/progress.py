"""What an operator sees of a run: stage names and nothing that depends on the data."""

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

_FIRST, _NEXT = 2.0, 10.0  # seconds after which a stage tells a log how far it is, and between two such lines


class Ending(StrEnum):
    """How an attempt at a release ends, for pipelines and monitors."""

    FINISHED = "finished"
    REFUSED = "refused"
    STOPPED = "stopped"
    FAILED = "failed"

    @classmethod
    def of(cls, error: BaseException) -> Ending:
        """The end that an error makes: stopped by a signal, whatever a library made of it, refused by the ledger, or failed."""
        if isinstance(error, Stopped) or INTERRUPTION.asked is not None:
            return cls.STOPPED
        return cls.REFUSED if isinstance(error, BudgetError) else cls.FAILED


class Reporter:
    """Hears what begins and ends. This one shows nothing."""

    lease: str | None = None
    _stage = ""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._due = self._begun + _FIRST

    def begin(self, stages: int) -> None:
        """The stages begin, so many of them."""

    def attempt(self, lease: str) -> None:
        """The run continues under `lease`, which every draw that it begins will carry in the ledger."""
        self.lease = lease

    def note(self, text: str) -> None:
        """Something that the operator should know; public facts alone."""

    def started(self, stage: str) -> None:
        """A stage begins."""
        self._stage, self._begun = stage, time.monotonic()
        self._due = self._begun + _FIRST

    def advanced(self, text: str) -> None:
        """A stage, whichever thread works on it, says how far it is: now and then that is told."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _NEXT
            self.progress(text, now - self._begun)

    def progress(self, text: str, seconds: float) -> None:
        """So far is a stage after so many seconds."""

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """A stage ended; `charged` names the draws that it was charged for."""

    def stopped(self, error: BaseException) -> None:
        """The run ends with an error, before all of its stages have ended."""

    def published(self, release: str, *, is_waiting: bool) -> None:
        """The run ends well: where its release is, or what awaits approval."""

    def end(self) -> None:
        """The run is over, one way or another."""


class LineReporter(Reporter):
    """One JSON line for whatever happens, for pipelines; `time` is UTC."""

    def __init__(self, stream: TextIO, run: str, dataset: str) -> None:
        super().__init__()
        self._stream, self._run, self._dataset = stream, run, dataset

    def note(self, text: str) -> None:
        """Print it."""
        self.line("note", text=text)

    def progress(self, text: str, seconds: float) -> None:
        """Print it."""
        self.line("progress", stage=self._stage, text=text, seconds=round(seconds, 3))

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """Print the stage, its time and its charges."""
        self.line("stage", stage=stage, seconds=round(seconds, 3), charged=charged)

    def stopped(self, error: BaseException) -> None:
        """Print the last stage and what kind of error it was; what depends on the data is said on standard error alone."""
        message = str(error) if isinstance(error, MarginweaveError) else ""  # of an `OperatorError` no more than that
        self.line(Ending.of(error), stage=self._stage, error=type(error).__name__, message=message)

    def published(self, release: str, *, is_waiting: bool) -> None:
        """Print it."""
        self.line("awaiting approval" if is_waiting else "finished", release=release)

    def line(self, event: str, **facts: object) -> None:
        """Print one line."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "event": event, "run": self._run, "dataset": self._dataset, **facts}
        with suppress(OSError):  # nobody listens any more: no reason to stop a release
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()


class LogReporter(Reporter):
    """Lines for `say`: Prefect's log of the flow run, where a worker has started it, or standard error of a notebook."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def note(self, text: str) -> None:
        """Say it."""
        self._say(text)

    def progress(self, text: str, seconds: float) -> None:
        """Say it."""
        self._say(f"{self._stage}: {text}, {seconds:.0f} s so far")

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """Say the stage and its charges."""
        self._say(f"{stage}: {seconds:.1f} s{_charges(charged)}")


def _charges(charged: tuple[str, ...]) -> str:
    return f", drawn and charged {', '.join(charged)}" if charged else ""


class TerminalReporter(Reporter):
    """A progress bar over the stages."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        super().__init__()
        begin, end = (
            (SpinnerColumn(), TextColumn("{task.description:<20}")),
            (MofNCompleteColumn(), TimeElapsedColumn()),
        )
        self._progress = Progress(*begin, BarColumn(), *end, console=console, transient=True)
        self._bar = self._progress.add_task("starting", total=None)
        self._progress.start()

    def begin(self, stages: int) -> None:
        """Show how many stages there are."""
        self._progress.update(self._bar, total=stages)

    def note(self, text: str) -> None:
        """Leave a line behind."""
        self._progress.console.print(text, style="dim", markup=False, highlight=False, emoji=False)

    def started(self, stage: str) -> None:
        """Show the stage's name."""
        super().started(stage)
        self._progress.update(self._bar, description=stage)

    def advanced(self, text: str) -> None:
        """Show it beside the stage's name."""
        self._progress.update(self._bar, description=f"{self._stage}: {text}")

    def finished(self, stage: str, charged: tuple[str, ...], seconds: float) -> None:
        """Leave a line behind and go on."""
        from rich.text import Text

        text = f"  {seconds:.1f} s{_charges(charged)}"
        self._progress.console.print(Text.assemble(("✓", "green"), f" {stage}", (text, "dim")))
        self._progress.advance(self._bar)

    def end(self) -> None:
        """Remove the bar."""
        self._progress.stop()


class LateReporter(Reporter):
    """A bar for what takes longer than two seconds, on standard error where that can show one; elsewhere nothing."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage, self._bar = stage, Reporter()

    def advanced(self, text: str) -> None:
        """Show it, once there is a bar."""
        super().advanced(text)
        self._bar.advanced(text)

    def progress(self, text: str, seconds: float) -> None:  # noqa: ARG002 - what the bar shows by itself
        """Begin the bar where that was not tried yet."""
        if type(self._bar) is Reporter and (console := bar_console()) is not None:
            self._bar = TerminalReporter(console)
            self._bar.started(self._stage)

    def end(self) -> None:
        """Remove the bar."""
        self._bar.end()


def bar_console() -> Console | None:
    """Standard error, where it is a terminal or a notebook that can show a bar."""
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal or (console.is_jupyter and find_spec("ipywidgets")) else None


@contextmanager
def shown_late(stage: str) -> Iterator[None]:
    """Show how far what happens inside is, where it takes long and somebody looks (`LateReporter`)."""
    chosen = LateReporter(stage)
    heard = LISTENER.set(chosen.advanced)
    try:
        yield
    finally:
        chosen.end()
        LISTENER.reset(heard)


_REPORTER: ContextVar[Reporter] = ContextVar("reporter")


def reporter() -> Reporter:
    """The reporter of this run, or one that prints nothing."""
    return _REPORTER.get(None) or Reporter()


def report_to(chosen: Reporter) -> None:
    """Report the progress of this run to `chosen` from now on."""
    _REPORTER.set(chosen)
    LISTENER.set(chosen.advanced)


@contextmanager
def reporting(to: Console | Reporter | None, run: str = "", dataset: str = "") -> Iterator[Reporter]:
    """Report on a console if it is a terminal, else in JSON lines on standard output; an error that ends the run as well."""
    lines = LineReporter(sys.stdout, run, dataset)
    chosen = to if isinstance(to, Reporter) else TerminalReporter(to) if to and to.is_terminal else lines
    token, heard = _REPORTER.set(chosen), LISTENER.set(chosen.advanced)
    UNFINISHED.append(chosen.stopped)
    try:
        yield chosen
    except BaseException as error:
        chosen.stopped(error)
        raise
    finally:
        UNFINISHED.remove(chosen.stopped)
        chosen.end()
        _REPORTER.reset(token)
        LISTENER.reset(heard)
