"""Repeatable random bits for tests; what is made with them is tainted."""

from __future__ import annotations

import hashlib


class SeededBits:
    """SHAKE-256 of a seed and the number of the call: the same seed and the same calls give the same bytes."""

    tainted = True

    def __init__(self, seed: int) -> None:
        self._seed = seed.to_bytes(16, "big", signed=True)
        self._calls = 0

    def take(self, nbytes: int) -> bytes:
        """The next `nbytes` bytes."""
        self._calls += 1
        return hashlib.shake_256(self._seed + self._calls.to_bytes(8, "big")).digest(nbytes)
