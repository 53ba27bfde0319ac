"""Tables in the memory of a notebook, as the files of a release: the source, and linked tables by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from marginweave.base.errors import InputError
from marginweave.base.places import FRAME
from marginweave.configuration.release import Configuration
from marginweave.linked.source import LinkedSource, naming
from marginweave.runs.frames import as_parquet, columns_as_parquet, frame_bytes, frame_columns
from marginweave.runs.preparation import Frame


@dataclass(frozen=True)
class FrameTables:
    """The declared columns of each frame as Parquet, and the `Frame` by which the ledger knows them all. Private."""

    root: bytes
    linked: Mapping[str, bytes]
    frame: Frame


def frame_tables(data: Any, configuration: Configuration) -> FrameTables:
    """Return the tables of a frame, or of a mapping of names to frames where the configuration has linked tables.

    Of the mapping, the one name that no linked table has is that of the source.

    Raises:
        InputError: as `as_parquet`; or a table lacks its frame, or the source has a column that is derived.
    """
    root, linked = _divided(data, configuration)
    for name, (table, _) in configuration.derived.items():
        if name in frame_columns(root):
            raise InputError(
                f"the frame has the column {name!r}, which tables.{table}.derive makes; drop it: "
                f"frame.drop(columns=[{name!r}])"
            )
    content, types = as_parquet(root, configuration)
    contents = {name: _linked_parquet(name, frame, configuration) for name, frame in linked.items()}
    cells = partial(_contents, {"": root, **linked})
    return FrameTables(content, contents, Frame(types, cells))


def _divided(data: Any, configuration: Configuration) -> tuple[Any, dict[str, Any]]:
    """Return the frame of the source, and those of linked tables by their names; raises InputError."""
    tables = sorted(configuration.tables or {})
    if not isinstance(data, Mapping):
        if tables:
            raise InputError(f"the configuration has linked tables; {_advice(tables)}")
        return data, {}
    if not tables:
        raise InputError("fit takes one frame where the configuration has no tables")
    others = [name for name in data if name not in tables]
    if len(others) != 1 or len(data) != len(tables) + 1:
        raise InputError(
            f"fit has other frames than the configuration has tables; {_advice(tables)}"
        )
    return data[others[0]], {name: data[name] for name in tables}


def _advice(tables: list[str]) -> str:
    frames = ", ".join(f"{name!r}: …" for name in tables)
    return f"give a frame for each, and one more: fit({{'people': frame, {frames}}})"


def _linked_parquet(name: str, frame: Any, configuration: Configuration) -> bytes:
    """Return the columns of a linked table that are read as Parquet; raises InputError with the name of the table."""
    linked = LinkedSource.of(name, FRAME, configuration)
    kinds = dict.fromkeys(linked.columns, "identifier")
    kinds |= {column: linked.table.columns[column].type for column in linked.table.read_names}
    with naming(name):
        return columns_as_parquet(frame, linked.table.source, kinds, (linked.by,))


def _contents(frames: Mapping[str, Any]) -> dict[str, Iterable[bytes]]:
    """Return the bytes of each frame by its name, for the keyed digest; the name of the source is empty."""
    return {name: frame_bytes(frame) for name, frame in frames.items()}
