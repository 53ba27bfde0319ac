"""A path alone leads from an import to its definition, on the clone, with nothing installed: the library is below `src`.

`flows`, `tasks` and `schemas` import each other relatively; all of them import the library absolutely.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.places import REPOSITORY
from tests.support.syntax import nodes

SOURCE = REPOSITORY / "src"
PIPELINE = ("flows", "tasks", "schemas")
# The front door loads its public names when they are asked for: what a checker sees of them is for checkers alone.
FRONT_DOOR = SOURCE / "marginweave" / "__init__.py"
MODULES = sorted(
    path
    for folder in (*(REPOSITORY / name for name in PIPELINE), SOURCE / "marginweave")
    for path in folder.rglob("*.py")
    if path != FRONT_DOOR
)


@cache
def names_of(path: Path) -> frozenset[str]:
    """What a module defines or imports, at whatever depth; what it offers lazily it imports for checkers."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


def place_of_module(folder: Path, dotted: str) -> Path | None:
    """Return the file of a module or of a package, counted from `folder`; None where there is none."""
    place = folder.joinpath(*dotted.split(".")) if dotted else folder
    candidates = (
        (place.with_suffix(".py"), place / "__init__.py") if dotted else (place / "__init__.py",)
    )
    return next((file for file in candidates if file.is_file()), None)


def imported(path: Path) -> Iterator[tuple[str, Path, str, str]]:
    """Yield each import of ours from another module: a line to show, a folder, the dotted path from there, and a name."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                folder = path.parents[node.level - 1]
            elif module.partition(".")[0] == "marginweave":
                folder = SOURCE
            else:
                continue
            for alias in node.names:
                yield (
                    f"{path.relative_to(REPOSITORY)}:{node.lineno} {module} {alias.name}",
                    folder,
                    module,
                    alias.name,
                )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.partition(".")[0] != "marginweave", f"{path}: write from … import"


def resolves(folder: Path, module: str, name: str) -> bool:
    """Whether a name is defined in the module, or is a module of the package, that lies below `folder`."""
    file = place_of_module(folder, module)
    if file is not None and name in names_of(file):
        return True
    return place_of_module(folder, f"{module}.{name}" if module else name) is not None


def test_every_import_resolves_by_path_alone() -> None:
    imports = [found for path in MODULES for found in imported(path)]
    assert len(imports) > 4000
    assert [
        line for line, folder, module, name in imports if not resolves(folder, module, name)
    ] == []


def test_there_is_no_link() -> None:
    """An archive that was unpacked without links is whole."""
    entries = subprocess.run(
        ["git", "ls-files", "-s"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout
    assert len(entries.splitlines()) > 900
    assert [line for line in entries.splitlines() if line.startswith("120000")] == []


def test_a_name_that_is_not_there_is_found() -> None:
    assert resolves(SOURCE, "marginweave.base.errors", "InputError")
    assert not resolves(SOURCE, "marginweave.base.errors", "NoSuchError")
    assert not resolves(SOURCE, "marginweave.flows.release", "release")
    assert resolves(REPOSITORY / "flows", "release", "release")


def test_the_pipeline_is_imported_relatively() -> None:
    """From an absolute name of flows, tasks or schemas a path leads nowhere; the library imports none of them at all."""
    absolute = tuple(f"marginweave.{name}" for name in PIPELINE)
    modules = [(line, module) for path in MODULES for line, _, module, _ in imported(path)]
    assert [line for line, module in modules if module.startswith(absolute)] == []
    library = [path for path in MODULES if path.is_relative_to(SOURCE)]
    relative = [
        node
        for path in library
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []
