"""How far a long series of kills has come: kept in a file, so that it goes on another day where it stopped."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Walk:
    """Numbered runs, each with random choices of its own; `figures` counts what came of those that have ended.

    With a `file`, what it holds is gone on with, and it is written after every run.
    """

    part: str
    file: Path | None
    figures: Counter[str] = field(default_factory=Counter)
    seed: int = 1
    _numbers: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        kept = self._kept().get(self.part)
        if kept is not None:
            self.seed, self._numbers, self.figures = (
                kept["seed"],
                kept["numbers"],
                Counter(kept["figures"]),
            )

    def choices(self) -> tuple[int, random.Random]:
        """The number of the next run, and its choices."""
        with self._lock:
            number, self._numbers = self._numbers, self._numbers + 1
        return number, random.Random(f"{self.seed}/{self.part}/{number}")

    def add(self, ended: Counter[str]) -> None:
        """Book a run that has ended."""
        with self._lock:
            self.figures += ended
            if self.file is not None:
                mine = {
                    "seed": self.seed,
                    "numbers": self._numbers,
                    "figures": dict(sorted(self.figures.items())),
                }
                staged = self.file.with_suffix(".new")
                staged.write_text(json.dumps({**self._kept(), self.part: mine}, indent=1) + "\n")
                staged.replace(self.file)

    def _kept(self) -> dict[str, Any]:
        if self.file is None or not self.file.exists():
            return {}
        kept: dict[str, Any] = json.loads(self.file.read_text())
        return kept
