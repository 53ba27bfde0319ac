"""Private bytes that are set aside while a stage works: sorted onto shelves as they come, read shelf by shelf; or in blocks."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from marginweave.base.durable import at_place
from marginweave.checkpoints.store import BlockFile, write_blocks

_SCRATCH = "scratch-"


@contextmanager
def scratch_folder(private: Path) -> Iterator[Path]:
    """A folder in `private` for files of a stage that other processes of it read, too; removed at the end.

    What a faulty disk does not let go of is removed by the next attempt.
    """
    with at_place(private, "written"):
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=private))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_scratch(private: Path) -> None:
    """Remove what killed attempts have left in `private`."""
    for rest in private.glob(f"{_SCRATCH}*"):
        shutil.rmtree(rest, ignore_errors=True)


def set_aside(folder: Path, key: bytes, payloads: Iterable[bytes]) -> BlockFile:
    """Write `payloads`, one at a time in memory, to a new file of `folder` (0600); they are verified under `key` when read.

    Raises:
        MachineError: the disk refuses.
    """
    path = folder / secrets.token_hex(16)
    return write_blocks(path, key, (path.name,), payloads)


def discard_blocks(blocks: BlockFile) -> None:
    """Remove the file of `blocks`; raises MachineError if the disk refuses."""
    with at_place(blocks.path, "removed"):
        blocks.path.unlink(missing_ok=True)


class Spill:
    """Numbered shelves of pieces in one file of `folder` that has no name (0600): it is gone however the process ends.

    Only the place of each piece is in memory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with at_place(folder, "written"):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._end = 0

    def put(self, shelf: int, payload: bytes) -> None:
        """Add a piece to a shelf; raises MachineError if the disk refuses."""
        with at_place(self._folder, "written"):
            self._file.seek(self._end)
            self._file.write(payload)
        self._places[shelf].append((self._end, len(payload)))
        self._end += len(payload)

    def pieces(self, shelf: int) -> Iterator[bytes]:
        """The pieces of a shelf in the order in which they were put there; raises MachineError if the disk refuses."""
        for place, length in self._places[shelf]:
            with at_place(self._folder, "read"):
                self._file.seek(place)
                payload = self._file.read(length)
            yield payload

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
