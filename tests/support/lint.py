"""Run the tools that must see the product as one tree, and fail where one of them has not seen every tracked module.

python -m tests.support.lint tree      # unpacks the wheel into build/tree
python -m tests.support.lint imports   # import-linter, over build/tree
python -m tests.support.lint types     # basedpyright, over build/tree, tests, benchmarks and deployments
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.one_tree import FOLDERS, module_of, tracked_files, unpack_wheel
from tests.support.places import REPOSITORY

TREE = REPOSITORY / "build" / "tree"
BIN = Path(sys.executable).parent
# Prints the modules that import-linter's graph has of what is imported as marginweave.
GRAPH = "import grimp; print(*grimp.build_graph('marginweave', cache_dir=None).modules)"


def make_tree() -> None:
    """Unpack the wheel of this checkout into build/tree."""
    shutil.rmtree(TREE, ignore_errors=True)
    unpack_wheel(TREE)


def lint_imports() -> None:
    """Check the import contracts of pyproject.toml."""
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    graph = subprocess.run(
        [sys.executable, "-c", GRAPH], env=environment, check=True, capture_output=True, text=True
    )
    require_all(
        {module_of(file) for file in tracked_modules()}, set(graph.stdout.split()), "import-linter"
    )
    done = subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def check_types() -> None:
    """Check the types of the product and of what is beside it; places are printed as they are in the checkout."""
    files = {str(path.relative_to(TREE)) for path in TREE.rglob("*.py")}
    if files != set(tracked_modules()):
        sys.exit(
            f"build/tree is not what is tracked: {', '.join(sorted(files ^ set(tracked_modules())))}"
        )
    command = [BIN / "basedpyright", "--level", "error", "--outputjson"]
    done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        sys.exit(done.stdout + done.stderr)
    for finding in report["generalDiagnostics"]:
        start = finding["range"]["start"]
        place = f"{in_checkout(Path(finding['file']))}:{start['line'] + 1}:{start['character'] + 1}"
        print(f"{place} - {finding['message']} ({finding.get('rule')})")  # noqa: T201
    beside = (
        path
        for folder in ("benchmarks", "deployments", "tests")
        for path in (REPOSITORY / folder).rglob("*.py")
    )
    expected = len(tracked_modules()) + sum("tests/data/" not in path.as_posix() for path in beside)
    if report["summary"]["filesAnalyzed"] < expected:
        sys.exit(f"basedpyright read {report['summary']['filesAnalyzed']} files of {expected}")
    if done.returncode:
        sys.exit(f"basedpyright: {report['summary']['errorCount']} errors")


def tracked_modules() -> list[str]:
    """Return the tracked modules of the product, by their names in a wheel."""
    return sorted(file for file in tracked_files() if file.endswith(".py"))


def require_all(expected: set[str], found: set[str], tool: str) -> None:
    """Exit where a tool has not seen all modules that it had to see."""
    if missing := expected - found:
        sys.exit(f"{tool} has not seen {', '.join(sorted(missing))}")


def in_checkout(path: Path) -> str:
    """Return the path, in the checkout, of a file of build/tree or of another file of the checkout."""
    if not path.is_relative_to(TREE):
        return str(path.relative_to(REPOSITORY))
    name = path.relative_to(TREE).as_posix()
    for package, folder in FOLDERS.items():
        if name.startswith(f"{package}/"):
            return name.replace(package, folder, 1)
    return f"src/{name}"


if __name__ == "__main__":
    {"tree": make_tree, "imports": lint_imports, "types": check_types}[sys.argv[1]]()
