"""A new key seals new rows, old keys verify old ones, and digests of sources stay what they were."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from marginweave.accounting.records import Event, EventKind, now
from marginweave.base.errors import BudgetError, InputError, StageError
from marginweave.ledger import Ledger, LedgerLocation, keys
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.journal import Journal
from marginweave.ledger.keys import Keyring, key_file, key_id, load_key
from tests.support.databases import on_both, run

pytestmark = on_both
ONE, TWO, THREE = "11" * 32, "22" * 32, "33" * 32


def _rows(location: LedgerLocation) -> list[tuple[str, str, str]]:
    return run(location, "SELECT kind, mac, body FROM events ORDER BY seq")


def _rotate(ledger: Ledger) -> str:
    return ledger.keys.rotate("yearly", actor="steward", environment={})


def test_rows_name_their_key_and_all_verify(ledger, location, reserve) -> None:
    """Rows before, between and after two rotations bear three key ids; each verifies, and the rotations are events."""
    root = key_id(load_key(location, {}, "").root)
    second = _rotate(ledger)
    reserve()
    third = _rotate(ledger)
    ledger.draws.return_unused("first", ["count"])
    rows = _rows(location)
    assert [mac.partition(":")[0] for _, mac, _ in rows] == [root] * 2 + [second] * 5 + [third] * 2
    rotations = [json.loads(body) for kind, _, body in rows if kind == "KEY_ROTATED"]
    assert [(r["old"], r["new"]) for r in rotations] == [(root, second), (second, third)]
    assert len({root, second, third}) == 3
    assert Ledger.open(location).verify() == 9
    assert audit_ledger(location, load_key(location, {}, "")).unchecked == 0


def test_keys_stay_with_their_owner_and_out_of_the_ledger(ledger, location) -> None:
    """The key file keeps mode 0600 and grows by one line; no key is in the database."""
    before = key_file(location).read_text()
    _rotate(ledger)
    after = key_file(location).read_text()
    assert after.startswith(before)
    assert len(after.split()) == 2
    assert key_file(location).stat().st_mode & 0o777 == 0o600
    for key in after.split():
        assert key not in "".join(map(str, _rows(location)))
        assert key[:16] != key_id(bytes.fromhex(key))


def test_digests_of_sources_and_checkpoints_survive(ledger, location, reserve, account) -> None:
    """The same bytes keep their digest, so that the same source under another account is refused after a rotation."""
    digest, checkpoint = ledger.keys.source_digest([b"same bytes"]), ledger.keys.checkpoint_key
    reserve(source=digest)
    ledger.accounts.open(replace(account, dataset="twin"), actor="steward")
    _rotate(ledger)
    again = Ledger.open(location)
    assert (again.keys.source_digest([b"same bytes"]), again.keys.checkpoint_key) == (digest, checkpoint)
    with pytest.raises(BudgetError, match="released under account affairs"):
        reserve("second", dataset="twin", source=again.keys.source_digest([b"same bytes"]))


@pytest.mark.parametrize("kept", [0, 1], ids=["the new key is lost", "the root is lost"])
def test_a_lost_key_stops_the_ledger(ledger, location, reserve, kept) -> None:
    """Half a ring reserves and draws nothing; the chain can still be checked, and the audit counts what it could not."""
    _rotate(ledger)
    reserve()
    keys = key_file(location).read_text().split()
    key_file(location).write_text(keys[kept] + "\n")
    with pytest.raises(BudgetError, match="wrong key"):
        Ledger.open(location).accounts.total("affairs")
    assert audit_ledger(location, Keyring(())).unchecked == len(_rows(location))
    assert audit_ledger(location, Keyring((bytes.fromhex(keys[0]),))).unchecked == 5


@pytest.mark.parametrize("stop", ["replace_file", "append"])
def test_an_interrupted_rotation_leaves_a_sound_ledger(ledger, location, reserve, monkeypatch, stop) -> None:
    """Before the key file or between it and the row: the old key goes on, and the next rotation uses the key that waits."""

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*{"replace_file": (keys, stop, crash), "append": (Journal, stop, crash)}[stop])
        with pytest.raises(KeyboardInterrupt):
            _rotate(ledger)
    again = Ledger.open(location)
    assert again.verify() == 2
    reserve()
    waiting = len(key_file(location).read_text().split())
    _rotate(Ledger.open(location))
    assert len(key_file(location).read_text().split()) == 2
    assert waiting == (1 if stop == "replace_file" else 2)
    assert Ledger.open(location).verify() == 7


def test_a_key_file_that_cannot_be_written_keeps_the_old_key(ledger, location, monkeypatch) -> None:
    """A full disk is an error of the machine, and nothing has changed."""

    def full(*_: object) -> None:
        raise StageError("no space")

    monkeypatch.setattr(keys, "replace_file", full)
    with pytest.raises(StageError, match="no space"):
        _rotate(ledger)
    assert Ledger.open(location).verify() == 2


def test_retired_keys_seal_nothing_more(ledger, location) -> None:
    """Whoever holds an old key cannot append behind a rotation unseen."""
    old = load_key(location, {}, "")
    _rotate(ledger)
    with ledger.session.writing() as journal:
        entry = Event(kind=EventKind.CAP_CHANGED, actor="x", created=now(), account="affairs")
        journal.append(entry, sealed_by=key_id(old.root))
    with pytest.raises(BudgetError, match=r"row 4 .* was not in use"):
        ledger.verify()
    with pytest.raises(BudgetError, match="was not in use"):
        Ledger.open(location).accounts.total("affairs")


def test_no_rotation_leads_back_to_a_retired_key(ledger) -> None:
    """Whoever holds an old key cannot make it the one in use again."""
    old = key_id(ledger.session.key.root)
    new = _rotate(ledger)
    with ledger.session.writing() as journal:
        body = {"old": new, "new": old, "reason": "back"}
        journal.append(Event(kind=EventKind.KEY_ROTATED, actor="x", created=now(), body=body), sealed_by=old)
    with pytest.raises(BudgetError, match=r"row 4 .* was not in use"):
        ledger.verify()


def test_a_process_from_before_the_rotation_stops(ledger, location, reserve) -> None:
    """A worker that does not hold the new key neither reads past it nor writes."""
    reserve()
    stale = Ledger.open(location)
    _rotate(ledger)
    with pytest.raises(BudgetError, match="wrong key"):
        stale.draws.return_unused("first", ["count"])
    Ledger.open(location).draws.return_unused("first", ["count"])


def test_keys_of_the_environment_rotate_to_the_one_at_the_end(location, account) -> None:
    """MARGINWEAVE_LEDGER_KEY holds all keys, oldest first; without an unused one at its end nothing is rotated."""
    one, two = {"MARGINWEAVE_LEDGER_KEY": ONE}, {"MARGINWEAVE_LEDGER_KEY": f"{ONE},{TWO}"}
    Ledger.create(location, environment=one).accounts.open(account, actor="steward")
    with pytest.raises(InputError, match="must hold all keys") as error:
        Ledger.open(location, environment=one).keys.rotate("yearly", actor="steward", environment=one)
    assert ONE not in str(error.value)
    name = Ledger.open(location, environment=two).keys.rotate("yearly", actor="steward", environment=two)
    assert name == key_id(bytes.fromhex(TWO))
    assert Ledger.open(location, environment=two).verify() == 3
    for wrong in (ONE, TWO, f"{TWO},{ONE}", f"{THREE},{ONE},{TWO}"):
        with pytest.raises(BudgetError, match="wrong key"):
            Ledger.open(location, environment={"MARGINWEAVE_LEDGER_KEY": wrong}).verify()
    assert not key_file(location).exists()


def test_a_key_that_is_there_twice_is_named(ledger, location, account) -> None:
    """An old key that is appended once more is not taken for a wrong one: the message says what to do."""
    old = key_file(location).read_text()
    _rotate(ledger)
    place = key_file(location)
    sound = place.read_text()
    place.write_text(sound + old.upper())
    with pytest.raises(BudgetError, match=r"holds the same key twice.*keep the first of the two") as error:
        Ledger.open(location, environment={})
    assert old.strip() not in str(error.value)
    with pytest.raises(InputError, match="MARGINWEAVE_LEDGER_KEY holds the same key twice"):
        Ledger.open(location, environment={"MARGINWEAVE_LEDGER_KEY": f"{ONE},{TWO},{ONE}"})
    place.write_text(sound)
    assert Ledger.open(location, environment={}).verify() == 3


def test_a_rotation_needs_a_reason(ledger) -> None:
    with pytest.raises(InputError, match="reason"):
        ledger.keys.rotate(" ", actor="steward", environment={})


def test_rows_from_before_there_were_key_ids_verify(location, account, monkeypatch) -> None:
    """A ledger whose first rows name no key goes on, and may be rotated."""
    monkeypatch.setattr("marginweave.ledger.journal.Journal.sealing_key", lambda *_: "")
    Ledger.create(location).accounts.open(account, actor="steward")
    monkeypatch.undo()
    assert all(":" not in mac for _, mac, _ in _rows(location))
    ledger = Ledger.open(location)
    ledger.accounts.change_cap("affairs", 2.0, 1e-6, "more", "steward")
    _rotate(ledger)
    assert Ledger.open(location).verify() == 4
    assert audit_ledger(location, load_key(location, {}, "")).unchecked == 0
