"""The laws of a ledger that do not depend on its database: each database inherits them."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import pytest
from sqlalchemy import Connection, MetaData, UniqueConstraint

from marginweave.accounting.accountants import gdp_epsilon
from marginweave.accounting.accounts import Account
from marginweave.accounting.charges import ChargedPlan
from marginweave.accounting.records import EventKind, State
from marginweave.base.errors import BudgetError, InputError
from marginweave.base.formats import LAST_READER, LEDGER_FORMAT
from marginweave.ledger import Ledger, LedgerLocation, create_tables, creation, opening_command
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.connection import connected, engine_for
from marginweave.ledger.keys import key_file, load_key
from marginweave.ledger.tables import METADATA
from tests.support.databases import run
from tests.support.releases import ACCOUNT, ALONE, FULL, reserve_release

RACERS = 12
ADMITTED = 5


class LedgerTests:
    """What every database that has a ledger keeps; a subclass says which database, and how a place in it is made and lost.

    `location`, of the fixtures in tests/unit/ledger, is a place as somebody sees it who may append alone.
    """

    changes: ClassVar[tuple[str, ...]]
    """Statements that would change or remove rows."""

    @pytest.fixture
    def place(self) -> LedgerLocation:
        """A place where nothing is, for its owner; its key will be in a folder that is not there yet."""
        raise NotImplementedError

    @pytest.fixture
    def step(self) -> str:
        """A function that `creation` calls, or a method, at which a creation can be interrupted; one after the other."""
        raise NotImplementedError

    def lose_rows(self, place: LedgerLocation) -> None:
        """Remove the ledger with its tables, and leave its key."""
        raise NotImplementedError

    def test_no_ledger_names_the_command_and_makes_nothing(self, place) -> None:
        """Opening what is not there ends with the exact command that opens it, and makes neither rows nor a key."""
        with pytest.raises(BudgetError) as error:
            Ledger.open(place, command=opening_command("affairs", 1.0, 1e-6))
        assert str(error.value).endswith(
            "marginweave ledger open affairs --epsilon 1.0 --delta 1e-06"
        )
        assert not key_file(place).parent.exists()

    def test_the_key_is_in_its_own_file_and_in_no_row(self, place, account) -> None:
        """It has mode 0600, in a folder 0700."""
        make_ledger(place, account)
        key = key_file(place)
        assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert key.read_text().strip() not in str(run(place, "SELECT * FROM events"))

    def test_a_lost_key_is_not_replaced(self, place, account) -> None:
        """Rows without their key stay closed, for `open` and `create` alike, and the message says where the key belongs."""
        make_ledger(place, account)
        key_file(place).unlink()
        for call in (Ledger.open, Ledger.create):
            with pytest.raises(BudgetError, match="key is neither in") as error:
                call(place)
            assert "Restore the key file there from a backup" in str(error.value)
            assert f"the ledger {place} is of no use without it" in str(error.value)
            # the rows are seen without the key, so nothing can be new here
            if isinstance(place, Path):
                assert opening_command() not in str(error.value)
        assert not key_file(place).exists()

    def test_lost_rows_are_not_replaced(self, place, account) -> None:
        """A key without its rows means lost history: `create` does not begin a fresh budget there."""
        make_ledger(place, account)
        self.lose_rows(place)
        with pytest.raises(BudgetError, match=r"has no ledger next to it: restore"):
            Ledger.create(place)
        with pytest.raises(BudgetError, match=r"there is no ledger|it has lost its rows"):
            Ledger.open(place)

    def test_a_key_of_the_environment_is_used_and_not_written(self, place) -> None:
        """With MARGINWEAVE_LEDGER_KEY no key file is made, and another key does not open the ledger."""
        environment = {"MARGINWEAVE_LEDGER_KEY": "AB" * 40}
        Ledger.create(place, environment=environment)
        folder = key_file(place).parent
        assert not folder.exists() or [*folder.iterdir()] == [place]
        Ledger.open(place, environment=environment)
        with pytest.raises(BudgetError, match="wrong key"):
            Ledger.open(place, environment={"MARGINWEAVE_LEDGER_KEY": "cd" * 32})

    def test_an_interrupted_creation_is_done_again(self, place, monkeypatch, step) -> None:
        """Whatever step of the creation is the last, the next one ends with a sound ledger and one key."""

        def crash(*_: object) -> None:
            raise KeyboardInterrupt

        name, _, method = step.partition(".")
        with monkeypatch.context() as patch:
            patch.setattr(getattr(creation, name) if method else creation, method or name, crash)
            with pytest.raises(KeyboardInterrupt):
                Ledger.create(place)
        assert Ledger.create(place).verify() == 1
        assert {*key_file(place).parent.iterdir()} - {place} == {key_file(place)}

    def test_no_row_is_changed_or_removed(self, place, account, plan) -> None:
        """The database itself aborts whatever would, for the owner of the tables too."""
        ledger = make_ledger(place, account)
        reserve_release(ledger, plan())
        rows = ledger.verify()
        for statement in self.changes:
            with pytest.raises(Exception, match="append-only"):
                run(place, statement)
        assert ledger.verify() == rows

    def test_a_release_is_the_same_as_in_another_ledger(
        self, location, account, plan, tmp_path
    ) -> None:
        """Kinds, draws, costs and totals of the same history do not depend on where it is kept."""
        ours, theirs = (
            make_ledger(location, account),
            make_ledger(tmp_path / "another" / "ledger.sqlite", account),
        )
        for each in (ours, theirs):
            make_release(each, plan(mu2=0.01))
            with pytest.raises(BudgetError, match="does not hold this release"):
                reserve_release(each, plan(mu2=0.5, epsilon=10.0), "second")
        assert ours.accounts.total("affairs") == theirs.accounts.total("affairs")
        assert Ledger.open(location).verify() == theirs.verify() > 8
        assert _history(ours) == _history(theirs)

    def test_the_tables_are_the_declared_ones(self, place) -> None:
        """Columns, types, keys and indexes are those that the program reads and writes."""
        Ledger.create(place)
        found = MetaData()
        with _connection(place) as connection:
            found.reflect(connection)
        assert _shape(found) == _shape(METADATA)

    @pytest.mark.parametrize("number", [None, 5])
    def test_a_ledger_of_an_older_version_is_refused(self, place, account, number) -> None:
        """Whatever opens it says in one sentence who reads it, and changes nothing: 0.1.0 and 0.2.0 had no such number."""
        make_ledger(place, account)
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

    def test_a_ledger_of_a_newer_version_is_refused(self, place) -> None:
        """This program does not write into tables that it does not know."""
        Ledger.create(place)
        _set_number(place, LEDGER_FORMAT + 1)
        for call in (Ledger.open, Ledger.create):
            with pytest.raises(
                BudgetError,
                match=f"has format {LEDGER_FORMAT + 1}, and this program knows {LEDGER_FORMAT}",
            ):
                call(place)

    @pytest.fixture
    def shared(self, location) -> Ledger:
        """A ledger whose account has room for what five and a half releases at epsilon 1 cost together."""
        cap = Decimal(gdp_epsilon(math.sqrt((ADMITTED + 0.5) * ALONE), 1e-6))
        return make_ledger(location, replace(ACCOUNT, epsilon=cap))

    @pytest.mark.system
    def test_many_race_for_five(self, shared: Ledger, plan) -> None:
        """Exactly five are granted, the others are refused and written down, and every row is in its place."""
        heavy = plan(mu2=ALONE / 2, draws=("count", "level-1"))
        counted = _race(
            [lambda n=n: reserve_release(shared, heavy, f"release-{n}") for n in range(RACERS)]
        )
        assert counted == {"granted": ADMITTED, "refused": RACERS - ADMITTED}
        total = shared.accounts.total("affairs")
        assert (total.spent.releases, total.epsilon) == (
            ADMITTED,
            pytest.approx(gdp_epsilon(math.sqrt(ADMITTED * ALONE), 1e-6)),
        )
        again = Ledger.open(shared.location)
        assert again.verify() == 2 + ADMITTED * 3 + (RACERS - ADMITTED)
        assert (
            sum(event.kind == EventKind.REFUSED for event in again.session.events())
            == RACERS - ADMITTED
        )
        assert again.accounts.total("affairs") == total

    @pytest.mark.system
    def test_many_race_for_one_release(self, shared: Ledger, plan) -> None:
        """The same release asked for at once is charged once, and all who asked have it."""
        heavy = plan(mu2=FULL)
        assert _race([lambda: reserve_release(shared, heavy, "same") for _ in range(RACERS)]) == {
            "granted": RACERS
        }
        assert shared.accounts.total("affairs").spent.releases == 1
        assert shared.verify() == 2 + 4

    @pytest.mark.system
    def test_many_race_for_one_draw(self, shared: Ledger, plan) -> None:
        """One caller begins a draw; the others, of other inputs, are refused before they have drawn anything."""
        reserve_release(shared, plan(), "one")
        shared.draws.take_lease("one", "lease")
        counted = _race(
            [
                lambda n=n: shared.draws.begin("one", "count", "lease", {"inputs": str(n)})
                for n in range(RACERS)
            ]
        )
        assert counted == {"granted": 1, "refused": RACERS - 1}
        record = shared.releases.find("one")
        assert record is not None
        assert record.draws[0].state == State.DRAWN


def make_ledger(location: LedgerLocation, account: Account) -> Ledger:
    """A ledger with one account."""
    made = Ledger.create(location)
    made.accounts.open(account, actor="steward")
    return made


def make_release(ledger: Ledger, plan: ChargedPlan) -> None:
    """Make a whole release: two draws committed, one given back, published, evaluated."""
    reserve_release(ledger, plan)
    ledger.draws.take_lease("first", "lease")
    for name in ("count", "level-1"):
        ledger.draws.begin("first", name, "lease")
        ledger.draws.commit("first", name, "lease", "digest", tainted=False)
    ledger.draws.return_unused("first", ["level-2"])
    ledger.releases.publish("first", "lease", {"privacy.json": "ab"})
    ledger.evaluations.record("affairs", "first")


def _history(ledger: Ledger) -> list[tuple[object, ...]]:
    return [
        (event.kind, event.draw, event.cost, event.lease, event.digest)
        for event in ledger.session.events()
    ]


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
        columns = [
            (c.name, str(c.type), c.nullable, c.primary_key, bool(c.foreign_keys))
            for c in table.columns
        ]
        indexes = sorted(str(index.name) for index in table.indexes)
        unique = {
            tuple(c.columns.keys()) for c in table.constraints if isinstance(c, UniqueConstraint)
        }
        shape.append((table.name, columns, indexes, sorted(unique)))
    return shape


def _race(work: list[Callable[[], object]]) -> Counter[str]:
    """Run every piece of work in a process forked from this warm one, all at once; count how they ended."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(work))
    results = context.Queue()

    def compete(own: Callable[[], object]) -> None:
        barrier.wait()
        try:
            own()
            results.put("granted")
        except BudgetError:
            results.put("refused")
        except Exception as error:
            results.put(repr(error))

    processes = [context.Process(target=compete, args=(own,)) for own in work]
    for process in processes:
        process.start()
    counted = Counter(results.get(timeout=180) for _ in processes)
    for process in processes:
        process.join()
    return counted
