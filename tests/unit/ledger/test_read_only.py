"""A copy of a ledger that nobody may write can be verified and shown, and says so where rows are out of reach."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.connection import database_uri
from marginweave.ledger.keys import load_key


class Declare(Protocol):
    """Lets the system say what may be done with a database file, its folder and the two files beside it."""

    def __call__(self, *, folder: bool, file: bool, shared: bool = False) -> None: ...


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Declare:
    def call(*, folder: bool, file: bool, shared: bool = False) -> None:
        def access(path: Path, _mode: int) -> bool:
            return (
                shared
                if path.name.endswith(("-wal", "-shm"))
                else file
                if path.suffix == ".sqlite"
                else folder
            )

        monkeypatch.setattr(os, "access", access)

    return call


@pytest.mark.parametrize(
    ("folder", "file", "log", "shared", "query"),
    [
        (True, True, None, False, "mode=rw"),
        (True, True, 4096, True, "mode=rw"),
        (True, False, None, False, "mode=ro"),
        (True, False, 4096, False, "mode=ro"),
        (False, True, 4096, True, "mode=rw"),
        (False, False, 4096, True, "mode=ro"),
        (False, False, 0, True, "mode=ro"),
        (False, False, None, False, "mode=ro&immutable=1"),
        (False, False, 0, False, "mode=ro&immutable=1"),
        (False, True, None, False, "mode=ro&immutable=1"),
    ],
)
def test_a_file_is_opened_as_its_place_allows(
    declare: Declare,
    tmp_path: Path,
    folder: bool,
    file: bool,
    log: int | None,
    shared: bool,
    query: str,
) -> None:
    """That nothing changes is promised only where the folder cannot be written and no log holds rows."""
    place = tmp_path / "a folder" / "ledger.sqlite"
    _write_log(place, log)
    declare(folder=folder, file=file, shared=shared)
    assert database_uri(place) == f"{tmp_path.as_uri()}/a%20folder/ledger.sqlite?{query}"


@pytest.mark.parametrize("file", [True, False])
def test_rows_in_a_log_that_cannot_be_read_are_not_left_out(
    declare: Declare, tmp_path: Path, file: bool
) -> None:
    place = tmp_path / "a" / "ledger.sqlite"
    _write_log(place, 4096)
    declare(folder=False, file=file)
    with pytest.raises(
        BudgetError,
        match=r"newest rows of the ledger .* are in ledger\.sqlite-wal, which cannot be read",
    ):
        database_uri(place)


def _write_log(place: Path, size: int | None) -> None:
    place.parent.mkdir()
    if size is not None:
        place.with_name("ledger.sqlite-wal").write_bytes(bytes(size))


@pytest.fixture
def copy(ledger: Ledger, reserve, location: Path, tmp_path: Path) -> Path:
    """A copy of a ledger at rest, key beside it."""
    reserve()
    return Path(shutil.copytree(location.parent, tmp_path / "copy")) / location.name


@pytest.fixture
def mounted(copy: Path) -> Iterator[Path]:
    """The copy on a mount that is read-only for root, too."""
    folder = str(copy.parent)
    if subprocess.run(
        ["mount", "--bind", folder, folder], capture_output=True, check=False
    ).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], capture_output=True, check=True)
        yield copy
    finally:
        subprocess.run(["umount", folder], capture_output=True, check=False)


def _check_reading(place: Path) -> None:
    before = sorted(path.name for path in place.parent.iterdir())
    assert len(audit_ledger(place, load_key(place, {}, "")).rows) == 6
    ledger = Ledger.open(place, environment={})
    assert ledger.accounts.total("affairs").spent.releases == 1
    with pytest.raises(BudgetError, match="cannot be used: attempt to write a readonly database"):
        ledger.accounts.change_cap("affairs", 2.0, 1e-6, "more", "steward")
    assert sorted(path.name for path in place.parent.iterdir()) == before


def test_a_copy_that_is_declared_read_only_is_read(copy: Path, declare: Declare) -> None:
    """As it would be for another user, or on a disc: verified and shown, not written, and no file appears beside it."""
    declare(folder=False, file=False)
    _check_reading(copy)


@pytest.mark.system
def test_a_read_only_mount_is_read(mounted: Path) -> None:
    """The real thing, where the machine can."""
    assert database_uri(mounted).endswith("?mode=ro&immutable=1")
    _check_reading(mounted)


def test_facts_are_those_of_the_files(
    ledger: Ledger, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger in use has a log and an index, which are read where its folder cannot be written; one at rest has neither."""
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != location.parent and access(path, mode)
    )
    assert database_uri(location).endswith("?mode=ro&immutable=1")
    monkeypatch.undo()
    with ledger.session.writing():
        monkeypatch.setattr(
            os, "access", lambda path, mode: path != location.parent and access(path, mode)
        )
        assert database_uri(location).endswith("?mode=rw")
        monkeypatch.undo()
