"""The way into `release/`: an attempt fills a folder of its own, which becomes `release/` once the ledger has booked it.

Where an approval is required it becomes `proposed/` first, and `release/` once the ledger has the approval.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from marginweave.schemas.errors import StageError
from marginweave.schemas.names import check_name
from marginweave.tasks.checkpoint.files import at_place, file_digest, sync_folder
from marginweave.tasks.checkpoint.run_folder import RunFolder


def staged_release(folder: RunFolder, lease: str) -> Path:
    """The folder in which the attempt `lease` puts what it is going to publish; no other attempt writes there."""
    return folder.path / f"{RunFolder.STAGED_PREFIX}{check_name(lease)}"


def published_place(folder: RunFolder, outputs: Mapping[str, str]) -> Path | None:
    """Where the files that were booked (name below the run → SHA-256) stand: `release/`, proposed, staged, or nowhere."""
    for place in (folder.release, folder.proposed, *folder.staged_releases()):
        if holds(place, outputs):
            return place
    return None


def holds(place: Path, outputs: Mapping[str, str]) -> bool:
    """Whether the booked files stand in `place`, whatever else does."""
    return all(file_digest(place / Path(name).name) == digest for name, digest in outputs.items())


def publish_staged(folder: RunFolder, outputs: Mapping[str, str]) -> bool:
    """Make the folder with the booked files `release/`, in one step; whether they stand there now.

    To be called once the ledger has booked `outputs` as published: a booked release takes no other lease, so whoever was
    taken over before has no part in it. What other attempts have staged is removed.

    Raises:
        StageError: the disk refuses, or `release/` holds something else.
    """
    return _move_booked(folder, outputs, folder.release, "published")


def propose_staged(folder: RunFolder, outputs: Mapping[str, str]) -> bool:
    """Make the staged folder with the booked files `proposed/`, as `publish_staged` does, to wait there for an approval.

    Raises:
        StageError: the disk refuses, or `proposed/` holds something else.
    """
    return _move_booked(folder, outputs, folder.proposed, "proposed")


def check_proposed(folder: RunFolder, outputs: Mapping[str, str]) -> None:
    """Refuse a proposal that is not, file by file, what was booked when it was submitted.

    Raises:
        StageError: a file is missing, was changed, or was added.
    """
    place, booked = folder.proposed, {Path(name).name: digest for name, digest in outputs.items()}
    with at_place(place, "read"):
        found = {entry.name for entry in place.iterdir()} if place.is_dir() else set()
    for name in sorted(found | booked.keys()):
        if name not in booked:
            raise StageError(f"{place / name} was added since it was submitted; nothing is published")
        if file_digest(place / name) != booked[name]:
            raise StageError(f"{place / name} is missing or was changed since it was submitted; nothing is published")


def _move_booked(folder: RunFolder, outputs: Mapping[str, str], target: Path, action: str) -> bool:
    place = published_place(folder, outputs)
    if place is not None and place != target:
        with at_place(target, action):
            place.replace(target)  # an empty folder gives way, a filled one does not
            sync_folder(folder.path)
    for left in () if place is None else folder.staged_releases():  # what is damaged may be all there is
        shutil.rmtree(left, ignore_errors=True)
    return place is not None
