"""What is set aside while a stage works: read back shelf by shelf, and gone however the process ends."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import MachineError
from marginweave.checkpoints.spill import Spill


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=9)), max_size=12))
@settings(deadline=None, max_examples=20)
def test_every_shelf_has_its_pieces_in_order(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, bytes]]
) -> None:
    """Also where it is read between two writes."""
    expected = defaultdict(list)
    with Spill(tmp_path_factory.mktemp("spill")) as spill:
        for shelf, piece in pieces:
            spill.put(shelf, piece)
            expected[shelf].append(piece)
            assert list(spill.pieces(shelf)) == expected[shelf]
        assert all(list(spill.pieces(shelf)) == expected[shelf] for shelf in range(4))


def test_the_file_has_no_name(tmp_path: Path) -> None:
    """Nothing has to be removed: a process that is killed leaves nothing behind either."""
    with Spill(tmp_path) as spill:
        spill.put(0, b"private")
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be written"):
        Spill(tmp_path / "absent")
