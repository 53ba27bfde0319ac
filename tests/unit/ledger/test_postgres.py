"""What a ledger in PostgreSQL promises beside the laws of every database: roles, rights, URLs and passwords."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from marginweave.accounting.accounts import Account
from marginweave.accounting.records import State
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger import (
    Ledger,
    LedgerLocation,
    connection,
    create_tables,
    ledger_location,
    opening_command,
)
from tests.support.databases import run
from tests.support.ledger_tests import LedgerTests, make_release

pytestmark = pytest.mark.system

Environment = dict[str, str]


def _create(environment: Environment, account: Account) -> Ledger:
    made = Ledger.create(ledger_location(environment), environment=environment)
    made.accounts.open(account, actor="steward")
    return made


@pytest.fixture
def elsewhere(tmp_path: Path) -> Environment:
    """An environment that names a database nobody reaches."""
    return {
        "MARGINWEAVE_LEDGER": "postgresql://h/d",
        "MARGINWEAVE_LEDGER_KEY_FILE": str(tmp_path / "key"),
    }


def test_reading_and_appending_suffice(writer, account, plan) -> None:
    """A role with INSERT and SELECT opens the ledger and an account, and runs a whole release."""
    make_release(_create(writer, account), plan())
    again = Ledger.open(ledger_location(writer), environment=writer)
    record = again.releases.find("first")
    assert record is not None
    assert [draw.state for draw in record.draws] == [
        State.COMMITTED,
        State.COMMITTED,
        State.RETURNED,
    ]
    assert again.verify() > 8


FORBIDDEN = (
    "UPDATE events SET actor = 'nobody'",
    "DELETE FROM events",
    "TRUNCATE events CASCADE",
    "UPDATE accounts SET opened = 1",
    "DELETE FROM accounts",
    "TRUNCATE accounts CASCADE",
    "INSERT INTO accounts VALUES ('affairs', 9) ON CONFLICT (dataset) DO UPDATE SET opened = 9",
)


class TestPostgres(LedgerTests):
    """A database of a server; its superuser is held to the same."""

    changes = (*FORBIDDEN, "DELETE FROM events WHERE seq = 4")

    @pytest.fixture
    def backend(self) -> str:
        return "postgresql"

    @pytest.fixture
    def place(self, database: Environment) -> LedgerLocation:
        return ledger_location(database)

    @pytest.fixture(
        params=["make_key_file", "load_key", "sync_folder", "Journal.append", "Path.rename"]
    )
    def step(self, request: pytest.FixtureRequest) -> str:
        return request.param

    def lose_rows(self, place: LedgerLocation) -> None:
        run(place, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


OUT_OF_REACH = (
    *FORBIDDEN,
    "ALTER TABLE events DISABLE TRIGGER ALL",
    "DROP TRIGGER events_append_only ON events",
    "DROP TABLE events",
    "SET session_replication_role = replica",
    "CREATE OR REPLACE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
    "UPDATE ledger_format SET number = 0",
)


def test_the_role_can_change_nothing(server, writer, account) -> None:
    """Rows, triggers and rights are out of its reach."""
    ledger = _create(writer, account)
    for statement in OUT_OF_REACH:
        with pytest.raises(Exception, match=r"permission denied|must be owner"):
            server.run(writer["MARGINWEAVE_LEDGER"], statement, "SELECT 1/0")
    assert ledger.verify() == 2


def test_the_role_cannot_give_itself_rights(server, writer, account) -> None:
    """A GRANT of rights that it does not have grants nothing."""
    _create(writer, account)
    with pytest.raises(Exception, match="permission denied"):
        server.run(
            writer["MARGINWEAVE_LEDGER"],
            "GRANT UPDATE ON events TO PUBLIC",
            "UPDATE events SET actor = 'me'",
        )


def test_triggers_stop_the_superuser_in_replication_too(server, database, account) -> None:
    """The triggers must be disarmed before a row can be changed."""
    ledger = _create(database, account)
    for statement in FORBIDDEN:
        with pytest.raises(Exception, match="append-only"):
            server.run(
                database["MARGINWEAVE_LEDGER"], "SET session_replication_role = replica", statement
            )
    assert ledger.verify() == 2


def test_triggers_stop_the_owner_of_the_tables(server, database, account) -> None:
    """Owning the tables, which gives the right to change rows, is not enough to change one, nor is making them anew."""
    superuser = database["MARGINWEAVE_LEDGER"]
    owner = {**database, "MARGINWEAVE_LEDGER": server.role(superuser)}
    server.run(
        superuser,
        f"GRANT CREATE ON SCHEMA public TO {make_url(owner['MARGINWEAVE_LEDGER']).username}",
    )
    ledger = _create(owner, account)
    for statement in FORBIDDEN:
        with pytest.raises(Exception, match="append-only"):
            server.run(owner["MARGINWEAVE_LEDGER"], statement)
    create_tables(ledger_location(owner), owner)
    with pytest.raises(Exception, match="append-only"):
        server.run(owner["MARGINWEAVE_LEDGER"], "DELETE FROM events")
    assert ledger.verify() == 2


def test_empty_tables_are_no_ledger(database) -> None:
    """Opening them for a release names the command and makes no key."""
    create_tables(ledger_location(database), database)
    with pytest.raises(BudgetError) as error:
        Ledger.open(
            ledger_location(database),
            environment=database,
            command=opening_command("affairs", 1.0, 1e-6),
        )
    assert str(error.value).endswith("marginweave ledger open affairs --epsilon 1.0 --delta 1e-06")
    assert not Path(database["MARGINWEAVE_LEDGER_KEY_FILE"]).exists()


def test_a_second_machine_with_a_key_of_its_own_is_refused(database, account, tmp_path) -> None:
    """A ledger has one key: another machine needs a copy of it, and is not given a new one."""
    _create(database, account)
    other = {
        **database,
        "MARGINWEAVE_LEDGER_KEY_FILE": str(tmp_path / "elsewhere" / "postgresql.key"),
    }
    with pytest.raises(BudgetError, match="Restore the key file there"):
        Ledger.create(ledger_location(other), environment=other)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    "url", ["steward:{}@{}/db", "steward@{1}/db?password={0}", "steward@{1}/db?sslpassword={0}"]
)
def test_the_password_is_never_said(elsewhere, url) -> None:
    """Neither where the ledger is nor why it cannot be used has the password, in words, repr or a traceback."""
    secret = "hidden-word"
    server = "127.0.0.1:9"
    location = ledger_location(
        {**elsewhere, "MARGINWEAVE_LEDGER": f"postgresql://{url.format(secret, server)}"}
    )
    assert secret not in f"{location} {location!r}"
    assert str(location) == f"postgresql://{server}/db"
    with pytest.raises(
        BudgetError, match=f"the ledger postgresql://{server}/db cannot be used"
    ) as error:
        Ledger.open(location, environment=elsewhere)
    assert secret not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("url", ["postgresql://u:hidden@h/d", "postgresql://u@h/d?password=hidden"])
def test_an_error_that_quotes_the_password_is_shortened(url) -> None:
    """A driver that repeats what it was given does not get through."""
    given = DBAPIError("SELECT 1", {}, ValueError("invalid port: hidden\nmore"))
    assert connection._words(given, make_url(url)) == "invalid port: ***"


@pytest.mark.parametrize("variable", ["MARGINWEAVE_LEDGER", "MARGINWEAVE_LEDGER_OWNER"])
@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hidden@h/d",
        "postgresql://u:hidden@h:port/d",
        "postgresql://u:hidden@h",
        "postgresql+asyncpg://u:hidden@h/d",
    ],
)
def test_malformed_urls_are_bad_input_and_not_repeated(elsewhere, variable, url) -> None:
    """What is no URL of a PostgreSQL database is refused without saying more than its scheme."""
    environment = {**elsewhere, variable: url}
    with pytest.raises(InputError, match=rf"{variable} .*must be") as error:
        create_tables(ledger_location(environment), environment)
    assert "hidden" not in "".join(traceback.format_exception(error.value))


def test_key_file_must_be_absolute(elsewhere) -> None:
    """The working directory has no say in where the key is."""
    with pytest.raises(
        InputError, match=r"MARGINWEAVE_LEDGER_KEY_FILE \(key\) must be an absolute path"
    ):
        ledger_location({**elsewhere, "MARGINWEAVE_LEDGER_KEY_FILE": "key"})


def test_writers_wait_for_each_other_and_not_for_ever(
    server, database, account, monkeypatch
) -> None:
    """Nobody appends while another holds the chain, and who waits too long says so; readers do not wait."""
    monkeypatch.setattr(connection, "_BUSY_SECONDS", 1)
    ledger = _create(database, account)
    with ledger.session.writing():
        assert ledger.accounts.total("affairs").spent.releases == 0
        with pytest.raises(BudgetError, match="lock timeout"):
            ledger.accounts.change_cap("affairs", 2.0, 1e-6, "impatience", "steward")
    ledger.accounts.change_cap("affairs", 2.0, 1e-6, "in turn", "steward")


def test_commits_are_on_disk_whatever_the_default_is(server, database, account) -> None:
    """A database that answers before it has written is told to wait for the disk."""
    ledger = _create(database, account)
    name = ledger.location.url.database  # pyright: ignore[reportAttributeAccessIssue]
    server.run(
        database["MARGINWEAVE_LEDGER"], f"ALTER DATABASE {name} SET synchronous_commit = off"
    )
    with ledger.session.writing() as journal:
        assert journal.connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_readers_cannot_write(database, account) -> None:
    """A transaction for reading is read-only in the database itself."""
    ledger = _create(database, account)
    with pytest.raises(BudgetError, match="read-only"), ledger.session.reading() as journal:
        journal.append(ledger.session.events()[0])


@pytest.mark.parametrize("keyed", [True, False])
def test_a_ledger_that_has_lost_its_first_row_gets_no_other(
    server, database, account, keyed
) -> None:
    """Only empty tables get the first row of a ledger: what `create` finds damaged stays as it is."""
    _create(database, account)
    location = ledger_location(database)
    assert not isinstance(location, Path)
    key = {"MARGINWEAVE_LEDGER_KEY": location.key_file.read_text().strip()} if keyed else {}
    server.run(
        database["MARGINWEAVE_LEDGER"],
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "DELETE FROM events WHERE seq = 1",
    )
    Ledger.create(location, environment={**database, **key})
    with connection.connected(connection.engine_for(location), location, writing=False) as found:
        assert found.exec_driver_sql("SELECT count(*) FROM events").scalar() == 1
