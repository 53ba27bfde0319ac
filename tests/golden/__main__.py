"""Compare the golden releases of two checkouts, byte for byte, both made now and on this machine.

    python -m tests.golden compare [--base REVISION] [SHAPE ...]
    python -m tests.golden write FOLDER [SHAPE ...]

`compare` releases the shapes (all of them, where none is named) with this checkout and with REVISION, and names the files
that differ; it exits with 1 if there are any. Digests that are recorded would be those of one kind of processor.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.golden.releases import released_files
from tests.golden.shapes import SHAPES
from tests.support.compiled_kernels import keep_compiled
from tests.support.one_tree import unpack_wheel
from tests.support.places import REPOSITORY

BASE = Path(__file__).parent / "base.txt"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden")
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser(
        "write", help="release the shapes and write their files into a folder"
    )
    write.add_argument("folder", type=Path)
    compare = commands.add_parser(
        "compare", help="compare the releases of this checkout with those of a revision"
    )
    compare.add_argument(
        "--base", default=_base(), help="the revision; the usual one is in tests/golden/base.txt"
    )
    for command in (write, compare):
        command.add_argument(
            "shapes", nargs="*", metavar="SHAPE", help=f"some of: {', '.join(SHAPES)}"
        )
    given = parser.parse_args()
    if unknown := set(given.shapes) - set(SHAPES):
        parser.error(f"no such shape: {', '.join(sorted(unknown))}; there are {', '.join(SHAPES)}")
    shapes = given.shapes or list(SHAPES)
    if given.command == "write":
        write_releases(given.folder, shapes)
    else:
        sys.exit(compare_with(given.base, shapes))


def _base() -> str:
    return BASE.read_text(encoding="utf-8").split()[0]


def write_releases(folder: Path, shapes: list[str]) -> None:
    """Release `shapes` and write the files of each into a folder of its name."""
    for shape in shapes:
        with tempfile.TemporaryDirectory() as home:
            files = released_files(Path(home), shape)
        place = folder / shape
        place.mkdir(parents=True)
        for name, content in files.items():
            (place / name).write_bytes(content)


def compare_with(revision: str, shapes: list[str]) -> int:
    """Print which files of `shapes` differ between `revision` and this checkout, and return the exit code."""
    if not has_commit(revision):
        print(  # noqa: T201
            f"{revision} is not in this clone: fetch the whole history, or name another revision with --base"
        )
        return 1
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        checkout, site = place / "checkout", place / "site"
        unpack_revision(revision, checkout)
        unpack_wheel(site, checkout)  # whatever this environment has installed
        keep_compiled(site / "marginweave")
        environment = {"PYTHONPATH": str(site)}
        if not imported_from(site, environment):
            raise SystemExit(f"the base was not imported from {site}")
        _write_with(checkout, place / "base", shapes, environment)
        _write_with(REPOSITORY, place / "this", shapes, {})
        differing = differing_files(place / "base", place / "this")
        files = sum(path.is_file() for path in (place / "this").rglob("*"))
    for path in differing:
        print(f"differs from {revision[:8]}: {path}")  # noqa: T201
    if not differing:
        print(f"{len(shapes)} golden releases, {files} files: the same bytes as {revision[:8]}")  # noqa: T201
    return 1 if differing else 0


def has_commit(revision: str) -> bool:
    """Return whether the repository has this revision."""
    command = ["git", "cat-file", "-e", f"{revision}^{{commit}}"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False).returncode == 0


def unpack_revision(revision: str, folder: Path) -> None:
    """Write the tracked files of `revision` into `folder`."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    subprocess.run(
        ["git", "archive", "--output", str(archive), revision], cwd=REPOSITORY, check=True
    )
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="tar")


def imported_from(site: Path, environment: dict[str, str]) -> bool:
    """Return whether the program that runs under `environment` is the one in `site`."""
    command = [
        sys.executable,
        "-P",
        "-c",
        "import marginweave.flows; print(marginweave.flows.__file__)",
    ]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip()).is_relative_to(site)


def _write_with(
    checkout: Path, folder: Path, shapes: list[str], environment: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "tests.golden", "write", str(folder), *shapes]
    subprocess.run(command, cwd=checkout, env={**os.environ, **environment}, check=True)


def differing_files(base: Path, other: Path) -> list[str]:
    """Return the paths, relative to both folders, of files that differ or that one of them alone has."""
    paths = {
        str(path.relative_to(folder))
        for folder in (base, other)
        for path in folder.rglob("*")
        if path.is_file()
    }
    return sorted(path for path in paths if _content(base / path) != _content(other / path))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


if __name__ == "__main__":
    main()
