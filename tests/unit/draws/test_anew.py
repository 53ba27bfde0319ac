"""A damaged checkpoint of a deterministic stage needs nobody: the next attempt computes it anew."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from marginweave.checkpoints.store import Store
from marginweave.runs.capabilities import CheckpointReference, StageResult

KEY = bytes(range(32))
BLOCKS = [b"first block", b"second block"]


class _Stages(CheckpointReference):
    """Stages that depend on nothing but their names."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @cached_property
    def store(self) -> Store:
        return Store(self.place, KEY)

    def _slice(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("place", range(0, 200, 7))
def test_a_damaged_checkpoint_is_computed_anew(tmp_path: Path, place: int) -> None:
    """Whichever byte is flipped, of one payload or of blocks: the same bytes stand there again; what is whole stands."""
    stages, computed = _Stages(tmp_path), []

    def compute() -> bytes:
        computed.append("payload")
        return b"payload" * 20

    def blocks() -> list[bytes]:
        computed.append("blocks")
        return BLOCKS

    def both() -> StageResult:
        stages.checkpoint("one", [], compute)
        return stages.checkpoint_blocks("many", [], blocks)

    both()
    many = both()
    assert computed == ["payload", "blocks"]
    files = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for file, content in files.items():
        at = place % len(content)
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    both()
    assert computed == ["payload", "blocks"] * 2
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == files
    assert list(stages.load_blocks(many)) == BLOCKS
