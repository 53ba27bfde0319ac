"""The tables come from migrations alone, in both databases; a ledger of another version is not used."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from marginweave.schemas.errors import BudgetError
from marginweave.tasks.ledger import Ledger, LedgerLocation, creation, ledger_location, upgrade
from marginweave.tasks.ledger.audit import Anchor, audit_ledger
from marginweave.tasks.ledger.connection import connected, engine_for
from marginweave.tasks.ledger.keys import load_key
from marginweave.tasks.ledger.tables import METADATA, SCHEMA_VERSION

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


def test_the_newest_migration_is_the_version_of_the_program() -> None:
    """There is one history, and its end is what `open` asks for."""
    config = Config()
    config.set_main_option("script_location", str(Path(creation.__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [SCHEMA_VERSION]
    assert [revision.revision for revision in script.walk_revisions()][-1] == "0001"


def test_migrated_tables_are_the_declared_ones(place) -> None:
    """Columns, types, keys and indexes are those that the program reads and writes."""
    Ledger.create(place)
    with _connection(place) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_upgrading_what_is_up_to_date_changes_nothing(place, account) -> None:
    """Rows and version stay as they are, however often."""
    ledger = Ledger.create(place)
    ledger.accounts.open(account, actor="steward")
    before = ledger.session.events()
    assert upgrade(place, {}) == upgrade(place, {}) == SCHEMA_VERSION
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
    with pytest.raises(BudgetError, match="version 9999, this program knows"):
        Ledger.open(place)


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
