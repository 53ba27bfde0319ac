"""A copy of a ledger that nobody may write can be verified and shown, and says so where rows are out of reach."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from marginweave.schemas.errors import BudgetError
from marginweave.tasks.ledger import Ledger, connection
from marginweave.tasks.ledger.audit import audit_ledger
from marginweave.tasks.ledger.connection import Access, access_to, database_uri
from marginweave.tasks.ledger.keys import load_key


def _access(folder: bool, file: bool, log: int | None = None, shared: bool = False) -> Access:
    return Access(folder_writable=folder, file_writable=file, log_bytes=log, shared=shared)


@pytest.mark.parametrize(
    ("access", "query"),
    [
        (_access(True, True), "mode=rw"),
        (_access(True, True, 4096, True), "mode=rw"),
        (_access(True, False), "mode=ro"),
        (_access(True, False, 4096, False), "mode=ro"),
        (_access(False, True, 4096, True), "mode=rw"),
        (_access(False, False, 4096, True), "mode=ro"),
        (_access(False, False, 0, True), "mode=ro"),
        (_access(False, False), "mode=ro&immutable=1"),
        (_access(False, False, 0), "mode=ro&immutable=1"),
        (_access(False, True), "mode=ro&immutable=1"),
    ],
)
def test_a_file_is_opened_as_its_place_allows(access: Access, query: str) -> None:
    """That nothing changes is promised only where the folder cannot be written and no log holds rows."""
    assert database_uri(Path("/a folder/ledger.sqlite"), access) == f"file:///a%20folder/ledger.sqlite?{query}"


@pytest.mark.parametrize("file", [True, False])
def test_rows_in_a_log_that_cannot_be_read_are_not_left_out(file: bool) -> None:
    with pytest.raises(
        BudgetError, match=r"newest rows of the ledger .* are in ledger\.sqlite-wal, which cannot be read"
    ):
        database_uri(Path("/a/ledger.sqlite"), _access(False, file, 4096))


@pytest.fixture
def copy(ledger: Ledger, reserve, location: Path, tmp_path: Path) -> Path:
    """A copy of a ledger at rest, key beside it."""
    reserve()
    return Path(shutil.copytree(location.parent, tmp_path / "copy")) / location.name


@pytest.fixture
def mounted(copy: Path) -> Iterator[Path]:
    """The copy on a mount that is read-only for root, too."""
    folder = str(copy.parent)
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False).returncode:
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


def test_a_copy_that_is_declared_read_only_is_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be for another user, or on a disc: verified and shown, not written, and no file appears beside it."""
    monkeypatch.setattr(connection, "access_to", lambda _: _access(False, False))
    _check_reading(copy)


@pytest.mark.system
def test_a_read_only_mount_is_read(mounted: Path) -> None:
    """The real thing, where the machine can."""
    assert access_to(mounted) == _access(False, False)
    _check_reading(mounted)


def test_facts_are_those_of_the_files(ledger: Ledger, location: Path) -> None:
    """A ledger in use has a log and an index, one at rest has neither."""
    assert access_to(location) == _access(True, True)
    with ledger.session.writing():
        used = access_to(location)
    assert used.shared
    assert used.log_bytes is not None
    assert access_to(location.parent / "nothing.sqlite") == _access(True, False)
