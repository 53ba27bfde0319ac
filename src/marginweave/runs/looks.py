"""Who has looked at a table, and whether a configuration was changed after that: kept in the home, for privacy.json.

`check` and `init` show their operator what a table holds, and so does a run that stops for it, or warns of ids that repeat.
Whatever is changed in view of that, from a bound to the number of rows, may follow the table and not public knowledge, which
the guarantee does not cover: what is released afterwards says so, as after an internal evaluation. A draft is there to be
answered and corrected, which is told in other words (`is_drafted`). The file (0600) holds no value and no count. A draft has
values of the table, so that its digest has a key, which lies beside the file and leaves the home as little.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from marginweave.base.durable import PRIVATE_MODE, read_file, replace_file, write_once
from marginweave.base.errors import OperatorError, StageError
from marginweave.base.places import is_path
from marginweave.configuration.yaml_source import mapping_of
from marginweave.released.manifest import Manifest
from marginweave.runs.lookup import exclusive_lock
from marginweave.runs.request import Request

# What may be written after a look, as nothing that is drawn depends on it: of a column whether it waits, where it is published,
# what it is called, and the default; of a configuration how it is called, where its table is, what stops a run, what is kept,
# and that a person approves.
_FREE = ("confirm", "public", "label", "description", "titles")
_FREE_SECTIONS = ("dataset", "label", "description", "check", "publish", "expectations")
_FREE_OF_PRIVACY = ("confirm", "weak_delta")


class LookRecord(BaseModel):
    """One look: who is protected, where the rows are, and what was declared of them then."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    time: datetime
    command: str
    dataset: str
    source: str
    declared: str
    """HMAC-SHA-256 of what the configuration declared."""
    is_draft: bool = False
    """Whether that was a draft whose questions nobody had answered."""


def looks_file(home: Path) -> Path:
    """The file, which is there once somebody has looked."""
    return home / ".marginweave" / "looks.jsonl"


def record_look(home: Path, command: str, dataset: str, source: str, written: str) -> None:
    """Write down that somebody looks at a table, before anything of it is shown.

    Args:
        home: Where runs are.
        command: `check` or `init`, or `run`, which has stopped or looks for ids.
        dataset: Name of the account.
        source: Where the table is.
        written: The configuration as it is written, or was drafted, as canonical JSON.

    Raises:
        MachineError: it cannot be written; then nobody looks.
        StageError: the file is damaged.
    """
    place = looks_file(home)
    with exclusive_lock(place.with_suffix(".lock"), None):
        write_once(place.with_suffix(".key"), secrets.token_bytes(32))  # the first one stays
        look = LookRecord(
            time=datetime.now(UTC),
            command=command,
            dataset=dataset,
            source=_place(source),
            declared=_declared(written, _key(home)),
            is_draft=_waits(mapping_of(written)),
        )
        known = read_file(place) or b""
        replace_file(place, known + look.model_dump_json().encode() + b"\n", PRIVATE_MODE)


@contextmanager
def stops_are_looks(request: Request) -> Iterator[None]:
    """Write down a data-dependent stop of a run like a look, before its operator is told: it says what the table holds."""
    try:
        yield
    except OperatorError:
        configuration = request.configuration
        record_look(request.folder.home, "run", configuration.dataset, request.source, configuration.written)
        raise


def configured_after_look(home: Path, manifest: Manifest, source: str) -> bool:
    """Whether a run is configured otherwise than the first look at its table found, but for a draft.

    A look counts if it came before the run was begun, at an account of this name or at this file.

    Raises:
        StageError: the file is damaged.
    """
    looks = [look for look in _looks_at(home, manifest, source) if not look.is_draft]
    return bool(looks) and looks[0].declared != _declared(manifest.written, _key(home))


def is_drafted(home: Path, manifest: Manifest, source: str) -> bool:
    """Whether a draft was made from the table of a run, before that was begun; a look counts as above.

    Raises:
        StageError: the file is damaged.
    """
    return any(look.is_draft for look in _looks_at(home, manifest, source))


def _looks_at(home: Path, manifest: Manifest, source: str) -> list[LookRecord]:
    place = _place(source)
    seen = (look for look in _looks(home) if look.time < manifest.created)
    return [look for look in seen if look.dataset == manifest.dataset or look.source == place]


def _key(home: Path) -> bytes:
    key = read_file(looks_file(home).with_suffix(".key"))
    if key is None:
        raise StageError(f"{looks_file(home)} has lost its key, looks.key: restore it")
    return key


def _looks(home: Path) -> list[LookRecord]:
    content = read_file(looks_file(home)) or b""
    try:
        return [LookRecord.model_validate_json(line) for line in content.splitlines()]
    except ValidationError:
        raise StageError(f"{looks_file(home)} is damaged; it says who has looked at which table: restore it") from None


def _place(source: str) -> str:
    return str(Path(source).resolve()) if is_path(source) else source


def _declared(written: str, key: bytes) -> str:
    """A keyed digest of what is declared, but of what nothing that is drawn depends on."""
    said = {name: value for name, value in mapping_of(written).items() if name not in _FREE_SECTIONS}
    said["columns"] = {name: _kept(column) for name, column in said["columns"].items()}
    form = said.get("source")
    said["source"] = (
        {name: value for name, value in form.items() if name != "file"} if isinstance(form, Mapping) else {}
    )
    if isinstance(privacy := said.get("privacy"), Mapping):
        said["privacy"] = {name: value for name, value in privacy.items() if name not in _FREE_OF_PRIVACY}
    return hmac.new(key, json.dumps(said, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _kept(column: Any) -> Any:
    if not isinstance(column, Mapping):
        return column
    return {key: value for key, value in column.items() if key not in _FREE}


def _waits(value: Any) -> bool:
    """Whether a question of `init` stands anywhere in a configuration, as `confirm: true`."""
    if isinstance(value, Mapping):
        return value.get("confirm") is True or any(map(_waits, value.values()))
    return isinstance(value, list) and any(map(_waits, value))
