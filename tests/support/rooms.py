"""The rooms of the house, drawn from the imports; `python -m tests.support.rooms` writes them into docs/architecture.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter

from tests.support.one_tree import unpacked_wheel
from tests.support.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "architecture.md"
BLOCK = re.compile(r"(?<=```text rooms\n).*?(?=```)", re.DOTALL)
# A process that finds the product in one tree: module → what it imports, by the graph of import-linter.
_GRAPH = """
import grimp, json
graph = grimp.build_graph("marginweave", include_external_packages=True, cache_dir=None)
print(json.dumps({module: sorted(graph.find_modules_directly_imported_by(module)) for module in graph.modules}))
"""
Imports = dict[str, set[str]]


@cache
def imports_of_modules() -> Imports:
    """Return module → the modules and libraries that it imports, also under TYPE_CHECKING and inside functions."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked_wheel())}
    done = subprocess.run(
        [sys.executable, "-c", _GRAPH], env=environment, check=True, capture_output=True, text=True
    )
    imports: dict[str, list[str]] = json.loads(done.stdout)
    return {module: {*names} for module, names in imports.items() if is_ours(module)}


def is_ours(module: str) -> bool:
    """Return whether a module is one of the product."""
    return module.partition(".")[0] == "marginweave"


def room_of(module: str) -> str:
    """Return the room of a module: a folder of the library; `flows.cli` and its like; `tasks` and `schemas` whole."""
    parts = module.split(".")[1:]
    if parts[0] == "flows" and len(parts) > 1:
        return ".".join(parts[:2])
    return parts[0]


def imports_of_rooms(imports: Imports) -> Imports:
    """Return room → the other rooms that it imports. The front door and the package of `flows` are no rooms."""
    rooms: Imports = defaultdict(set)
    for module, names in imports.items():
        if module not in {"marginweave", "marginweave.flows"}:
            others = {name for name in names if is_ours(name)} - {
                "marginweave",
                "marginweave.flows",
            }
            rooms[room_of(module)] |= {room_of(name) for name in others} - {room_of(module)}
    return dict(rooms)


def rooms_that_know(library: str) -> set[str]:
    """Return the rooms of which a module imports `library`; `flows` counts as one."""
    return {
        room_of(module).partition(".")[0]
        for module, names in imports_of_modules().items()
        if library in names
    }


def floors(imports: Imports) -> list[list[str]]:
    """Return the rooms, the highest floor first; each imports lower floors alone. Raises graphlib.CycleError for a circle."""
    sorter, found = TopologicalSorter(imports), list[list[str]]()
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found.append(ready)
        sorter.done(*ready)
    return found[::-1]


def drawing() -> str:
    """Return a line a room, the highest floor first, with the rooms that it imports."""
    imports = imports_of_rooms(imports_of_modules())
    lines = []
    for number, rooms in reversed(list(enumerate(floors(imports)[::-1]))):
        lines += [
            f"{number:>2}  {room:<19} {' '.join(sorted(imports[room]))}".rstrip() for room in rooms
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(
        BLOCK.sub(lambda _: drawing(), PAGE.read_text(encoding="utf-8")), encoding="utf-8"
    )
