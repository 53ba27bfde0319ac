"""How tables are made apart from their ledger, and rights given: PostgreSQL's alone."""

from __future__ import annotations

import pytest

from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger import Ledger, create_tables, creation, ledger_location


def test_a_file_gets_its_tables_with_its_first_account(location) -> None:
    """Tables made apart, and roles that may append alone, are PostgreSQL's."""
    with pytest.raises(
        InputError,
        match="is a file, whose tables come with its first account: marginweave ledger open",
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
