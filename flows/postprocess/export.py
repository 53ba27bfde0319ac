"""What leaves the home: a copy of `release/` alone, and the rule for where a copy may be put."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marginweave.flows.run.lookup import finished_run, successor
from marginweave.schemas.errors import InputError, StageError
from marginweave.tasks.checkpoint.files import at_place, read_file, replace_file, sync_folder


@dataclass(frozen=True, kw_only=True)
class PublishedCopy:
    """What was copied, what stayed because nobody has booked it, and the run that corrects this one, if there is one."""

    files: tuple[str, ...]
    left_out: tuple[str, ...]
    superseded_by: str | None


def copy_release(home: Path, run: str, to: Path) -> PublishedCopy:
    """Copy the booked files of a published release to the new or empty folder `to`, each checked against its digest.

    What else stands in `release/`, such as records that were synthesized later, was booked by nobody and stays.

    Raises:
        InputError: no published run, or a target that is not empty, or that lies in the home or around it.
        StageError: a released file is missing or was changed; nothing is left at `to`.
    """
    folder, manifest = finished_run(home, run)
    contents = {}
    for name, digest in manifest.outputs.items():
        content = read_file(folder.path / name)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise StageError(f"{folder.path / name} is missing or was changed since it was published; it is not used")
        contents[Path(name).name] = content
    write_folder(check_target(home, to), contents)
    with at_place(folder.release, "read"):
        present = {entry.name for entry in folder.release.iterdir()}
    return PublishedCopy(
        files=tuple(sorted(contents)),
        left_out=tuple(sorted(present - contents.keys())),
        superseded_by=successor(home, manifest),
    )


def check_target(home: Path, to: Path) -> Path:
    """The place `to`, with links resolved, where something that leaves the home may be put.

    Raises:
        InputError: it lies among the runs or around them, its folder is not there, or it is taken.
    """
    with at_place(to, "used"):
        place, runs = to.expanduser().resolve(), (home / "runs").resolve()
        if place.is_relative_to(runs) or runs.is_relative_to(place):
            raise InputError(f"{to} must not be nested with {runs}: what leaves goes to another place")
        if not place.parent.is_dir():
            raise InputError(f"{place.parent} is not a folder")
        if to.is_symlink() or (place.exists() and not (place.is_dir() and not any(place.iterdir()))):
            raise InputError(f"{to} is not an empty folder; choose another place with --to")
    return place


def write_folder(place: Path, contents: Mapping[str, bytes]) -> None:
    """Make `place`, new or empty, a folder with these files, in one step: after a crash it is whole or not there.

    Raises:
        MachineError: the disk refuses.
    """
    staged = place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
    with at_place(place, "written"):
        staged.mkdir()
    try:
        for name, content in contents.items():
            replace_file(staged / name, content)
        with at_place(place, "written"):
            staged.replace(place)  # an empty folder gives way, a filled one does not
            sync_folder(place.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
