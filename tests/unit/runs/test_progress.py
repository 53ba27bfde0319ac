"""What a pipeline reads of a run: a JSON line for whatever happens, and nothing of the data."""

from __future__ import annotations

import io
import json
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import rich.console
import typer
from rich.console import Console

from marginweave.base.errors import BudgetError, InputError, OperatorError, StageError
from marginweave.base.interruption import INTERRUPTION, Stopped
from marginweave.base.progress import listener, progress_as
from marginweave.flows.cli.console import Commands
from marginweave.runs import progress
from marginweave.runs.progress import ServiceReporter, reporting, shown_late
from marginweave.runs.stopping import UNFINISHED


def lines(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> list[dict[str, Any]]:
    """The lines of a run of one stage that ends with `error`, each with its time and whose it is."""
    stream = io.StringIO()
    monkeypatch.setattr(progress.sys, "stdout", stream)
    with suppress(BaseException), reporting(None, "visits-1", "visits") as reporter:
        reporter.started("aggregate level-1")
        reporter.finished("aggregate level-1", ("level-1",), 0.12345)
        reporter.started("collect")
        if error is not None:
            raise error
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    for line in found:
        assert (line.pop("run"), line.pop("dataset")) == ("visits-1", "visits")
        assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    return found


STAGE = {"event": "stage", "stage": "aggregate level-1", "seconds": 0.123, "charged": ["level-1"]}


def test_a_stage_says_what_it_took_and_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, None) == [STAGE]


@pytest.mark.parametrize(
    ("error", "event", "message"),
    [
        (BudgetError("no room"), "refused", "no room"),
        (StageError("the disk is full"), "failed", "the disk is full"),
        (InputError("epsilon (-1) must be positive"), "failed", "epsilon (-1) must be positive"),
        (KeyError("a value of the table"), "failed", ""),
        (Stopped(15), "stopped", ""),
    ],
)
def test_an_end_is_a_line_as_well(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, event: str, message: str
) -> None:
    end = {"event": event, "stage": "collect", "error": type(error).__name__, "message": message}
    assert lines(monkeypatch, error) == [STAGE, end]


@pytest.mark.parametrize(
    "error",
    [Stopped(15), ImportError("half a module"), StageError("no answer"), KeyboardInterrupt()],
)
def test_a_stop_is_a_stop_whatever_a_library_makes_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    """In the line, on the terminal and as an exit code: once a signal has come, errors are of the end that it makes."""
    app = typer.Typer(cls=Commands)

    @app.command()
    def fail() -> None:
        with suppress(Stopped):
            INTERRUPTION.ask(15)
        raise error

    app.command("other")(fail)
    monkeypatch.setattr(INTERRUPTION, "asked", None)
    with pytest.raises(SystemExit) as ended:
        app(["fail"])
    assert ended.value.code == 128 + 15
    assert capsys.readouterr().err.startswith("marginweave: stopped by SIGTERM. Nothing is lost")
    assert lines(monkeypatch, error)[-1]["event"] == "stopped"


def test_a_thread_that_ends_the_process_says_what_the_main_one_could_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no context of the run; and once the run has said its end, there is nothing more to say."""
    stream = io.StringIO()
    monkeypatch.setattr(progress.sys, "stdout", stream)
    with suppress(StageError), reporting(None, "visits-1", "visits") as reporter:
        reporter.started("fit")
        (say,) = UNFINISHED
        watching = threading.Thread(target=say, args=(Stopped(15),))
        watching.start()
        watching.join()
        raise StageError("the disk is full")
    assert not UNFINISHED
    told = [
        (line["event"], line["stage"], line["run"])
        for line in map(json.loads, stream.getvalue().splitlines())
    ]
    assert told == [("stopped", "fit", "visits-1"), ("failed", "fit", "visits-1")]


def test_what_depends_on_the_data_is_for_the_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = lines(monkeypatch, OperatorError("column age breaks a rule in row 17"))
    assert "17" not in json.dumps(found)
    assert found[-1]["error"] == "OperatorError"


def test_a_log_hears_of_a_long_stage_after_two_seconds_and_then_every_ten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a stage says and how often; a short one is not heard of, and a new one starts from nothing."""
    stream, clock = io.StringIO(), [100.0]
    monkeypatch.setattr(progress.sys, "stdout", stream)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with reporting(None, "visits-1", "visits") as reporter:
        for stage, seconds in (("normalize", 2), ("fit", 30), ("synthesize", 3)):
            reporter.started(stage)
            for _ in range(2 * seconds):
                listener()(f"pass at {clock[0]}")
                clock[0] += 0.5
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["stage"], line["seconds"]) for line in found] == [
        *(("progress", "fit", seconds) for seconds in (2.0, 12.0, 22.0)),
        ("progress", "synthesize", 2.0),
    ]
    assert found[0]["text"] == "pass at 104.0"
    assert listener()("nobody is there any more") is None


def test_a_terminal_shows_all_of_it() -> None:
    screen = io.StringIO()
    with reporting(Console(file=screen, force_terminal=True, width=120)) as reporter:
        reporter.started("fit")
        listener()("model 2 of 8, pass 3 (1000 at most)")
    assert "fit: model 2 of 8, pass 3 (1000 at most)" in screen.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_answers_that_take_long_are_shown_at_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    """From two seconds on; what takes less is not heard of."""
    screen, clock = io.StringIO(), [100.0]
    console = Console(file=screen, force_terminal=is_terminal, width=120)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with shown_late("answers"):
        listener()("answer 1 of 4")
        clock[0] += 1
        listener()("answer 2 of 4")
    assert not screen.getvalue()
    with shown_late("answers"):
        clock[0] += 3
        listener()("answer 3 of 4")
    assert ("answers: answer 3 of 4" in screen.getvalue()) is is_terminal
    assert is_terminal or not screen.getvalue()
    assert listener()("nobody is there any more") is None


def test_a_long_step_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in those of the fits that it is made of."""
    heard = list[str]()
    monkeypatch.setattr(progress.LateReporter, "advanced", lambda _, text: heard.append(text))
    with shown_late("answers"):
        with progress_as("model 7 of 50"):
            listener()("model 1 of 8, pass 3")
        listener()("answer 1 of 4")
    assert heard == ["model 7 of 50", "answer 1 of 4"]


def test_a_service_in_a_terminal_prints_sentences() -> None:
    """With the run's name, as datasets alternate; of a stop that depends on the data, the file that has its reason."""
    stream = io.StringIO()
    service = ServiceReporter(stream, "people-2026-11-20")
    service.started("aggregate count")
    service.finished("aggregate count", ("count",), 0.25)
    service.published("runs/people-2026-11-20/release", is_waiting=False)
    service.published("runs/people-2026-11-20/proposed", is_waiting=True)
    service.skipped("internal/skipped.txt")
    stop = OperatorError("a value of the table")
    stop.is_in(Path("internal/stopped.txt"))
    service.stopped(stop)
    service.stopped(ZeroDivisionError("a value of the table"))
    printed = stream.getvalue().splitlines()
    assert str(stop).endswith("only the operator sees the reason, in internal/stopped.txt")
    assert {line.partition(": ")[0] for line in printed} == {"people-2026-11-20"}
    assert [line.partition(": ")[2] for line in printed] == [
        "aggregate count: 0.2 s, drawn and charged count",
        "released: runs/people-2026-11-20/release",
        "awaiting approval: runs/people-2026-11-20/proposed",
        "skipped; only the operator sees the reason, in internal/skipped.txt",
        f"failed in aggregate count: {stop}",
        "failed in aggregate count: ZeroDivisionError",
    ]
