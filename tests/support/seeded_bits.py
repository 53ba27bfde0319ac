"""Repeatable noise for tests; what is made with it is tainted."""

from __future__ import annotations

import hashlib

from marginweave.mechanisms.randomness import DrawBits


class SeededBits(DrawBits):
    """The noise of a draw whose seed follows from a number; each `context` is another draw of that seed."""

    def __init__(self, seed: int, *context: str | int) -> None:
        key = hashlib.sha256(f"seed of a test: {seed}".encode()).digest()
        super().__init__(seed=key, context=context, tainted=True)
