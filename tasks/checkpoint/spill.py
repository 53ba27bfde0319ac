"""Private bytes that are set aside while a stage works: sorted onto shelves as they come, read shelf by shelf."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from marginweave.tasks.checkpoint.files import at_place


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
