"""The tables are append-only, and whoever goes around that leaves a trace."""

from __future__ import annotations

import shutil

import pytest

from marginweave.accounting.records import Event, EventKind, State
from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger, verified
from marginweave.ledger.keys import key_file
from marginweave.ledger.tables import check_row
from tests.support.databases import change, on_both, run

TEXTS = (
    "account",
    "release",
    "draw",
    "kind",
    "mu2",
    "rho",
    "delta",
    "lease",
    "digest",
    "body",
    "actor",
    "created",
)
SEALS = ("prev_hash", "row_hash", "mac")


@pytest.fixture
def booked(ledger, reserve) -> Ledger:
    """A ledger with a draw of every column filled."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    ledger.draws.begin("first", "count", "lease")
    ledger.draws.commit("first", "count", "lease", "ab" * 32, tainted=False)
    return ledger


@on_both
@pytest.mark.parametrize("column", TEXTS + SEALS)
def test_any_changed_column_is_found(booked, location, column) -> None:
    """One character more in one column of one row, triggers dropped, and `verify` names the row."""
    ((found,),) = run(
        location, f"SELECT min(seq) FROM events WHERE {column} IS NOT NULL AND seq > 2"
    )
    change(location, f"UPDATE events SET {column} = {column} || '0' WHERE seq = {found}")
    with pytest.raises(BudgetError, match=f"row {found} "):
        Ledger.open(location).verify()


@on_both
def test_emptied_column_is_found(booked, location) -> None:
    """Taking a lease away is a change like any other."""
    change(location, "UPDATE events SET lease = NULL WHERE kind = 'DRAWN'")
    with pytest.raises(BudgetError, match="changed"):
        booked.verify()


@pytest.mark.parametrize("column", ["kind", "lease", "digest", "body", "row_hash", "mac"])
def test_a_row_that_was_read_before_is_refused_once_it_is_changed(booked, location, column) -> None:
    """What a process has read and checked counts no more where the database has it otherwise now."""
    assert booked.releases.find("first").draw("count").digest == "ab" * 32
    change(location, f"UPDATE events SET {column} = {column} || '0' WHERE kind = 'COMMITTED'")
    with pytest.raises((BudgetError, ValueError), match=r"changed|sealed"):
        booked.releases.find("first")


def test_a_row_that_was_read_before_is_missed_once_it_is_removed(booked, location) -> None:
    """A release is what its rows now are: where a draw's last row is gone, the draw is as it was before it."""
    assert booked.releases.find("first").draw("count").state == State.COMMITTED
    change(location, "DELETE FROM events WHERE kind = 'COMMITTED'")
    assert booked.releases.find("first").draw("count").state == State.DRAWN


def test_rows_of_a_transaction_that_was_undone_are_forgotten(booked) -> None:
    """What was appended, read back and then rolled back is not in the release that is read next."""

    def undone() -> None:
        with booked.session.writing() as journal:
            journal.append(
                Event(kind=EventKind.LEASED, account="affairs", release="first", lease="another")
            )
            assert journal.release("first").lease == "another"
            raise KeyError

    before = booked.releases.find("first")
    with pytest.raises(KeyError):
        undone()
    assert booked.releases.find("first") == before


def test_a_row_is_checked_once_a_process(booked, monkeypatch) -> None:
    """A row that is read again as it was is not checked again; a new one is."""
    fresh, checked = Ledger.open(booked.location), list[int]()

    def counted(row, key) -> None:
        checked.append(row["seq"])
        check_row(row, key)

    monkeypatch.setattr(verified, "check_row", counted)
    fresh.releases.find("first")
    assert len(checked) == len(set(checked)) > 0
    booked.draws.take_lease("first", "next")
    checked.clear()
    assert (record := fresh.releases.find("first")) is not None
    assert record.lease == "next"
    assert len(checked) == 1


@on_both
@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM events WHERE seq = 4",),
        ("DELETE FROM events WHERE seq = 4", "UPDATE events SET seq = seq - 1 WHERE seq > 4"),
        (
            "UPDATE events SET seq = -4 WHERE seq = 4",
            "UPDATE events SET seq = 4 WHERE seq = 5",
            "UPDATE events SET seq = 5 WHERE seq = -4",
        ),
    ],
    ids=["removed", "removed and renumbered", "swapped"],
)
def test_removed_or_moved_rows_are_found(booked, location, statements) -> None:
    """The chain shows a gap, a renumbering and an exchange; no reservation is booked on a broken chain."""
    change(location, *statements)
    with pytest.raises(BudgetError, match="ledger"):
        booked.verify()
    with pytest.raises(BudgetError, match="ledger"):
        booked.accounts.total("affairs")


def test_rows_of_another_history_are_found(booked, location, tmp_path) -> None:
    """A row sealed with the same key after a restored backup does not fit into this history."""
    other = tmp_path / "restored"
    shutil.copytree(location.parent, other)
    booked.draws.begin("first", "level-1", "lease")
    booked.draws.begin("first", "level-2", "lease")
    Ledger.open(other / location.name).draws.return_unused("first", ["level-1"])
    seq = booked.verify() - 1
    texts = ", ".join(
        f"{name} = (SELECT {name} FROM other.events WHERE seq = {seq})"
        for name in TEXTS + SEALS[1:]
    )
    change(
        location,
        f"ATTACH '{other / location.name}' AS other",
        f"UPDATE events SET {texts} WHERE seq = {seq}",
    )
    with pytest.raises(BudgetError, match=f"broken before row {seq + 1}"):
        booked.verify()


@on_both
def test_changed_newest_row_closes_the_ledger(booked, location) -> None:
    """Opening checks the newest row, and nothing is appended behind a row that was changed."""
    change(location, "UPDATE events SET actor = 'nobody' WHERE seq = (SELECT max(seq) FROM events)")
    with pytest.raises(BudgetError, match="changed"):
        Ledger.open(location)
    with pytest.raises(BudgetError, match="changed"):
        booked.draws.begin("first", "level-1", "lease")


@on_both
def test_emptied_ledger_is_closed(booked, location) -> None:
    """A ledger that lost all rows is no new ledger."""
    change(location, "DELETE FROM events")
    with pytest.raises(BudgetError, match="lost its rows"):
        Ledger.open(location)


@on_both
def test_rows_resealed_under_another_key_are_found(booked, location, tmp_path) -> None:
    """Rows cannot be made without the key: those of another ledger do not verify."""
    other = Ledger.create(tmp_path / "other" / "ledger.sqlite")
    key_file(location).write_bytes(key_file(other.location).read_bytes())
    with pytest.raises(BudgetError, match="wrong key"):
        Ledger.open(location)
