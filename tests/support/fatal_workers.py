"""Functions for workers: they leave a line for every call, and some of them kill the process that they run in."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from marginweave.prepare.codes import EncodedBlocks, EncodedTable


@dataclass(frozen=True)
class Square:
    """Squares a number; writes down who did it."""

    calls: Path

    def __call__(self, number: int) -> int:
        """The square."""
        with self.calls.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        return number * number


@dataclass(frozen=True)
class Slow(Square):
    """Takes its time over all numbers but the first."""

    def __call__(self, number: int) -> int:
        """The square."""
        if number > 1:
            time.sleep(30)
        return super().__call__(number)


@dataclass(frozen=True)
class Failing:
    """Raises an error that quotes its part and what it holds."""

    secret: str

    def __call__(self, name: str) -> int:
        """Never returns."""
        raise ValueError(f"{self.secret} {name}")


@dataclass(frozen=True)
class FatalBlocks:
    """Blocks of which one kills the process that reads it, as often as `deaths` says."""

    blocks: EncodedBlocks
    fatal: int
    deaths: int
    marks: Path

    @property
    def offsets(self) -> tuple[int, ...]:
        """As the blocks."""
        return self.blocks.offsets

    def table(self, block: int) -> EncodedTable:
        """The records of one block, unless this is the end."""
        if block == self.fatal and os.getpid() != int((self.marks / "client").read_text()):
            died = len(list(self.marks.glob("death-*")))
            if died < self.deaths:
                (self.marks / f"death-{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.blocks.table(block)
