"""Manages the folder of one run: private files, internal files, files that may leave, and the manifest of them all.

Files come into `release/` so: an attempt fills a separate folder, which becomes `release/` once the ledger has recorded it.
Where an approval is required it becomes `proposed/` first, and `release/` once the ledger has the approval.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from marginweave.base.durable import (
    PRIVATE_MODE,
    at_place,
    file_digest,
    read_file,
    replace_file,
    sync_folder,
)
from marginweave.base.errors import InputError, StageError
from marginweave.configuration.values import check_name
from marginweave.released.manifest import Manifest

_OWNER_ONLY = 0o700


@dataclass(frozen=True)
class _Below:
    """A file or folder below the folder of a run, as an attribute of `RunFolder`."""

    name: str

    def __get__(self, folder: RunFolder, owner: type[RunFolder]) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The folder `path` of one run, `<home>/runs/<run>`; nothing is made before `create`."""

    path: Path

    STAGED_PREFIX: ClassVar[str] = ".release-"

    @classmethod
    def at(cls, home: Path, run: str) -> RunFolder:
        """Return the folder of `run` below `home`.

        Raises:
            InputError: `run` breaks the rule for names.
        """
        try:
            check_name(run)
        except ValueError as error:
            raise InputError(f"run ({run!r}) {error}") from None
        return cls(home / "runs" / run)

    @classmethod
    def all_of(cls, home: Path) -> list[RunFolder]:
        """Return the folders of all runs of a home, by name; raises MachineError where they cannot be listed."""
        place = home / "runs"
        with at_place(place, "listed"):
            paths = sorted(place.iterdir()) if place.is_dir() else []
            return [cls(path) for path in paths if path.is_dir()]

    @property
    def run(self) -> str:
        """Name of the run."""
        return self.path.name

    @property
    def home(self) -> Path:
        """Home that the run is in."""
        return self.path.parent.parent

    manifest_file = _Below("manifest.json")
    # sensitive checkpoints and draws; 0700, purged when the run succeeds
    private = _Below("private")
    # draws of noise on their way to the release
    draws = _Below("private/draws")
    # the secrets of draws that are not committed yet
    seeds = _Below("private/seeds")
    # checkpoints computed from released counts alone, the only ones that post-processing reads; purged with `private/`
    derived = _Below("derived")
    # files computed from sensitive rows; 0700, never for release
    internal = _Below("internal")
    # the comparison with the sensitive table, and the report that shows it
    internal_evaluation = _Below("internal/evaluation.json")
    internal_report = _Below("internal/report.html")
    # files that may leave
    release = _Below("release")
    # files that may leave once somebody has approved them; the folder then becomes `release/`
    proposed = _Below("proposed")

    def staged_releases(self) -> tuple[Path, ...]:
        """Return the folders of attempts that had files ready to be published."""
        if not self.path.is_dir():
            return ()
        places = sorted(self.path.glob(f"{self.STAGED_PREFIX}*"))
        folders = [place for place in places if place.is_dir()]
        return tuple(folder for folder in folders if not folder.is_symlink())

    def create(self) -> None:
        """Make the folders that are missing; all end with mode 0700, `runs/` too.

        Raises:
            StageError: the disk refuses, or a link is where a folder should be.
        """
        self._make(
            self.path,
            self.release,
            self.private,
            self.draws,
            self.seeds,
            self.derived,
            self.internal,
        )
        with at_place(self.path, "created"):
            sync_folder(self.path)

    def create_internal(self) -> None:
        """Make `internal/` alone, 0700: for the report on a run that was refused before it wrote anything.

        Raises:
            StageError: the disk refuses, or a link is where a folder should be.
        """
        self._make(self.internal, self.internal)

    def _make(self, place: Path, *folders: Path) -> None:
        """Make the folder of all runs, of this run and `folders`, all 0700: nothing below needs a separate mode."""
        self.check_links()
        with at_place(place, "created"):
            for folder in (self.path.parent, self.path, *folders):
                folder.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)
                folder.chmod(_OWNER_ONLY)

    def check_links(self) -> None:
        """Refuse a run whose folders are links: private or released files would be written elsewhere.

        Raises:
            StageError: the run, or a folder of it, is a link.
        """
        folders = (
            self.release,
            self.proposed,
            self.private,
            self.draws,
            self.seeds,
            self.derived,
            self.internal,
        )
        for folder in (self.path, *folders):
            if folder.is_symlink():
                raise StageError(f"{folder} must be a folder, not a link")

    def read_manifest(self) -> Manifest | None:
        """Read the manifest; None where the run has none yet.

        Raises:
            InputError: an older version made the run.
            StageError: the file is no manifest, or cannot be read.
        """
        data = read_file(self.manifest_file)
        if data is None:
            return None
        try:
            return Manifest.from_json(data)
        except ValidationError:
            raise StageError(
                f"{self.manifest_file} is damaged, or of another version of marginweave; restore it from a backup"
            ) from None

    def readable_manifest(self) -> Manifest | None:
        """Read the manifest; None where there is none or it is damaged."""
        try:
            return self.read_manifest()
        except StageError:
            return None

    def present_manifest(self) -> Manifest:
        """Read the manifest of a run that was begun.

        Raises:
            StageError: it is missing or damaged.
        """
        manifest = self.read_manifest()
        if manifest is None:
            raise StageError(f"{self.manifest_file} is missing; restore it from a backup")
        return manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest in one step: after a crash it is the old one or this one.

        Raises:
            StageError: the disk refuses.
        """
        replace_file(self.manifest_file, manifest.to_json().encode(), PRIVATE_MODE)

    def purge_private(self, present: Manifest | None = None) -> None:
        """Remove `private/` and `derived/` with all their files, then mark their stages; links are removed, never followed.

        The manifest is read, unless it is given as `present`.

        Raises:
            StageError: the disk refuses.
        """
        self.remove_private()
        manifest = present or self.read_manifest()
        if manifest is not None:
            self.write_manifest(manifest.purged(datetime.now(UTC)))

    def remove_private(self) -> None:
        """Remove seeds first, then `private/`, `derived/` and staged folders never published, whatever the manifest says.

        Raises:
            StageError: the disk refuses.
        """
        for folder in (self.seeds, self.private, self.derived, *self.staged_releases()):
            with at_place(folder, "removed"):
                if folder.is_symlink():
                    folder.unlink()
                elif folder.exists():
                    shutil.rmtree(folder)
        with at_place(self.path, "synced"):
            if self.path.is_dir():
                sync_folder(self.path)


def staged_release(folder: RunFolder, lease: str) -> Path:
    """Return the folder in which the attempt `lease` puts the files to publish; no other attempt writes there."""
    return folder.path / f"{RunFolder.STAGED_PREFIX}{check_name(lease)}"


def published_place(folder: RunFolder, outputs: Mapping[str, str]) -> Path | None:
    """Return the folder with the recorded files (name below the run → SHA-256): `release/`, proposed, staged, or None."""
    for place in (folder.release, folder.proposed, *folder.staged_releases()):
        if holds(place, outputs):
            return place
    return None


def holds(place: Path, outputs: Mapping[str, str]) -> bool:
    """Return whether the recorded files are in `place`, whatever other files are."""
    return all(file_digest(place / Path(name).name) == digest for name, digest in outputs.items())


def publish_staged(folder: RunFolder, outputs: Mapping[str, str]) -> bool:
    """Make the folder with the recorded files `release/`, in one step; return whether they are there at the end.

    Call it once the ledger has recorded `outputs` as published: a published release takes no other lease, so an attempt whose
    lease was taken over has no part in it. The staged folders of other attempts are removed.

    Raises:
        StageError: the disk refuses, or `release/` holds something else.
    """
    return _move_recorded(folder, outputs, folder.release, "published")


def propose_staged(folder: RunFolder, outputs: Mapping[str, str]) -> bool:
    """Make the staged folder with the recorded files `proposed/`, as `publish_staged` does, to wait for an approval.

    Raises:
        StageError: the disk refuses, or `proposed/` holds something else.
    """
    return _move_recorded(folder, outputs, folder.proposed, "proposed")


def check_proposed(folder: RunFolder, outputs: Mapping[str, str]) -> None:
    """Refuse a proposal that is not, file by file, what was recorded when it was submitted.

    Raises:
        StageError: a file is missing, was changed, or was added.
    """
    place = folder.proposed
    recorded = {Path(name).name: digest for name, digest in outputs.items()}
    with at_place(place, "read"):
        entries = {entry.name for entry in place.iterdir()} if place.is_dir() else set()
    for name in sorted(entries | recorded.keys()):
        if name not in recorded:
            raise StageError(
                f"{place / name} was added since it was submitted; nothing is published"
            )
        if file_digest(place / name) != recorded[name]:
            raise StageError(
                f"{place / name} is missing or was changed since it was submitted; nothing is published"
            )


def _move_recorded(
    folder: RunFolder, outputs: Mapping[str, str], target: Path, action: str
) -> bool:
    """Make the folder with the recorded files `target`, and remove staged folders; return whether the files exist."""
    place = published_place(folder, outputs)
    if place is None:  # staged folders stay: a damaged one may be the only copy
        return False
    if place != target:
        with at_place(target, action):
            place.replace(target)  # replaces an empty folder, and fails on a filled one
            sync_folder(folder.path)
    for staged in folder.staged_releases():
        shutil.rmtree(staged, ignore_errors=True)
    return True
