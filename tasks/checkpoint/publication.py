"""The way into `release/`: an attempt fills a folder of its own, which becomes `release/` once the ledger has booked it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from marginweave.schemas.configuration import check_name
from marginweave.tasks.checkpoint.files import at_place, file_digest, sync_folder
from marginweave.tasks.checkpoint.run_folder import RunFolder


def staged_release(folder: RunFolder, lease: str) -> Path:
    """The folder in which the attempt `lease` puts what it is going to publish; no other attempt writes there."""
    return folder.path / f"{RunFolder.STAGED_PREFIX}{check_name(lease)}"


def published_place(folder: RunFolder, outputs: Mapping[str, str]) -> Path | None:
    """Where the files that were booked (name below the run → SHA-256) stand: `release/`, a staged folder, or nowhere."""
    for place in (folder.release, *folder.staged_releases()):
        if all(file_digest(place / Path(name).name) == digest for name, digest in outputs.items()):
            return place
    return None


def publish_staged(folder: RunFolder, outputs: Mapping[str, str]) -> bool:
    """Make the staged folder with the booked files `release/`, in one step; whether they stand there now.

    To be called once the ledger has booked `outputs`: a booked release takes no other lease, so whoever was taken over before
    has no part in it. What other attempts have staged is removed.

    Raises:
        StageError: the disk refuses, or `release/` holds something else.
    """
    place = published_place(folder, outputs)
    if place is not None and place != folder.release:
        with at_place(folder.release, "published"):
            place.replace(folder.release)  # an empty folder gives way, a filled one does not
            sync_folder(folder.path)
    for left in folder.staged_releases():
        shutil.rmtree(left, ignore_errors=True)
    return place is not None
