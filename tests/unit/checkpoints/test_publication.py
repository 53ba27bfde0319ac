"""What was booked becomes `release/` in one step, whichever attempt has staged it, and nothing else does."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from marginweave.base.errors import StageError
from marginweave.checkpoints.run_folder import (
    RunFolder,
    publish_staged,
    published_place,
    staged_release,
)

FILES = {"a.csv": b"a,b\n", "privacy.json": b"{}\n"}
BOOKED = {f"release/{name}": hashlib.sha256(content).hexdigest() for name, content in FILES.items()}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "runs" / "r")
    made.create()
    return made


def _stage(folder: RunFolder, lease: str, **changes: bytes) -> Path:
    place = staged_release(folder, lease)
    place.mkdir()
    for name, content in {**FILES, **{k.replace("_", "."): v for k, v in changes.items()}}.items():
        (place / name).write_bytes(content)
    return place


def test_the_booked_attempt_is_published_and_the_others_are_gone(folder: RunFolder) -> None:
    """Two attempts have staged; the ledger's digests say whose files count, not the order of their names."""
    _stage(folder, "aa", a_csv=b"other\n")
    _stage(folder, "bb")
    _stage(folder, "cc", privacy_json=b"")
    assert publish_staged(folder, BOOKED)
    assert {file.name: file.read_bytes() for file in folder.release.iterdir()} == FILES
    assert folder.staged_releases() == ()
    assert publish_staged(folder, BOOKED)


def test_what_was_not_booked_is_never_published(folder: RunFolder) -> None:
    """A changed, incomplete or missing attempt leaves `release/` empty."""
    _stage(folder, "aa", a_csv=b"other\n")
    (_stage(folder, "bb") / "a.csv").unlink()
    assert published_place(folder, BOOKED) is None
    assert not publish_staged(folder, BOOKED)
    assert list(folder.release.iterdir()) == []


def test_files_that_stand_in_the_way_are_not_lost(folder: RunFolder) -> None:
    """What somebody put into `release/` is neither replaced nor removed, and neither is what was staged."""
    (folder.release / "note.txt").write_text("mine")
    place = _stage(folder, "aa")
    with pytest.raises(StageError, match="release cannot be published"):
        publish_staged(folder, BOOKED)
    assert [file.name for file in folder.release.iterdir()] == ["note.txt"]
    assert published_place(folder, BOOKED) == place


def test_purging_removes_what_was_staged(folder: RunFolder) -> None:
    """An attempt that was never booked is not left behind."""
    _stage(folder, "aa")
    folder.remove_private()
    assert folder.staged_releases() == ()
