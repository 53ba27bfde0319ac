"""The rooms of the house, drawn from the imports; `python -m tests.support.rooms` writes them into docs/architecture.md."""

from __future__ import annotations

import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

from grimp import ImportGraph, build_graph

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
BLOCK = re.compile(r"(?<=```text rooms\n).*?(?=```)", re.DOTALL)


def import_graph() -> ImportGraph:
    """Every import between modules, also those under TYPE_CHECKING and inside functions."""
    return build_graph("marginweave", cache_dir=None)


def room_of(module: str) -> str:
    """The room of a module: a folder, or a module that stands beside them; `marginweave` is left out."""
    return ".".join(module.split(".")[1:3])


def imports_of_rooms(graph: ImportGraph) -> dict[str, set[str]]:
    """room → the other rooms that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - {"marginweave", "marginweave.flows", "marginweave.tasks", "marginweave.schemas"}:
        found[room_of(module)] |= {room_of(other) for other in graph.find_modules_directly_imported_by(module)}
    return {room: others - {room} for room, others in found.items()}


def floors(imports: dict[str, set[str]]) -> list[list[str]]:
    """Rooms, the highest floor first; each imports lower floors alone. Raises graphlib.CycleError for a circle."""
    sorter, found = TopologicalSorter(imports), list[list[str]]()
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found.append(ready)
        sorter.done(*ready)
    return found[::-1]


def drawing() -> str:
    """A line a floor, and below each room what it imports of its own part of the house."""
    imports = imports_of_rooms(import_graph())
    lines = []
    for number, rooms in reversed(list(enumerate(floors(imports)[::-1]))):
        for room in rooms:
            part = room.split(".")[0]
            own = sorted(other.split(".")[-1] for other in imports[room] if other.split(".")[0] == part)
            lines.append(f"{number:>2}  {room:<24}{' '.join(own)}".rstrip())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda _: drawing(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
