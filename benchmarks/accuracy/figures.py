"""What was measured: a figure a cell, one JSON line each; the last line of a cell counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One synthesis: a method on a table at an epsilon. `seed` numbers the repetitions; ours take it as public seed, too."""

    table: str
    epsilon: float
    method: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What came of a cell under the `settings` that the method had, and on which machine."""

    cell: Cell
    settings: dict[str, Any]
    system: str
    version: str
    delta: float
    rows: int
    columns: int
    date: str
    load: float
    machine: dict[str, str]
    numbers: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.numbers[key]

    @property
    def failed(self) -> str:
        """Why there are no records; empty if there are."""
        return str(self.numbers["ended"])


def append(path: Path, figure: Figure) -> None:
    """Write a figure down at once: a run that is cut short keeps it. What is left of a line cut short is removed."""
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(asdict(figure)).encode() + b"\n")


def read(path: Path) -> dict[Cell, Figure]:
    """All figures of a file; of the same cell the last one. The end of a line that was being written is passed over."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    figures = [json.loads(line) for line in lines if line.endswith("\n")]
    made = [Figure(**(fields | {"cell": Cell(**fields["cell"])})) for fields in figures]
    return {figure.cell: figure for figure in made}


def current(
    kept: Mapping[Cell, Figure], settings: Callable[[Cell], Mapping[str, Any] | None]
) -> dict[Cell, Figure]:
    """The figures of methods that are still what they were when they were measured."""
    return {cell: figure for cell, figure in kept.items() if settings(cell) == figure.settings}


def is_done(cell: Cell, kept: Mapping[Cell, Figure]) -> bool:
    """Whether a cell has its figure; one that broke down is tried again."""
    return cell in kept and not kept[cell].failed.startswith("exit code")


def is_hopeless(cell: Cell, kept: Iterable[Figure]) -> bool:
    """Whether another repetition was stopped at its limit: this one would be, too."""
    same = (
        f
        for f in kept
        if (f.cell.table, f.cell.epsilon, f.cell.method) == (cell.table, cell.epsilon, cell.method)
    )
    return any(figure.failed.startswith("stopped") for figure in same)
