"""What was measured: figures, one JSON line each, and the line through those of a growing table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measurement: of which case, at what size, when, beside what load of the machine, and what came of it."""

    name: str
    rows: int
    columns: int
    length: int
    date: str
    load: float
    numbers: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.numbers[key]

    @property
    def failed(self) -> str:
        """Why nothing was released; empty if it was."""
        return str(self.numbers.get("ended", ""))

    @property
    def beyond(self) -> float:
        """Peak of the memory without what imports hold."""
        return float(self["peak"] - self["imports"])


def figure(name: str, rows: int, columns: int, length: int, **numbers: Any) -> Figure:
    """A figure of now."""
    date = datetime.now(UTC).date().isoformat()
    load = os.getloadavg()[2]  # of 15 minutes: more than the benchmark itself
    return Figure(
        name=name, rows=rows, columns=columns, length=length, date=date, load=load, numbers=numbers
    )


def append(path: Path, figure: Figure) -> None:
    """Write a figure down at once: a run that is cut short keeps it."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(figure)) + "\n")


def read(path: Path) -> list[Figure]:
    """All figures of a file; of the same case and size the last one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    figures = [Figure(**json.loads(line)) for line in lines]
    last = {(f.name, f.rows): f for f in figures}
    return sorted(last.values(), key=lambda f: (f.name, f.rows))


@dataclass(frozen=True, kw_only=True)
class Line:
    """fixed + slope n, which misses a measured value by `residuals`, in shares of the line's own."""

    fixed: float
    slope: float
    residuals: tuple[float, ...]

    def at(self, rows: float) -> float:
        """The value at so many rows."""
        return self.fixed + self.slope * rows


def fit_line(rows: Sequence[int], values: Iterable[float]) -> Line | None:
    """The line through the points of least squared relative distance; None for fewer than three points.

    Minimizes sum ((a + b n_i - y_i) / y_i)^2, so that a table of 20 million rows does not outweigh one of 10 thousand.
    """
    n, y = np.array(rows, float), np.array(list(values), float)
    if len(n) < 3:
        return None
    (fixed, slope), *_ = np.linalg.lstsq(
        np.stack([1 / y, n / y], axis=1), np.ones(len(n)), rcond=None
    )
    fitted = fixed + slope * n
    return Line(
        fixed=float(fixed), slope=float(slope), residuals=tuple(float(r) for r in y / fitted - 1)
    )
