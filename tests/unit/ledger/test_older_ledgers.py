"""Homes and an older copy of their ledger, where the rows that a run has seen are lost: manifests say what was drawn."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import CHARGED
from marginweave.base.budget import BasicAmount
from marginweave.flows.cli.app import app
from marginweave.ledger import Ledger, Witness
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.ledger.reconciliation import OtherHomes
from marginweave.ledger.witness import SEEN
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

ALONE = OtherHomes(reason="there is one machine")


def cut_after_reservation(ledger: Path) -> None:
    """Make the file what it was when the first release was reserved, and nothing of it drawn."""
    with closing(sqlite3.connect(ledger)) as connection:
        (guard,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'events_no_delete'"
        ).fetchone()
        (last,) = connection.execute(
            "SELECT MIN(seq) FROM events WHERE kind IN ('LEASED', 'DRAWN')"
        ).fetchone()
        connection.execute("DROP TRIGGER events_no_delete")
        connection.execute("DELETE FROM events WHERE seq >= ?", (last,))
        connection.execute(guard)
        connection.commit()


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished run, and its ledger as it was when that was reserved."""
    home = tmp_path_factory.mktemp("released")
    place = home / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="people",
        epsilon=Decimal(3),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        Ledger.create(place, environment={}).accounts.open(account, actor="steward")
        run_plainly(home, people(home, 60, aggregate__reporting_length=1), "r")
    cut_after_reservation(place)
    return home


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def rename_ledger(file: Path) -> None:
    """One byte of the name of its ledger."""
    first, _, rest = file.read_text().partition("\n")
    named = json.loads(first)
    named["ledger"] = ("1" if named["ledger"][0] != "1" else "2") + named["ledger"][1:]
    file.write_text(f"{json.dumps(named)}\n{rest}")


def leave(file: Path) -> None:
    """As it is."""


@pytest.mark.parametrize("damage", [leave, remove, empty, rename_ledger])
def test_an_older_copy_is_refused_whatever_became_of_the_rows_that_were_seen(
    damage: Callable[[Path], None], released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is given back or reserved; readers are warned; a reconciliation charges it all, and then all is as it was."""
    home = shutil.copytree(released, tmp_path / "home")
    place = home / "ledger" / "ledger.sqlite"
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(place))
    monkeypatch.setenv("MARGINWEAVE_HOME", str(home))
    damage(home / "runs" / "r" / SEEN)
    for command in (
        ("expire", "--older-than", "0d"),
        ("cap", "people", "--epsilon", "4", "--delta", "1e-5", "--reason", "x"),
    ):
        result = CliRunner().invoke(app, ["ledger", *command])
        assert (result.exit_code, "older copy of itself" in result.stderr) == (3, True), (
            result.stderr
        )
    for command in (["ledger", "list"], ["ledger", "show", "people"]):
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, "older copy of itself" in result.stderr) == (0, True), (
            result.stderr
        )
    planned = CliRunner().invoke(app, ["plan", str(home / "people.yaml")])
    assert "older copy of itself" in planned.stdout
    assert "it fits" not in planned.stdout

    Ledger.open(place, environment={}).reconcile([home], ALONE, actor="steward")
    keys = load_key(place, {}, "")
    audited = audit_ledger(place, keys)
    (record,) = audited.releases.values()
    assert all(draw.state in CHARGED for draw in record.draws)
    ledger = Ledger.open(place, environment={}, witness=Witness(home))  # is refused no more
    assert ledger.draws.expire(timedelta(0)).returned == ()


def test_a_whole_home_is_compared_without_a_word(released: Path, tmp_path: Path) -> None:
    """A run of another ledger, with rows of its own, and one whose draws this ledger has booked."""
    home = tmp_path / "home"
    shutil.copytree(released / "runs", home / "runs")
    other = home / "ledger" / "ledger.sqlite"
    Ledger.create(other, environment={})
    Ledger.open(other, environment={}, witness=Witness(home))


def test_what_other_homes_released_is_charged_where_nothing_is_missing(tmp_path: Path) -> None:
    """Their machine is lost, and no run that is left has seen more than the ledger knows: each time that it is said."""
    place = tmp_path / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="people",
        epsilon=Decimal(3),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    ledger = Ledger.create(place, environment={})
    ledger.accounts.open(account, actor="steward")
    charge = OtherHomes(unaccounted=BasicAmount(epsilon=Decimal("0.5"), delta=Decimal("1e-7")))
    for times in (1, 2):
        outcome = ledger.reconcile([tmp_path / "home"], charge, actor="steward")
        assert (outcome.charged, outcome.frozen) == (("people",), ())
        assert ledger.accounts.total("people").spent.releases == times
    audit_ledger(place, load_key(place, {}, ""))


def test_a_home_that_is_none_opens_no_account(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that was mistyped is refused, and so is a reason that says nothing."""
    home = shutil.copytree(released, tmp_path / "home")
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger" / "ledger.sqlite"))
    for options, said in (
        (
            ("--home", str(tmp_path / "hme"), "--no-other-home", "one machine"),
            "is no home of marginweave",
        ),
        (("--home", str(home), "--no-other-home", ""), "must say why there is none"),
    ):
        result = CliRunner().invoke(app, ["ledger", "reconcile", *options])
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
