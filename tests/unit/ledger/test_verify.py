"""`audit_ledger` finds whatever was changed in the ledger; `audit_files` what was changed in the files it answers for."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marginweave.accounting.records import Event, EventKind, now
from marginweave.base.errors import AuditError, BudgetError, InputError
from marginweave.ledger import Ledger
from marginweave.ledger.audit import Anchor, AuditedLedger, audit_ledger
from marginweave.ledger.keys import LedgerKey, key_file, load_key
from tests.support.databases import change, on_both, run
from tests.support.releases import gaussian, small_plan

COLUMNS = (
    *(
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
    ),
    *("prev_hash", "row_hash", "mac"),
)
Audit = Callable[..., AuditedLedger]
DISARMING = [
    *(
        ("sqlite", guard, f"DROP TRIGGER {guard}")
        for guard in ("events_no_update", "accounts_no_replace")
    ),
    *(
        pytest.param("postgresql", f"{table}_append_only", statement, marks=pytest.mark.system)
        for table, statement in (
            ("events", "DROP TRIGGER events_append_only ON events"),
            ("accounts", "ALTER TABLE accounts DISABLE TRIGGER accounts_append_only"),
            ("events", "ALTER TABLE events ENABLE TRIGGER ALL"),
            ("events", "ALTER TABLE events ENABLE REPLICA TRIGGER events_append_only"),
        )
    ),
]


HARMLESS = "CREATE TRIGGER {} {} BEGIN SELECT 1; END"
EMPTY = "CREATE OR REPLACE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
MADE = "CREATE TRIGGER events_append_only BEFORE {} EXECUTE FUNCTION ledger_is_append_only()"
TOOTHLESS = [
    (
        "sqlite",
        "events_no_update",
        [HARMLESS.format("events_no_update", "BEFORE UPDATE ON events WHEN 0")],
    ),
    (
        "sqlite",
        "events_no_delete",
        ["CREATE TABLE x (a)", HARMLESS.format("events_no_delete", "BEFORE DELETE ON x")],
    ),
    *(
        pytest.param("postgresql", guard, statements, marks=pytest.mark.system)
        for guard, statements in (
            ("accounts_append_only, events_append_only", [EMPTY]),
            (
                "events_append_only",
                ["CREATE TABLE x (a int)", MADE.format("UPDATE ON x FOR EACH STATEMENT")],
            ),
            ("events_append_only", [MADE.format("UPDATE OR DELETE ON events FOR EACH STATEMENT")]),
            (
                "events_append_only",
                [MADE.format("UPDATE OF mu2 OR DELETE OR TRUNCATE ON events FOR EACH STATEMENT")],
            ),
            (
                "events_append_only",
                [
                    MADE.format(
                        "UPDATE OR DELETE OR TRUNCATE ON events FOR EACH STATEMENT WHEN (false)"
                    )
                ],
            ),
        )
    ),
]


@pytest.fixture
def booked(ledger, reserve) -> Ledger:
    """Two releases, one finished, a refusal: every kind of row that one release has."""
    reserve()
    ledger.draws.take_lease("first", "lease")
    for name in ("count", "level-1"):
        ledger.draws.begin("first", name, "lease")
        ledger.draws.commit("first", name, "lease", "ab" * 32, tainted=False)
    ledger.draws.return_unused("first", ["level-2"])
    ledger.releases.publish("first", "lease", {"release/a.csv": "cd" * 32})
    ledger.evaluations.record("affairs", "first")
    ledger.accounts.change_cap("affairs", 2.0, 1e-6, "test", "steward")
    reserve("second")
    ledger.draws.take_lease("second", "other")
    ledger.draws.begin("second", "count", "other")
    ledger.draws.lose("second", "count", "other")
    return ledger


@pytest.fixture
def audit(location) -> Audit:
    def call(place: Path = location, anchor: Anchor | None = None) -> AuditedLedger:
        return audit_ledger(place, load_key(place, {}, ""), anchor)

    return call


@on_both
def test_an_untouched_ledger_holds(booked, audit, location) -> None:
    """Every row is there and sealed, and the audit reads the same releases as the ledger."""
    found = audit()
    assert len(found.rows) == booked.verify()
    assert found.unchecked == 0
    assert found.accounts["affairs"] == booked.accounts.total("affairs").account
    for record in booked.releases.of("affairs"):
        assert found.releases[record.release].charged == record.charged
        assert found.releases[record.release].statement == record.statement
        assert found.releases[record.release].draws == record.draws


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_flipped_byte_of_any_row_is_found(
    booked, audit, location, tmp_path_factory, data
) -> None:
    """One changed byte in one stored field of one row, text or not, is found and its row (or the next) is named."""
    place = tmp_path_factory.mktemp("flipped") / location.name
    shutil.copytree(location.parent, place.parent, dirs_exist_ok=True)
    with sqlite3.connect(place) as connection:
        seq = data.draw(st.integers(1, booked.verify()), label="row")
        filled = [
            c
            for c in COLUMNS
            if connection.execute(f"SELECT {c} FROM events WHERE seq = {seq}").fetchone()[0]
        ]
        column = data.draw(st.sampled_from(filled), label="column")
        text = (
            connection.execute(f"SELECT {column} FROM events WHERE seq = {seq}")
            .fetchone()[0]
            .encode()
        )
    position = data.draw(st.integers(0, len(text) - 1), label="position")
    mask = data.draw(st.integers(1, 255), label="mask")
    changed = bytes(b ^ mask if i == position else b for i, b in enumerate(text))
    update = f"UPDATE events SET {column} = CAST(X'{changed.hex()}' AS TEXT) WHERE seq = {seq}"
    change(place, update)
    with pytest.raises(AuditError, match=rf"row {seq}\b|row {seq + 1}\b"):
        audit(place)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_flipped_byte_of_the_file_in_a_row_is_found(
    booked, audit, location, tmp_path_factory, data
) -> None:
    """One changed byte of the database file where a row stands, its index entries included, is found."""
    place = tmp_path_factory.mktemp("flipped") / location.name
    shutil.copytree(location.parent, place.parent, dirs_exist_ok=True)
    with sqlite3.connect(place) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fields = connection.execute(
            "SELECT body, row_hash, prev_hash, mac, kind || '', created FROM events ORDER BY seq"
        ).fetchall()
    connection.close()
    content = bytearray(place.read_bytes())
    text = data.draw(st.sampled_from(fields), label="row")[
        data.draw(st.sampled_from([0, 1, 2, 3, 5]), label="field")
    ]
    places = [i for i in range(len(content)) if content.startswith(text.encode(), i)]
    at = data.draw(st.sampled_from(places), label="place") + data.draw(
        st.integers(0, len(text) - 1), label="offset"
    )
    content[at] ^= data.draw(st.integers(1, 255), label="mask")
    place.write_bytes(content)
    with pytest.raises(AuditError):
        audit(place)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_removed_swapped_and_inserted_rows_are_found(
    booked, audit, location, tmp_path_factory, data
) -> None:
    """Rows that are taken out, exchanged or copied to another place, renumbered or not, break the chain."""
    place = tmp_path_factory.mktemp("moved") / location.name
    shutil.copytree(location.parent, place.parent, dirs_exist_ok=True)
    newest = booked.verify()
    one = data.draw(st.integers(1, newest - 1), label="one")
    other = data.draw(st.integers(one + 1, newest), label="other")
    action = data.draw(st.sampled_from(["remove", "renumber", "swap", "insert"]), label="action")
    copied = ", ".join(c if c not in {"prev_hash", "row_hash"} else f"{c} || '0'" for c in COLUMNS)
    statements = {
        "remove": [f"DELETE FROM events WHERE seq = {one}"],
        "renumber": [
            f"DELETE FROM events WHERE seq = {one}",
            f"UPDATE events SET seq = -seq WHERE seq > {one}",
            "UPDATE events SET seq = -seq - 1 WHERE seq < 0",
        ],
        "swap": [
            f"UPDATE events SET seq = -1 WHERE seq = {one}",
            f"UPDATE events SET seq = {one} WHERE seq = {other}",
            f"UPDATE events SET seq = {other} WHERE seq = -1",
        ],
        "insert": [
            f"UPDATE events SET seq = -seq WHERE seq > {one}",
            "UPDATE events SET seq = 1 - seq WHERE seq < 0",
            f"INSERT INTO events (seq, {', '.join(COLUMNS)}) SELECT {one + 1}, {copied} FROM events WHERE seq = {one}",
        ],
    }
    change(place, *statements[action])
    with pytest.raises(AuditError, match="row"):
        audit(place)


@on_both
def test_rows_taken_from_the_end_are_found_against_an_anchor(
    booked, audit, location, reserve
) -> None:
    """The chain alone cannot show what was cut off; the anchored row can, and so can a history that was replaced."""
    anchor = audit().anchor
    assert Anchor.from_json(anchor.to_json()) == anchor
    audit(anchor=anchor)
    change(location, f"DELETE FROM events WHERE seq = {anchor.seq}")
    audit()
    with pytest.raises(
        AuditError, match=f"ends at row {anchor.seq - 1}, before the anchored row {anchor.seq}"
    ):
        audit(anchor=anchor)
    Ledger.open(location).accounts.change_cap("affairs", 2.0, 1e-6, "another history", "steward")
    with pytest.raises(AuditError, match=f"row {anchor.seq} .* anchored"):
        audit(anchor=anchor)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"format":1,"seq":0,"hash":"' + "a" * 64 + '"}', '{"format":1,"seq":true}'],
)
def test_something_else_is_no_anchor(text) -> None:
    with pytest.raises(InputError, match="ledger anchor"):
        Anchor.from_json(text)


@on_both
def test_a_reservation_cut_in_half_is_found(booked, audit, location, reserve) -> None:
    """A release without all rows of its plan is no state that a ledger can be in."""
    reserve("third", plan=small_plan(("count", "level-1"), cost=gaussian(0.001), epsilon=0.2))
    change(location, f"DELETE FROM events WHERE seq = {booked.verify()}")
    with pytest.raises(
        AuditError, match="ends before release third is completely reserved: level-1"
    ):
        audit()


@on_both
def test_an_account_that_no_row_opened_is_found(booked, audit, location) -> None:
    run(location, "INSERT INTO accounts (dataset, opened) VALUES ('ghost', 99)")
    with pytest.raises(AuditError, match="table of accounts"):
        audit()


@pytest.mark.parametrize(("backend", "guard", "statement"), DISARMING, indirect=["backend"])
def test_disarmed_guards_are_found(booked, audit, location, guard, statement) -> None:
    """A trigger that is dropped, switched off, or skipped by whoever replays replication, is named; no row was changed."""
    audit()
    run(location, statement)
    with pytest.raises(AuditError, match=f"not append-only any more: {guard} was taken away"):
        audit()


@pytest.mark.parametrize(("backend", "guards", "statements"), TOOTHLESS, indirect=["backend"])
def test_guards_of_the_right_name_that_do_nothing_are_found(
    booked, audit, location, guards, statements
) -> None:
    """What a trigger does counts: on another table, for fewer changes, under a condition, or with an empty function."""
    if statements != [EMPTY]:
        run(
            location,
            f"DROP TRIGGER {guards}" + ("" if isinstance(location, Path) else " ON events"),
        )
    run(location, *statements)
    if not isinstance(location, Path) and statements != [EMPTY]:
        table = "x" if len(statements) > 1 else "events"
        run(location, f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {guards}")
    with pytest.raises(
        AuditError, match=f"not append-only any more: {guards} was taken away or changed"
    ):
        audit()


def test_a_trigger_that_swallows_rows_is_found(booked, audit, location) -> None:
    """No version of the program writes any other trigger."""
    run(location, "CREATE TRIGGER more BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(AuditError, match="a trigger that no version of the program writes"):
        audit()


def test_damaged_bytes_of_the_first_page_are_named_with_their_file(booked, audit, location) -> None:
    """High bits flipped in the texts of the schema and in the header: an error of ours, whoever opens the file."""
    run(location, "PRAGMA wal_checkpoint(TRUNCATE)")
    whole = location.read_bytes()
    schema = whole.index(b"CREATE TABLE events")
    named = 0
    for place in (
        0,
        16,
        100,
        schema,
        schema + 13,
        schema + 40,
        whole.index(b"CREATE TRIGGER events") + 8,
    ):
        content = bytearray(whole)
        content[place] ^= 0x80
        location.write_bytes(content)
        with pytest.raises((AuditError, BudgetError)) as found:
            audit()
        if "is damaged: its bytes" in str(found.value):
            named += 1
            assert isinstance(found.value, AuditError)
            with pytest.raises(BudgetError, match=r"ledger\.sqlite is damaged"):
                Ledger.open(location, environment={})
    assert named >= 3


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"kind": EventKind.COMMITTED, "draw": "level-1", "lease": "other"},
            "level-1 is RESERVED; it cannot become COMMITTED",
        ),
        (
            {"kind": EventKind.RETURNED, "draw": "count"},
            "count is CHARGED_LOST; it cannot become RETURNED",
        ),
        (
            {"kind": EventKind.DRAWN, "draw": "level-1", "lease": "zombie"},
            "an attempt that was taken over",
        ),
        ({"kind": EventKind.DRAWN, "draw": "level-1"}, "without a lease"),
        (
            {"kind": EventKind.DRAWN, "draw": "level-9", "lease": "other"},
            "level-9 was never reserved",
        ),
        (
            {"kind": EventKind.PUBLISHED, "body": {"outputs": {}}},
            "draws unsettled: level-1, level-2",
        ),
        ({"kind": EventKind.PUBLISHED, "body": {}}, "a body that no ledger writes"),
        ({"kind": EventKind.LEASED, "lease": "other"}, "a lease is taken twice"),
        (
            {"kind": EventKind.LEDGER_CREATED, "release": None, "account": None},
            "the first row, and no other",
        ),
        ({"kind": EventKind.OPENED, "release": None}, "is open already"),
        (
            {"kind": EventKind.EVALUATED_INTERNALLY, "release": "third"},
            "release third was never reserved",
        ),
    ],
)
def test_sealed_rows_that_break_a_rule_are_found(booked, audit, changes, fault) -> None:
    """A row that somebody with the key writes past the rules is named with the rule."""
    facts = {
        "account": "affairs",
        "release": "second",
        "actor": "steward",
        "created": now(),
        **changes,
    }
    with booked.session.writing() as journal:
        journal.append(Event(**facts))
    with pytest.raises(AuditError, match=f"row {booked_rows(booked)} of the ledger.*{fault}"):
        audit()


@on_both
def test_a_total_over_its_cap_is_found_at_its_row(
    booked, audit, reserve, plan, monkeypatch
) -> None:
    """A release that was admitted over the cap is found, also where the cap was raised afterwards."""
    monkeypatch.setattr("marginweave.ledger.releases.refusal", lambda *_: None)
    reserve("third", plan=plan(epsilon=3.0, mu2=0.1))
    row = booked_rows(booked)
    booked.accounts.change_cap("affairs", 90.0, 1e-6, "hide it", "steward")
    with pytest.raises(AuditError, match=f"row {row} .*account affairs is over its cap"):
        audit()


@on_both
def test_a_cap_that_is_lowered_later_is_no_fault(booked, audit) -> None:
    """What was within the cap when it was reserved stays right."""
    booked.accounts.change_cap("affairs", 0.1, 1e-6, "no more", "steward")
    assert audit().accounts["affairs"].epsilon < 1


@on_both
def test_without_the_key_the_chain_is_checked_all_the_same(booked, audit, location) -> None:
    """No row's seal is checked, and a change is found by the hashes alone."""
    key_file(location).unlink()
    found = audit_ledger(location, LedgerKey())
    assert found.unchecked == len(found.rows)
    change(location, "UPDATE events SET actor = 'nobody' WHERE seq = 5")
    with pytest.raises(AuditError, match=r"row 5 .* changed"):
        audit_ledger(location, LedgerKey())


def booked_rows(ledger: Ledger) -> int:
    """Rows in the ledger, whatever they say."""
    return int(run(ledger.location, "SELECT count(*) FROM events")[0][0])
