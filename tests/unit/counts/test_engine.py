"""What is made ready before a run is charged."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from marginweave.base.errors import StageError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.counts.engine import prepare_engine
from marginweave.draws.references import RunReference
from marginweave.released.manifest import Manifest
from tests.support.configurations import configuration


def begun(home: Path, **settings: object) -> RunReference:
    """A run in which nothing was done yet."""
    config, folder = configuration(**settings), RunFolder.at(home, "one")
    folder.create()
    folder.write_manifest(
        Manifest(
            run="one",
            dataset=config.dataset,
            release=str(uuid.uuid4()),
            written=config.written,
            configuration=config.canonical(),
            configuration_digest=config.digest,
            execution=config.execution,
            source="t.csv",
            source_digest="0" * 64,
            created=datetime.now(UTC),
        )
    )
    return RunReference(folder=folder, source="t.csv", ledger_file=home / "ledger", lease="one")


def test_what_a_killed_attempt_has_left_is_removed(tmp_path: Path) -> None:
    reference = begun(tmp_path)
    (reference.folder.private / "scratch-abc" / "scheduler").mkdir(parents=True)
    prepare_engine(reference)
    assert not list(reference.folder.private.glob("scratch-*"))


def test_a_cluster_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = pytest.importorskip("marginweave.counts.cluster")
    monkeypatch.setattr(cluster, "_PATIENCE", "1s")
    prepare_engine(begun(tmp_path / "here", engine={"dask": "local"}))
    with pytest.raises(StageError, match="cannot be reached"):
        prepare_engine(begun(tmp_path / "there", engine={"dask": "tcp://127.0.0.1:1"}))
