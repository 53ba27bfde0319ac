"""The tables are the declared ones, in both databases; a ledger of another version is not used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, MetaData, UniqueConstraint

from marginweave.base.errors import BudgetError, InputError
from marginweave.base.formats import LAST_READER, LEDGER_FORMAT
from marginweave.ledger import Ledger, LedgerLocation, create_tables, creation, ledger_location
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.connection import connected, engine_for
from marginweave.ledger.keys import load_key
from marginweave.ledger.tables import METADATA

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


def _set_number(place: LedgerLocation, number: int) -> None:
    with _connection(place) as connection:
        connection.exec_driver_sql(f"UPDATE ledger_format SET number = {number}")


def _shape(metadata: MetaData) -> list[object]:
    """Columns in their order with types and keys, indexes and unique columns."""
    shape: list[object] = []
    for table in metadata.sorted_tables:
        columns = [(c.name, str(c.type), c.nullable, c.primary_key, bool(c.foreign_keys)) for c in table.columns]
        indexes = sorted(str(index.name) for index in table.indexes)
        unique = {tuple(c.columns.keys()) for c in table.constraints if isinstance(c, UniqueConstraint)}
        shape.append((table.name, columns, indexes, sorted(unique)))
    return shape


def test_the_tables_are_the_declared_ones(place) -> None:
    """Columns, types, keys and indexes are those that the program reads and writes."""
    Ledger.create(place)
    found = MetaData()
    with _connection(place) as connection:
        found.reflect(connection)
    assert _shape(found) == _shape(METADATA)


@pytest.mark.parametrize("number", [None, 5])
def test_a_ledger_of_an_older_version_is_refused(place, account, number) -> None:
    """Whatever opens it says in one sentence who reads it, and changes nothing: 0.1.0 and 0.2.0 had no such number."""
    Ledger.create(place).accounts.open(account, actor="steward")
    key = load_key(place, os.environ)
    if number is None:
        with _connection(place) as connection:
            connection.exec_driver_sql("DROP TABLE ledger_format")
    else:
        _set_number(place, number)
    said = rf"^the ledger .* was made by an older version; {re.escape(LAST_READER)} is the last that reads it$"
    for call in (Ledger.open, Ledger.create, lambda at: audit_ledger(at, key)):
        with pytest.raises(InputError, match=said):
            call(place)
    if not isinstance(place, Path):
        with pytest.raises(InputError, match=said):
            create_tables(place, {})


def test_a_ledger_of_a_newer_version_is_refused(place) -> None:
    """This program does not write into tables that it does not know."""
    Ledger.create(place)
    _set_number(place, LEDGER_FORMAT + 1)
    for call in (Ledger.open, Ledger.create):
        with pytest.raises(
            BudgetError, match=f"has format {LEDGER_FORMAT + 1}, and this program knows {LEDGER_FORMAT}"
        ):
            call(place)


def test_a_file_gets_its_tables_with_its_first_account(location) -> None:
    """Tables made apart, and roles that may append alone, are PostgreSQL's."""
    with pytest.raises(
        InputError, match="is a file, whose tables come with its first account: marginweave ledger open"
    ):
        create_tables(location, {}, writer="steward")
    assert not location.parent.exists()


@pytest.mark.system
def test_tables_that_are_there_stay_as_they_are(database, account) -> None:
    """Rows too, however often they are made."""
    place = ledger_location(database)
    ledger = Ledger.create(place, environment=database)
    ledger.accounts.open(account, actor="steward")
    before = ledger.session.events()
    create_tables(place, {})
    assert Ledger.open(place, environment=database).session.events() == before


@pytest.mark.system
def test_tables_are_made_whole_or_not_at_all(database, monkeypatch) -> None:
    """Making them is one transaction."""
    monkeypatch.setattr(creation, "statements", lambda _: ("CREATE TABLE half (x int)", "no SQL"))
    with pytest.raises(BudgetError):
        create_tables(ledger_location(database), database)
    with pytest.raises(BudgetError, match="there is no ledger"):
        Ledger.open(ledger_location(database), environment=database)


@pytest.mark.system
def test_a_role_that_may_not_make_tables_says_so(server, database) -> None:
    """Without an owner's URL a role without rights makes nothing."""
    environment = {**database, "MARGINWEAVE_LEDGER": server.role(database["MARGINWEAVE_LEDGER"])}
    for call in (create_tables, lambda place, e: Ledger.create(place, environment=e)):
        with pytest.raises(BudgetError, match="permission denied for schema public"):
            call(ledger_location(environment), environment)


@pytest.mark.system
@pytest.mark.parametrize("name", ["nobody", 'no"body', "no%body", "x; DROP TABLE events"])
def test_rights_for_a_role_that_does_not_exist_are_refused(database, account, name) -> None:
    """Whatever the name is, it is a name; and the tables are made with the rights, or not at all."""
    with pytest.raises(BudgetError, match="does not exist"):
        create_tables(ledger_location(database), database, writer=name)
    with pytest.raises(BudgetError, match="there is no ledger"):
        Ledger.open(ledger_location(database), environment=database)
