"""Earlier releases of the same rows, as a configuration names them; digests of files take the place of a folder's name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from marginweave.base.errors import InputError
from marginweave.configuration.values import Confirm, FrozenModel, Words

EARLIER_FILES = ("privacy.json", "measurements.parquet")
"""The files of an earlier release that are read."""


class ReleaseFiles(FrozenModel):
    """What takes the place of an earlier release's folder: its identifier, its run, and the SHA-256 of each file by name.

    `folder` is where the files are on this machine, which is no part of what is declared.
    """

    id: str
    run: str
    files: dict[str, str]
    folder: Annotated[str | None, Field(exclude=True, repr=False)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if set(self.files) != set(EARLIER_FILES):
            raise ValueError(f"must have the SHA-256 of {' and of '.join(EARLIER_FILES)}")
        return self


class KnownRelease(FrozenModel):
    """An earlier release of the same rows, whose noisy counts of marginals are used again.

    `same_rows` says how it is known that the rows are the same. `confirm: true` marks a draft: it is refused as long as it is
    there.
    """

    release: ReleaseFiles
    same_rows: Words
    confirm: Confirm = None

    @model_validator(mode="after")
    def _check_confirmed(self) -> Self:
        if self.confirm:
            raise ValueError(
                "was drafted and waits for confirmation: was that release made of exactly these rows? Say how you know in "
                "same_rows, and delete confirm: true"
            )
        return self


def without_folders(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose earlier releases are named by their digests alone: where the files are is no part of it."""
    return {**raw, **_known_as(raw, lambda release: {key: value for key, value in release.items() if key != "folder"})}


def with_folders(raw: Mapping[str, Any], known: Sequence[KnownRelease]) -> dict[str, Any]:
    """The same with the folders that `known`, its earlier releases, say."""
    folders = iter([entry.release.folder for entry in known])
    return {**raw, **_known_as(raw, lambda release: {**release, "folder": next(folders)})}


def _known_as(raw: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    known = raw.get("known")
    if not isinstance(known, list | tuple):
        return {}
    named = [isinstance(entry, dict) and isinstance(entry.get("release"), dict) for entry in known]
    return {
        "known": [
            {**entry, "release": change(entry["release"])} if is_named else entry
            for entry, is_named in zip(known, named, strict=True)
        ]
    }


def with_release(known: Any, below: Path, place: str) -> Any:
    """An entry of `known`, at `place` of a configuration in the folder `below`; digests take the place of a release's folder.

    Raises:
        InputError: the folder has no release of marginals.
    """
    given = known.get("release") if isinstance(known, dict) else None
    if not isinstance(given, str):
        return known
    try:
        contents = {name: (below / given / name).read_bytes() for name in EARLIER_FILES}
        stated = json.loads(contents["privacy.json"])
        named = {"id": str(stated["release"]), "run": str(stated["run"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{place} ({given}) must be the folder of a published release of marginals, with {' and '.join(EARLIER_FILES)}; "
            "k-tuples cannot be used again: only counts above a threshold are released, of records with bounded contributions"
        ) from None
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return {**known, "release": {**named, "files": digests, "folder": str(below / given)}}


def earlier_name(number: int, name: str) -> str:
    """The name under which a file of the earlier release of this number, from 1, is kept in a run and in its release."""
    return f"earlier-{number}-{name}"
