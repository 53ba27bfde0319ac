"""Looks at a table, and whether its configuration was changed after one: recorded in the home, for privacy.json.

`check` and `init` show their operator what a table holds. So does a run that stops because of it, or warns of ids that repeat.
A choice that follows a look, from a bound to the number of rows, may depend on the table and not on public knowledge. The
guarantee does not cover that, so later releases say so, as after an internal evaluation. A draft is meant to be answered and
corrected, so it has a separate statement (`is_drafted`). The file (0600) holds no value and no count. A draft contains values
of the table, so its digest has a key, which is in the same folder and never leaves the home either.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
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

# Keys that may change after a look, because no draw depends on them. Of a column: whether it waits for an answer, where it is
# published, its names, and the default. Of a configuration: its name, the place of its table, what stops or skips a run, which
# files are kept, and whether a person approves.
_FREE = ("confirm", "public", "label", "description", "titles")
_FREE_SECTIONS = (
    "dataset",
    "label",
    "description",
    "check",
    "unchanged",
    "publish",
    "expectations",
)
_FREE_OF_PRIVACY = ("confirm", "weak_delta")


class LookRecord(BaseModel):
    """One look: the account, the place of the rows, and a digest of what was declared about them at that time."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    time: datetime
    command: str
    dataset: str
    source: str
    declared: str
    """HMAC-SHA-256 of what the configuration declared."""
    is_draft: bool = False
    """Whether the configuration was a draft whose questions nobody had answered."""


def looks_file(home: Path) -> Path:
    """Return the path of the file of looks, which exists after the first look."""
    return home / ".marginweave" / "looks.jsonl"


def record_look(home: Path, command: str, dataset: str, source: str, written: str) -> None:
    """Write down that somebody looks at a table, before anything of it is shown.

    Args:
        home: The folder of `runs/`.
        command: `check` or `init`, or `run`, which has stopped or looks for ids.
        dataset: Name of the account.
        source: Path or URL of the table.
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
        earlier_lines = read_file(place) or b""
        line = look.model_dump_json().encode() + b"\n"
        replace_file(place, earlier_lines + line, PRIVATE_MODE)


@contextmanager
def stops_are_looks(request: Request) -> Iterator[None]:
    """Record a data-dependent stop of a run as a look, before its operator sees it: the stop says what the table holds."""
    try:
        yield
    except OperatorError:
        configuration = request.configuration
        record_look(
            request.folder.home, "run", configuration.dataset, request.source, configuration.written
        )
        raise


def configured_after_look(home: Path, manifest: Manifest, source: str) -> bool:
    """Return whether a run is configured differently than at any look at its table; looks of a draft do not count.

    A look counts if it came before the run was begun, at an account of this name or at this file. So a run by what was looked
    at first counts as well, once somebody has looked by something else: the two may have been compared.

    Raises:
        StageError: the file is damaged.
    """
    looks = [look for look in _looks_at(home, manifest, source) if not look.is_draft]
    if not looks:
        return False
    declared = _declared(manifest.written, _key(home))
    return any(look.declared != declared for look in looks)


def is_drafted(home: Path, manifest: Manifest, source: str) -> bool:
    """Return whether a draft was made from the table of a run before the run was begun.

    A look counts if it was at an account of this name or at this file.

    Raises:
        StageError: the file is damaged.
    """
    return any(look.is_draft for look in _looks_at(home, manifest, source))


def _looks_at(home: Path, manifest: Manifest, source: str) -> list[LookRecord]:
    place = _place(source)
    looks = []
    for look in _looks(home):
        is_same_table = look.dataset == manifest.dataset or look.source == place
        if look.time < manifest.created and is_same_table:
            looks.append(look)
    return looks


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
        raise StageError(
            f"{looks_file(home)} is damaged; it says who has looked at which table: restore it"
        ) from None


def _place(source: str) -> str:
    return str(Path(source).resolve()) if is_path(source) else source


def _declared(written: str, key: bytes) -> str:
    """Return a keyed digest of the declarations that draws depend on."""
    declared = _without(mapping_of(written), _FREE_SECTIONS)
    declared |= _table(declared)
    if isinstance(declared.get("tables"), Mapping):
        declared["tables"] = {
            name: {**table, **_table(table)} for name, table in declared["tables"].items()
        }
    privacy = declared.get("privacy")
    if isinstance(privacy, Mapping):
        declared["privacy"] = _without(privacy, _FREE_OF_PRIVACY)
    content = json.dumps(declared, sort_keys=True).encode()
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _table(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns and the form of a table that draws depend on."""
    columns = {
        name: _without(column, _FREE) if isinstance(column, Mapping) else column
        for name, column in section.get("columns", {}).items()
    }
    source = section.get("source")
    form = _without(source, ("file",)) if isinstance(source, Mapping) else {}
    return {"columns": columns, "source": form}


def _without(section: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in names}


def _waits(value: Any) -> bool:
    """Return whether a question of `init` is anywhere in a configuration, as `confirm: true`."""
    if isinstance(value, Mapping):
        return value.get("confirm") is True or any(map(_waits, value.values()))
    return isinstance(value, list) and any(map(_waits, value))
