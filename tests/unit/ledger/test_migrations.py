"""The tables are the declared ones, new or upgraded, in both databases; a ledger of another version is not used."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, MetaData, UniqueConstraint

from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger, LedgerLocation, creation, ledger_location, upgrade
from marginweave.ledger.audit import Anchor, audit_ledger
from marginweave.ledger.connection import connected, engine_for
from marginweave.ledger.creation import schema_version
from marginweave.ledger.keys import load_key
from marginweave.ledger.tables import METADATA, SCHEMA_VERSION

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)]


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, location: Path, monkeypatch: pytest.MonkeyPatch) -> LedgerLocation:
    """Where a ledger may be made, in each database."""
    if request.param == "sqlite":
        return location
    for name, value in request.getfixturevalue("database").items():
        monkeypatch.setenv(name, value)
    return ledger_location(request.getfixturevalue("database"))


@contextmanager
def _connection(place: LedgerLocation) -> Iterator[Connection]:
    with connected(engine_for(place), place, writing=True) as connection:
        yield connection


def _set_version(place: LedgerLocation, version: str) -> None:
    with _connection(place) as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")


def _shape(metadata: MetaData) -> list[object]:
    """Columns in their order with types and keys, indexes and unique columns."""
    shape: list[object] = []
    for table in metadata.sorted_tables:
        columns = [(c.name, str(c.type), c.nullable, c.primary_key, bool(c.foreign_keys)) for c in table.columns]
        indexes = sorted(str(index.name) for index in table.indexes)
        unique = {tuple(c.columns.keys()) for c in table.constraints if isinstance(c, UniqueConstraint)}
        shape.append((table.name, columns, indexes, sorted(unique)))
    return shape


@pytest.mark.parametrize("version", ["new", "0001", "0003", "none"])
def test_tables_of_every_version_become_the_declared_ones(place, version) -> None:
    """Columns, types, keys and indexes are those that the program reads and writes."""
    Ledger.create(place)
    with _connection(place) as connection:
        if version in ("0001", "none"):
            _drop_plain_charges(connection)
    if version != "new":
        _set_version(place, version)
        if version == "none":
            with _connection(place) as connection:
                connection.exec_driver_sql("DROP TABLE alembic_version")
        upgrade(place, {})
    found = MetaData()
    with _connection(place) as connection:
        found.reflect(connection)
        assert schema_version(connection) == SCHEMA_VERSION
    assert _shape(found) == _shape(METADATA)


def _drop_plain_charges(connection: Connection) -> None:
    for column in ("plain_epsilon", "plain_delta"):
        connection.exec_driver_sql(f"ALTER TABLE events DROP COLUMN {column}")


def test_upgrading_what_is_up_to_date_changes_nothing(place, account) -> None:
    """Rows and version stay as they are, however often."""
    ledger = Ledger.create(place)
    ledger.accounts.open(account, actor="steward")
    before = ledger.session.events()
    assert upgrade(place, {}) == upgrade(place, {}) == []
    assert Ledger.open(place).session.events() == before


def test_older_tables_name_the_command_and_stay_unused(place, account) -> None:
    """Neither opened nor silently upgraded by `open` or `create`."""
    Ledger.create(place).accounts.open(account, actor="steward")
    _set_version(place, "0000")
    for call in (Ledger.open, Ledger.create):
        with pytest.raises(BudgetError, match=f"version 0000, this program needs {SCHEMA_VERSION}") as error:
            call(place)
        assert str(error.value).endswith(": marginweave ledger upgrade")


def test_newer_tables_are_refused(place) -> None:
    """An older program does not write into tables that it does not know."""
    Ledger.create(place)
    _set_version(place, "9999")
    for call in (Ledger.open, lambda at: upgrade(at, {})):
        with pytest.raises(BudgetError, match="version 9999, this program knows"):
            call(place)


def _as_of_the_first_version(location: Path) -> None:
    with sqlite3.connect(location) as connection:
        for column in ("plain_epsilon", "plain_delta"):
            connection.execute(f"ALTER TABLE events DROP COLUMN {column}")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")


def _anchor(location: Path) -> Anchor:
    return audit_ledger(location, load_key(location, {}, "")).anchor


def test_rows_from_before_plain_charges_keep_their_hashes(ledger, reserve, location) -> None:
    """A migration that adds columns leaves every row as it was sealed; the chain goes on behind it."""
    reserve()
    before, anchor = ledger.session.events(), _anchor(location)
    _as_of_the_first_version(location)
    with pytest.raises(BudgetError, match="version 0001, this program needs"):
        Ledger.open(location)
    upgrade(location, {})
    upgraded = Ledger.open(location)
    assert upgraded.session.events() == before
    assert _anchor(location) == anchor
    upgraded.draws.return_unused("first", ["level-2"])
    assert upgraded.verify() == len(before) + 1


def test_a_ledger_from_before_the_migrations_is_upgraded_in_place(location, account) -> None:
    """Tables without a version are those of the first migration: their rows and triggers stay."""
    ledger = Ledger.create(location)
    ledger.accounts.open(account, actor="steward")
    before = ledger.session.events()
    _as_of_the_first_version(location)
    with sqlite3.connect(location) as connection:
        connection.execute("DROP TABLE alembic_version")
    with pytest.raises(BudgetError, match="marginweave ledger upgrade"):
        Ledger.open(location)
    upgrade(location, {})
    assert Ledger.open(location).session.events() == before
    with sqlite3.connect(location) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("DELETE FROM events")


def test_a_failed_migration_leaves_the_tables_as_they_were(location, account, monkeypatch) -> None:
    """Upgrading is one transaction."""
    Ledger.create(location).accounts.open(account, actor="steward")

    def half(connection: Connection) -> None:
        connection.exec_driver_sql("DROP TABLE events")
        raise KeyboardInterrupt

    monkeypatch.setattr(creation, "migrate", half)
    with pytest.raises(KeyboardInterrupt):
        upgrade(location, {})
    assert Ledger.open(location).verify() == 2


def test_upgrading_makes_no_file(location) -> None:
    """A ledger begins with `ledger open`."""
    with pytest.raises(BudgetError, match="cannot be used"):
        upgrade(location, {})
    assert not location.parent.exists()


def test_a_file_has_no_roles(location) -> None:
    """Rights to append only are PostgreSQL's."""
    Ledger.create(location)
    with pytest.raises(BudgetError, match="has no roles"):
        upgrade(location, {}, writer="steward")


@pytest.mark.system
def test_a_role_that_may_not_make_tables_says_so(server, database) -> None:
    """Without an owner's URL a role without rights makes nothing."""
    environment = {**database, "MARGINWEAVE_LEDGER": server.role(database["MARGINWEAVE_LEDGER"])}
    for call in (upgrade, lambda place, e: Ledger.create(place, environment=e)):
        with pytest.raises(BudgetError, match="permission denied for schema public"):
            call(ledger_location(environment), environment)


@pytest.mark.system
@pytest.mark.parametrize("name", ["nobody", 'no"body', "no%body", "x; DROP TABLE events"])
def test_rights_for_a_role_that_does_not_exist_are_refused(database, account, name) -> None:
    """Whatever the name is, it is a name; and the tables are made with the rights, or not at all."""
    with pytest.raises(BudgetError, match="does not exist"):
        upgrade(ledger_location(database), database, writer=name)
    with pytest.raises(BudgetError, match="there is no ledger"):
        Ledger.open(ledger_location(database), environment=database)
