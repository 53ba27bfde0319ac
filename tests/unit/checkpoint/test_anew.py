"""A damaged checkpoint of a deterministic stage needs nobody: the next attempt computes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.tasks import references
from marginweave.tasks.checkpoint.store import Store

KEY = bytes(range(32))
BLOCKS = [b"first block", b"second block"]


@pytest.mark.parametrize("place", range(0, 200, 7))
def test_a_damaged_checkpoint_is_computed_anew(tmp_path: Path, place: int) -> None:
    """Whichever byte is flipped, of one payload or of blocks: the same bytes stand there again; what is whole stands."""
    store, computed = Store(tmp_path, KEY), []

    def compute() -> bytes:
        computed.append("payload")
        return b"payload" * 20

    def blocks() -> list[bytes]:
        computed.append("blocks")
        return BLOCKS

    def both() -> None:
        references._checkpoint(store, "one", "0" * 64, compute)
        references._checkpoint_blocks(store, "many", "1" * 64, blocks)

    both()
    both()
    assert computed == ["payload", "blocks"]
    files = {file: file.read_bytes() for file in tmp_path.iterdir()}
    for file, content in files.items():
        at = place % len(content)
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    both()
    assert computed == ["payload", "blocks"] * 2
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == files
    assert list(store.blocks("many", "1" * 64) or ()) == BLOCKS
