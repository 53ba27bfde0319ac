"""Sets private bytes aside while a stage works: in blocks, or sorted onto shelves as they come and read shelf by shelf."""

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
    """Make a folder in `private` for files that several processes of a stage read; remove it at the end.

    Files that a faulty disk does not remove are removed by the next attempt.
    """
    with at_place(private, "written"):
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=private))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_scratch(private: Path) -> None:
    """Remove scratch folders of killed attempts from `private`."""
    for folder in private.glob(f"{_SCRATCH}*"):
        shutil.rmtree(folder, ignore_errors=True)


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
    """Numbered shelves of pieces in one file of `folder`; only the place of each piece is in memory.

    The file has no name and mode 0600: it disappears however the process ends.
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
        """Yield the pieces of a shelf in the order in which they were put there; raises MachineError if the disk refuses."""
        for place, length in self._places[shelf]:
            with at_place(self._folder, "read"):
                self._file.seek(place)
                payload = self._file.read(length)
            yield payload

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
