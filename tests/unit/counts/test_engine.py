"""Threads are an engine; what is made ready before a run is charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.base.errors import StageError
from marginweave.base.parallel import LocalEngine
from marginweave.counts.engine import prepare_engine
from tests.support.configurations import configuration
from tests.support.engine_tests import EngineTests


class TestLocal(EngineTests):
    """Threads of this process, and one core without any."""

    failure = ValueError

    @pytest.fixture(params=[1, 3])
    def engine(self, request: pytest.FixtureRequest) -> LocalEngine:
        return LocalEngine(request.param)


def test_what_a_killed_attempt_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "scratch-abc" / "scheduler").mkdir(parents=True)
    prepare_engine(configuration(), (), tmp_path)
    assert not list(tmp_path.glob("scratch-*"))


def test_a_cluster_has_to_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = pytest.importorskip("marginweave.counts.cluster")
    monkeypatch.setattr(cluster, "_PATIENCE", "1s")
    prepare_engine(configuration(engine={"dask": "local"}), (), tmp_path)
    with pytest.raises(StageError, match="cannot be reached"):
        prepare_engine(configuration(engine={"dask": "tcp://127.0.0.1:1"}), (), tmp_path)
