"""Earlier releases of the same rows, as a configuration names them; digests of files take the place of a folder's name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from marginweave.base.errors import InputError
from marginweave.configuration.values import Confirm, FrozenModel, Words

EARLIER_FILES = ("privacy.json", "measurements.parquet")
"""The files of an earlier release that are read."""


class ReleaseFiles(FrozenModel):
    """What takes the place of an earlier release's folder: its identifier, its run, and the SHA-256 of each file by name."""

    id: str
    run: str
    files: dict[str, str]

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


def release_folders(raw: Mapping[str, Any], below: Path) -> tuple[Path, ...]:
    """The folders of the earlier releases that a configuration in the folder `below` names, in its order."""
    known = raw.get("known")
    named = [entry.get("release") for entry in known if isinstance(entry, dict)] if isinstance(known, list) else []
    return tuple(below / name for name in named if isinstance(name, str))


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
    return {**known, "release": {**named, "files": digests}}


def earlier_name(number: int, name: str) -> str:
    """The name under which a file of the earlier release of this number, from 1, is kept in a run and in its release."""
    return f"earlier-{number}-{name}"
