"""Runs that go on at the same time: whatever two of them do between two looks of a third, home and ledger fit each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from marginweave.checkpoints.run_folder import RunFolder
from marginweave.flows.cli.audit import verify
from marginweave.ledger import Ledger, reconciliation
from marginweave.ledger import audit as audit_module
from marginweave.ledger.releases import Releases
from marginweave.ledger.witness import SEEN, Sighting
from marginweave.released.manifest import RunState
from marginweave.runs.preparation import check_request, prepare_run
from marginweave.runs.request import Request, read_request
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly
from tests.support.releases import ACCOUNT

Meanwhile = Callable[[], object]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a ledger, whose account has room for several releases, and a table."""
    monkeypatch.setenv("MARGINWEAVE_HOME", str(tmp_path))
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(tmp_path / "ledger" / "ledger.sqlite"))
    account = replace(ACCOUNT, dataset="people", epsilon=Decimal(9), delta=Decimal("1e-5"))
    Ledger.create(tmp_path / "ledger" / "ledger.sqlite").accounts.open(account, actor="steward")
    return tmp_path


def request_for(home: Path, run: str) -> Request:
    return read_request(people(home, 60), run=run, source=None, home=home)


def once_after(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, meanwhile: Meanwhile
) -> list[str]:
    """Let `meanwhile` happen when the function returns for the first time; the list has its name from then on."""
    original, happened = getattr(place, name), list[str]()

    def called(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not happened:
            happened.append(name)
            meanwhile()
        return result

    monkeypatch.setattr(place, name, called)
    return happened


@pytest.mark.parametrize(("place", "name"), [(Releases, "of"), (RunFolder, "readable_manifest")])
def test_a_run_that_is_charged_between_two_looks_is_no_alarm(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    """Whichever of home and ledger was read, another run reserves, draws and publishes before the next is read."""
    run_plainly(home, people(home, 60), "before")
    request = request_for(home, "first")
    happened = once_after(
        monkeypatch, place, name, lambda: run_plainly(home, request.path, "second")
    )
    check_request(request)
    assert happened == [name]
    assert RunFolder.at(home, "second").present_manifest().state == RunState.FINISHED


def test_a_run_that_another_process_has_begun_is_not_one_that_was_lost(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commands for one run: the second has seen no manifest, and then a charge."""
    request = request_for(home, "one")
    happened = once_after(
        monkeypatch, RunFolder, "read_manifest", lambda: run_plainly(home, request.path, "one")
    )
    check_request(request)
    assert happened
    assert prepare_run(request)[1] == RunState.FINISHED


def test_a_run_that_ends_while_the_ledger_is_verified_is_no_fault(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was not there, and one that was charged, are ahead of what was read: they are not compared, and named."""
    config = people(home, 60)
    run_plainly(home, config, "before")
    happened = once_after(
        monkeypatch, audit_module, "audit_ledger", lambda: run_plainly(home, config, "during")
    )
    verify(home=home)
    assert happened
    assert "run during is in progress: its files were not looked at" in capsys.readouterr().out
    verify(home=home)
    assert "during" not in capsys.readouterr().out


def test_a_reconciliation_leaves_the_notes_of_a_run_that_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run notes after the transaction stays the newest that it has seen."""
    run_plainly(home, people(home, 60), "before")
    seen = Sighting(home / "runs" / "before" / SEEN)
    newer = {**(seen.head() or {}), "seq": 99}
    note_newest = reconciliation._note_newest

    def note_late(*args: Any) -> None:
        seen.append(seen.ledger, [newer])
        note_newest(*args)

    monkeypatch.setattr(reconciliation, "_note_newest", note_late)
    Ledger.open(home / "ledger" / "ledger.sqlite").reconcile([home], actor="steward")
    assert seen.head() == newer
