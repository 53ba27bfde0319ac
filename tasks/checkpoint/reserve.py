"""Room on a disk that is set aside while there is some, and given up when what must be written finds none."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from marginweave.tasks.checkpoint.files import PRIVATE_MODE


@dataclass(frozen=True)
class Reserve:
    """A file of `size` bytes that holds nothing, at `place`."""

    place: Path
    size: int

    def make(self) -> bool:
        """Set the room aside where it is not; whether it is there now."""
        try:
            descriptor = os.open(self.place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_MODE)
        except OSError:
            return False
        try:
            if os.fstat(descriptor).st_size < self.size:
                os.posix_fallocate(descriptor, 0, self.size)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            return False
        finally:
            os.close(descriptor)
        return True

    def give_up(self) -> bool:
        """Free the room; whether there was any."""
        try:
            held = self.place.stat().st_size > 0
            self.place.unlink()
        except OSError:
            return False
        return held
