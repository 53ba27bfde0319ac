"""Earlier releases of the same rows, as a configuration names them; a folder's name is replaced by digests of its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from marginweave.base.errors import InputError, MustError, UnconfirmedError
from marginweave.configuration.values import Confirm, FrozenModel, Words

EARLIER_FILES = ("privacy.json", "measurements.parquet")
"""The files of an earlier release that are read."""


class ReleaseFiles(FrozenModel):
    """An earlier release, by its identifier, its run, and the SHA-256 of each file by name.

    `folder` is the place of the files on this machine; it is no part of the declaration.
    """

    id: str
    run: str
    files: dict[str, str]
    folder: Annotated[str | None, Field(exclude=True, repr=False)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if set(self.files) != set(EARLIER_FILES):
            raise MustError(f"have the SHA-256 of {' and of '.join(EARLIER_FILES)}")
        return self


class KnownRelease(FrozenModel):
    """An earlier release of the same rows, whose noisy counts of marginals are used again.

    `same_rows` says how it is known that the rows are the same. `confirm: true` marks a draft, which is refused.
    """

    release: ReleaseFiles
    same_rows: Words
    confirm: Confirm = None

    @model_validator(mode="after")
    def _check_confirmed(self) -> Self:
        if self.confirm:
            raise UnconfirmedError(
                "was drafted and waits for confirmation: was that release made of exactly these rows? Say how you know in "
                "same_rows, and delete confirm: true"
            )
        return self


def without_folders(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration whose earlier releases have no folder, only their digests."""
    return _with_releases(
        raw, lambda release: {key: value for key, value in release.items() if key != "folder"}
    )


def with_folders(raw: Mapping[str, Any], earlier: Sequence[KnownRelease]) -> dict[str, Any]:
    """Return a configuration whose earlier releases have the folders of `earlier`, which are in the same order."""
    folders = iter([entry.release.folder for entry in earlier])
    return _with_releases(raw, lambda release: {**release, "folder": next(folders)})


def _with_releases(
    raw: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Return a configuration in which the `release` of each entry of `known` is changed, in order."""
    entries = raw.get("known")
    if not isinstance(entries, list | tuple):
        return dict(raw)
    changed = list[Any]()
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("release"), dict):
            changed.append({**entry, "release": change(entry["release"])})
        else:
            changed.append(entry)
    return {**raw, "known": changed}


def with_release(entry: Any, below: Path, place: str) -> Any:
    """Return an entry of `known` in which digests replace the folder of a release.

    `below` is the folder of the configuration, and `place` is the place of the entry in it, for messages.

    Raises:
        InputError: the folder has no release of marginals.
    """
    folder = entry.get("release") if isinstance(entry, dict) else None
    if not isinstance(folder, str):
        return entry
    try:
        contents = {name: (below / folder / name).read_bytes() for name in EARLIER_FILES}
        statement = json.loads(contents["privacy.json"])
        names = {"id": str(statement["release"]), "run": str(statement["run"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{place} ({folder}) must be the folder of a published release of marginals, with {' and '.join(EARLIER_FILES)}; "
            "k-tuples cannot be used again: only counts above a threshold are released, of records with bounded contributions"
        ) from None
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return {**entry, "release": {**names, "files": digests, "folder": str(below / folder)}}


def earlier_name(number: int, name: str) -> str:
    """Return the name, in a run and its release, of the file `name` of the earlier release of this number, from 1."""
    return f"earlier-{number}-{name}"
