"""A run's folders keep private and releasable things apart, and its manifest is always whole."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from marginweave.base import durable as files
from marginweave.base.errors import InputError, StageError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.released.manifest import Manifest, RunState, StageEntry

NOW = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
DIGEST = "ab" * 32


def make_manifest(**changes: object) -> Manifest:
    configuration = '{"dataset":"affairs"}'
    facts: dict[str, object] = {
        "run": "affairs-0123abcd",
        "dataset": "affairs",
        "release": "affairs-0123abcd",
        "written": '{"format":2,"written":{"dataset":"affairs"}}',
        "configuration": configuration,
        "configuration_digest": hashlib.sha256(configuration.encode()).hexdigest(),
        "source": "example:affairs",
        "source_digest": DIGEST,
        "created": NOW,
    }
    return Manifest.model_validate({**facts, **changes})


def test_folders_have_their_modes(tmp_path: Path) -> None:
    """Every folder and the manifest are the owner's alone, under a permissive umask and after somebody opened them."""
    folder = RunFolder.at(tmp_path, "run-1")
    assert folder.path == tmp_path / "runs" / "run-1"
    before = os.umask(0)
    try:
        folder.create()
        folder.private.chmod(0o755)
        folder.create()
    finally:
        os.umask(before)
    folder.write_manifest(make_manifest())
    assert {
        p.stat().st_mode & 0o777
        for p in (folder.path.parent, folder.path, *folder.path.rglob("*"))
        if p.is_dir()
    } == {0o700}
    assert folder.manifest_file.stat().st_mode & 0o777 == 0o600
    assert folder.release.is_dir()


@pytest.mark.parametrize("run", ["", "..", "a/b", "-x", "x" * 65])
def test_run_names_cannot_leave_the_home(tmp_path: Path, run: str) -> None:
    """A name that is a path is bad input."""
    with pytest.raises(InputError, match="must be 1 to 64"):
        RunFolder.at(tmp_path, run)


def test_links_in_the_place_of_folders_are_refused(tmp_path: Path) -> None:
    """Private files never go where a link points."""
    folder = RunFolder.at(tmp_path, "run")
    folder.path.mkdir(parents=True)
    folder.private.symlink_to(tmp_path)
    with pytest.raises(StageError, match="not a link"):
        folder.create()


def test_purging_removes_private_and_marks_it(folder: RunFolder, tmp_path: Path) -> None:
    """Only private/ and derived/ go, only their stages are marked, links lead nowhere, and purging again changes nothing."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (folder.private / "encode-0.ckpt").write_bytes(b"private")
    (folder.private / "link").symlink_to(outside)
    (folder.derived / "normalize-0.ckpt").write_bytes(b"derived")
    (folder.release / "a.csv").write_text("released")
    manifest = make_manifest(
        stages={
            "encode": StageEntry(file="private/encode-0.ckpt", digest=DIGEST, finished=NOW),
            "normalize": StageEntry(file="derived/normalize-0.ckpt", digest=DIGEST, finished=NOW),
            "publish": StageEntry(
                file="release/a.csv", digest=DIGEST, finished=NOW, charged=("count",)
            ),
        }
    )
    folder.write_manifest(manifest)
    folder.purge_private()
    purged = folder.read_manifest()
    assert purged is not None
    assert not folder.private.exists()
    assert not folder.derived.exists()
    assert purged.stages["normalize"].purged is not None
    assert (outside / "kept").read_text() == "kept"
    assert (folder.release / "a.csv").exists()
    assert purged.stages["publish"] == manifest.stages["publish"]
    time = purged.stages["encode"].purged
    assert time is not None
    assert abs(datetime.now(UTC) - time) < timedelta(minutes=1)
    folder.purge_private()
    assert folder.read_manifest() == purged


def test_purging_a_link_leaves_its_target(folder: RunFolder, tmp_path: Path) -> None:
    """private/ replaced by a link: the link goes, what it points to stays."""
    target = folder.private.rename(tmp_path / "moved")
    folder.private.symlink_to(target)
    folder.purge_private()
    assert not folder.private.is_symlink()
    assert target.is_dir()


def test_manifest_is_old_or_new(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault while writing leaves the old manifest and no other file."""
    assert folder.read_manifest() is None
    old = make_manifest()
    folder.write_manifest(old)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fail)
        with pytest.raises(StageError, match=r"manifest\.json cannot be written: No space left"):
            folder.write_manifest(old.with_state(RunState.FAILED))
    assert folder.read_manifest() == old
    assert {path.name for path in folder.path.iterdir()} == {
        "manifest.json",
        "private",
        "derived",
        "internal",
        "release",
    }


def test_manifest_is_replaced_not_written_over(folder: RunFolder) -> None:
    """Whoever reads the old manifest while a new one is written reads the whole old one."""
    old = make_manifest()
    folder.write_manifest(old)
    with folder.manifest_file.open("rb") as reader:
        folder.write_manifest(old.with_state(RunState.FINISHED))
        assert Manifest.from_json(reader.read()) == old


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": 4}', "\xff"])
def test_what_is_no_manifest_is_refused(folder: RunFolder, text: str) -> None:
    """A file of another kind or version stops the run instead of being guessed at."""
    folder.manifest_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(
        StageError,
        match=r"manifest\.json is damaged, or of another version of marginweave; restore it",
    ):
        folder.read_manifest()


@pytest.mark.parametrize(
    "change",
    [
        {"configuration_digest": DIGEST},
        {"source_digest": "x"},
        {"outputs": {"../a": DIGEST}},
        {"outputs": {"/a": DIGEST}},
        {"stages": {"a": {"file": "private/../../x", "digest": DIGEST, "finished": NOW}}},
        {"created": NOW.replace(tzinfo=None)},
        {"rows": 3},
    ],
)
def test_manifests_hold_what_they_should_only(change: dict[str, object]) -> None:
    """Digests fit, files stay inside the run, times have a zone, and there is no room for anything else."""
    with pytest.raises(ValidationError):
        make_manifest(**change)


_NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True)
_TIMES = st.datetimes(timezones=st.just(UTC))
_STAGES = st.builds(
    StageEntry,
    file=_NAMES.map("private/{}".format),
    digest=st.binary(min_size=32, max_size=32).map(bytes.hex),
    charged=st.lists(st.text(max_size=5)).map(tuple),
    finished=_TIMES,
    purged=st.none() | _TIMES,
)


@settings(max_examples=25, deadline=None)
@given(
    stages=st.lists(st.tuples(_NAMES, _STAGES), max_size=4),
    configuration=st.text(),
    source=st.text(),
    state=st.sampled_from(RunState),
)
def test_manifests_survive_json(
    stages: list[tuple[str, StageEntry]], configuration: str, source: str, state: RunState
) -> None:
    """Any manifest reads back equal, with its stages in their order."""
    digest = hashlib.sha256(configuration.encode()).hexdigest()
    manifest = make_manifest(
        configuration=configuration, configuration_digest=digest, source=source
    ).with_state(state)
    for name, entry in stages:
        manifest = manifest.with_stage(name, entry)
    manifest = manifest.with_outputs({"synthetic.csv": DIGEST})
    back = Manifest.from_json(manifest.to_json())
    assert back == manifest
    assert list(back.stages) == list(dict.fromkeys(name for name, _ in stages))
