"""What a release tells: which event, and nothing but names, classes of errors and public totals."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from httpx import ConnectError
from prefect.client.schemas.objects import StateType

from marginweave.accounting.accounts import Account, AccountTotal, Box, Spent
from marginweave.accounting.records import Decision
from marginweave.base.budget import BasicAmount, Cost
from marginweave.base.errors import (
    BudgetError,
    InputError,
    MachineError,
    OperatorError,
    StageError,
    UnreachableLedger,
)
from marginweave.base.interruption import Stopped
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.flows.prefect import decisions
from marginweave.flows.prefect import records as prefect_records
from marginweave.flows.prefect.decisions import show_decision
from marginweave.flows.prefect.records import (
    MachineFailed,
    announced,
    ended,
    skipped,
    warn_of_exhaustion,
)
from marginweave.ledger.boxes import spent_share

SECRET = "a value of the table"
FOLDER = RunFolder.at(Path("/home"), "people-2026-11-20")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(
        prefect_records, "emit_event", lambda event, **rest: heard.append({"event": event, **rest})
    )
    return heard


BOX = Box(
    mu2=Decimal(2),
    delta_add=Decimal("1e-7"),
    allowance=BasicAmount(epsilon=Decimal(2), delta=Decimal("1e-7")),
)


def total(
    mu2: str = "0", delta: str = "0", plain: tuple[str, str] = ("0", "0"), alone: Cost | None = None
) -> AccountTotal:
    account = Account(
        dataset="people",
        epsilon=Decimal(4),
        delta=Decimal("1e-6"),
        unit="row",
        neighbors="add-remove",
        box=BOX,
    )
    charged = BasicAmount(epsilon=Decimal(plain[0]), delta=Decimal(plain[1]))
    spent = Spent(
        cost=Cost(mu2=Decimal(mu2), delta=Decimal(delta), plain=charged), cost_by_statement=alone
    )
    return AccountTotal(account=account, epsilon=1.0, composition="gdp", spent=spent)


def end_with(error: BaseException | None) -> None:
    with announced("people-2026-11-20"):
        if error is not None:
            raise error
    ended("people-2026-11-20", FOLDER, FOLDER.release)


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (None, "marginweave.release.finished"),
        (BudgetError(SECRET), "marginweave.release.refused"),
        (InputError(SECRET), "marginweave.release.failed"),
        (OperatorError(SECRET), "marginweave.release.failed"),
        (MachineError(SECRET), "marginweave.release.failed"),
        (UnreachableLedger(SECRET), "marginweave.release.failed"),
        (ZeroDivisionError(SECRET), "marginweave.release.failed"),
    ],
)
def test_every_end_is_one_event_without_the_text_of_the_error(
    told: list[dict[str, Any]], error: BaseException | None, event: str
) -> None:
    with pytest.raises(type(error)) if error else nullcontext():
        end_with(error)
    (one,) = told
    assert one["event"] == event
    assert one["resource"]["prefect.resource.name"] == "people-2026-11-20"
    assert one["payload"] == {
        "run": "people-2026-11-20",
        **({} if error is None else {"error": type(error).__name__}),
    }
    assert SECRET not in repr(told)


@pytest.mark.parametrize("kind", [MachineError, UnreachableLedger, InputError, BudgetError])
def test_faults_of_the_machine_alone_end_a_deployed_release_as_crashed(
    told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Prefect's engine takes what is no Exception for a crash, and the supervisor resumes those, and no failed ones.

    Of a crash Prefect emits an event: one of ours would be a second alert.
    """
    monkeypatch.setattr(prefect_records, "deployed_run", object)
    passing = kind in (MachineError, UnreachableLedger)
    with pytest.raises(MachineFailed if passing else kind) as raised:
        end_with(kind("the disk is full"))
    assert isinstance(raised.value, Exception) is not passing
    assert (bool(told), str(raised.value)) == (not passing, "the disk is full")


def test_a_signal_that_ends_the_process_is_told_by_prefect_alone(
    told: list[dict[str, Any]],
) -> None:
    with pytest.raises(Stopped):
        end_with(Stopped(signal.SIGTERM))
    assert told == []


def test_a_release_that_waits_for_approval_is_not_told_as_finished(
    told: list[dict[str, Any]],
) -> None:
    state = ended("people-2026-11-20", FOLDER, FOLDER.proposed)
    assert [one["event"] for one in told] == ["marginweave.release.awaiting-approval"]
    assert (state.type, state.name) == (StateType.COMPLETED, "AwaitingApproval")
    assert "marginweave approve people-2026-11-20 --by NAME" in str(state.message)


def test_a_server_that_goes_away_is_said_and_leaves_the_decision_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The decision is in the ledger by then: `approve` warns, and ends well."""

    class Gone:
        def __enter__(self) -> Gone:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read_flow_runs(self, **_: object) -> None:
            raise ConnectError("nobody listens")

    monkeypatch.setattr(decisions, "get_client", lambda **_: Gone())
    decision = Decision(approved=True, by="steward", reason="", created=datetime.now(UTC))
    with pytest.raises(StageError, match=r"^Prefect's server does not answer$"):
        show_decision(FOLDER, "people", decision)


def test_a_skipped_run_is_no_finished_one_and_no_failure(told: list[dict[str, Any]]) -> None:
    """Prefect gets the place of the reason, and nothing of it."""
    state = skipped("people-2026-11-20", FOLDER.internal / "skipped.txt")
    assert [one["event"] for one in told] == ["marginweave.release.skipped"]
    assert (state.type, state.name) == (StateType.COMPLETED, "Skipped")
    assert str(state.message).endswith("/home/runs/people-2026-11-20/internal/skipped.txt")


@pytest.mark.parametrize(
    ("account", "share"),
    [
        (total("0.5"), 0.25),
        (total("0.5", plain=("1", "0")), 0.5),
        (total("0.5", plain=("0.5", "9e-8")), 0.9),
        (total("1.5", plain=("1", "0")), 0.75),
        (total("0.5", delta="9e-8"), 0.9),
        (total("0.5", alone=Cost(mu2=Decimal(3))), 1.0),
    ],
)
def test_the_share_is_that_of_what_runs_out_first(account: AccountTotal, share: float) -> None:
    assert spent_share(account) == pytest.approx(share)


@pytest.mark.parametrize(("spent", "warned"), [("1.59", False), ("1.6", True), ("2", True)])
def test_the_threshold_itself_warns(told: list[dict[str, Any]], spent: str, warned: bool) -> None:
    warn_of_exhaustion("r", total(spent), 0.8)
    assert [one["event"] for one in told] == ["marginweave.budget.nearly-exhausted"] * warned
