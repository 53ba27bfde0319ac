"""A run folder and its stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.checkpoints.run_folder import RunFolder
from marginweave.checkpoints.store import Store
from marginweave.draws.files import DrawStore
from tests.support.draws import KEY


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.at(tmp_path / "home", "affairs-0123abcd")
    made.create()
    return made


@pytest.fixture
def store(folder: RunFolder) -> Store:
    return Store(folder.private, KEY)


@pytest.fixture
def draw_store(folder: RunFolder) -> DrawStore:
    return DrawStore(folder, KEY)
