"""The ledger stands in a fixed place, is readable by its owner alone, and fails closed."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marginweave.accounting.records import ReleaseRecord
from marginweave.base.errors import BudgetError, InputError
from marginweave.ledger import Ledger, LedgerLocation, example_ledger_location, ledger_location
from tests.support.ledger_tests import LedgerTests

OPEN_COLUMNS = "account, release, draw, kind, mu2, rho, delta, lease, digest, body, actor, created"


class TestSqlite(LedgerTests):
    """A file; the owner of its tables is whoever may write it."""

    changes = (
        "UPDATE events SET mu2 = '0' WHERE seq = 4",
        "DELETE FROM events WHERE seq = 4",
        "DELETE FROM events",
        "UPDATE accounts SET opened = 9",
        "DELETE FROM accounts",
        "INSERT OR REPLACE INTO accounts (dataset, opened) VALUES ('affairs', 9)",
        "INSERT OR REPLACE INTO events SELECT * FROM events WHERE seq = 4",
        f"INSERT INTO events SELECT 99, {OPEN_COLUMNS}, 'x', 'y', mac, NULL, NULL FROM events",
    )

    @pytest.fixture
    def backend(self) -> str:
        return "sqlite"

    @pytest.fixture
    def place(self, location: LedgerLocation) -> LedgerLocation:
        return location

    @pytest.fixture(params=["make_key_file", "sqlite_engine", "sync_folder"])
    def step(self, request: pytest.FixtureRequest) -> str:
        return request.param

    def lose_rows(self, place: LedgerLocation) -> None:
        assert isinstance(place, Path)
        place.unlink()


def _files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_place_is_the_users_or_the_declared_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory has no say in where the ledger is."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    before = ledger_location({})
    monkeypatch.chdir(tmp_path)
    assert ledger_location({}) == before == ledger_location({"MARGINWEAVE_LEDGER": ""})
    assert isinstance(before, Path)
    assert before.is_absolute()
    assert before.parts[-2:] == ("marginweave", "ledger.sqlite")
    declared = tmp_path / "elsewhere.sqlite"
    assert ledger_location({"MARGINWEAVE_LEDGER": str(declared)}) == declared


@pytest.mark.parametrize(
    "text", ["mysql://user:secret-word@host/db", "ledger.sqlite", "./a/ledger.sqlite"]
)
def test_urls_and_relative_places_are_refused(text: str) -> None:
    """A place that depends on the folder, or that this version cannot use, is bad input; passwords stay unsaid."""
    with pytest.raises(InputError, match=r"MARGINWEAVE_LEDGER \(.*\) must be") as error:
        ledger_location({"MARGINWEAVE_LEDGER": text})
    assert "secret-word" not in str(error.value)


def test_examples_have_a_ledger_inside_the_home(tmp_path: Path) -> None:
    """Public example data never touches the user's ledger."""
    assert (
        example_ledger_location(tmp_path)
        == tmp_path / ".marginweave" / "example-ledger" / "ledger.sqlite"
    )


def test_ledger_and_key_belong_to_the_owner_alone(ledger: Ledger, location: Path) -> None:
    """Database, its write-ahead log and key have mode 0600, the new folder 0700, whatever the umask."""
    assert location.parent.stat().st_mode & 0o777 == 0o700
    with ledger.session.reading():
        assert {"ledger.sqlite", "ledger.sqlite-wal", "ledger.key"} <= set(_files(location.parent))
        assert {p.stat().st_mode & 0o777 for p in location.parent.iterdir()} == {0o600}


def test_a_folder_that_existed_keeps_its_mode(tmp_path: Path) -> None:
    """A declared place in a shared folder does not lock others out of the folder."""
    tmp_path.chmod(0o755)
    Ledger.create(tmp_path / "ledger.sqlite")
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_key_others_can_read_is_refused(ledger: Ledger, location: Path) -> None:
    """A key that leaked is no key."""
    (location.parent / "ledger.key").chmod(0o640)
    with pytest.raises(BudgetError, match="owner alone"):
        Ledger.open(location)


@pytest.mark.parametrize("key", ["ab" * 31, "ab" * 32 + "c", "xy" * 32])
def test_malformed_key_is_bad_input_and_not_repeated(location: Path, key: str) -> None:
    """A short or odd key is refused before anything is made, without being printed."""
    with pytest.raises(InputError, match="MARGINWEAVE_LEDGER_KEY must be") as error:
        Ledger.create(location, environment={"MARGINWEAVE_LEDGER_KEY": key})
    assert key not in str(error.value)
    assert not location.exists()


def test_creation_by_many_processes_makes_one_ledger(location: Path) -> None:
    """Eight processes that create at once all open the same ledger."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(8)
    digests = context.Queue()

    def create() -> None:
        barrier.wait()
        keys = Ledger.create(location, environment={}).keys
        digests.put(keys.source_digest({"": [b"same"]}).base)

    processes = [context.Process(target=create) for _ in range(8)]
    for process in processes:
        process.start()
    seen = {digests.get(timeout=180) for _ in processes}
    for process in processes:
        process.join()
    assert len(seen) == 1
    assert Ledger.open(location).verify() == 1


@pytest.mark.parametrize(
    "content", [b"", b"not a database at all, but long enough to be read as a header " * 40]
)
def test_damaged_database_is_closed(ledger: Ledger, location: Path, content: bytes) -> None:
    """A file that is no ledger is refused, not replaced."""
    location.write_bytes(content)
    with pytest.raises(BudgetError):
        Ledger.create(location)
    assert location.read_bytes() == content


def test_a_database_that_vanishes_is_not_made_again(ledger: Ledger, location: Path) -> None:
    """A ledger that is removed while it is open refuses, and no empty one takes its place."""
    location.unlink()
    with pytest.raises(BudgetError, match="cannot be used"):
        ledger.accounts.totals()
    assert not location.exists()


def test_marks_of_one_source_tell_nothing_without_the_key(
    ledger: Ledger, reserve: Callable[..., ReleaseRecord], location: Path
) -> None:
    """Two releases of the same bytes have two marks, which the ledger can tell for the same, and stores nothing equal."""
    ledger.accounts.change_cap("affairs", 10, 1e-6, "room for two", "steward")
    mine, stranger = (
        ledger.keys.source_digest({"": [b"rows"]}),
        ledger.keys.source_digest({"": [b"other rows"]}),
    )
    first, second = reserve("first", source=mine), reserve("second", source=mine)
    assert first.source_digest != second.source_digest
    for record in (first, second):
        assert mine.matches(record.release, record.source_digest)
        assert not stranger.matches(record.release, record.source_digest)
    assert not mine.matches("first", second.source_digest)
    with sqlite3.connect(location) as connection:
        stored = repr(connection.execute("SELECT * FROM events").fetchall())
    assert mine.base.hex() not in stored
    assert mine.base.hex() not in repr(mine)


def test_source_digest_is_keyed_and_ignores_chunks(ledger: Ledger, tmp_path: Path) -> None:
    """Equal bytes have equal digests however they are cut; another ledger's key gives other digests, and other marks."""
    other = Ledger.create(tmp_path / "other" / "ledger.sqlite")
    digest = ledger.keys.source_digest({"": [b"abc"]})
    digest_elsewhere = other.keys.source_digest({"": [b"abc"]})
    assert ledger.keys.source_digest({"": iter([b"ab", b"", b"c"])}) == digest
    assert ledger.keys.source_digest({"": [b"abd"]}) != digest
    assert digest_elsewhere.base != digest.base
    assert digest_elsewhere.mark("r") != digest.mark("r")
    assert ledger.keys.checkpoint_key != other.keys.checkpoint_key
    assert len(ledger.keys.checkpoint_key) == 32


def test_writes_are_durable_and_the_machine_may_stop(ledger: Ledger) -> None:
    """Every connection has WAL, synchronous=FULL and foreign keys."""
    with ledger.session.writing() as journal:
        values = [
            journal.connection.exec_driver_sql(f"PRAGMA {p}").scalar()
            for p in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert values == ["wal", 2, 1]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_umask_does_not_widen(tmp_path: Path) -> None:
    """A permissive umask leaves the key and the database closed."""
    before = os.umask(0)
    try:
        Ledger.create(tmp_path / "new" / "ledger.sqlite")
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "new").iterdir()} == {0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_threads_of_one_process_make_their_ledgers_at_once(tmp_path: Path) -> None:
    """Each ends with a ledger of its own, complete: a migration does not run in the transaction of another thread."""
    barrier = threading.Barrier(4)

    def make(name: str) -> int:
        barrier.wait()
        return Ledger.create(tmp_path / name / "ledger.sqlite", environment={}).verify()

    for turn in range(4):
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(make, [f"{turn}-{k}" for k in range(4)])) == [1] * 4
