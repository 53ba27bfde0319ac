"""Tells the kind of file of a source by its name and what is declared, and refuses unreadable kinds without opening them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from marginweave.base.errors import InputError
from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.configuration.execution import SourceFile

Kind: TypeAlias = Literal["example", "text", "parquet", "arrow", "sheet"]
_KINDS: dict[str, Kind] = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "text"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".feather", ".arrow", ".ipc"), "arrow"),
    ".xlsx": "sheet",
}
_DELIMITER_BY_ENDING = {".csv": ",", ".tsv": "\t"}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_ENDING = re.compile(r"\.[a-z][a-z0-9]{0,9}")  # visits.2024 has none
SUPPORTED = ".csv, .tsv or .txt (also with .gz or .zst), .xlsx, .parquet, .feather or .arrow"


def ending_of(source: str) -> str:
    """Return the ending of the name in lower case, without that of a compression; nothing where there is none."""
    name = Path(source.rstrip("/")).name.lower()
    for compression in _COMPRESSIONS:
        name = name.removesuffix(compression)
    ending = Path(name).suffix
    return ending if _ENDING.fullmatch(ending) else ""


def compression_of(source: str) -> str | None:
    """Return pyarrow's name for the compression of the file; None where it is not compressed."""
    return _COMPRESSIONS.get(Path(source).suffix.lower())


def kind_of(source: str, form: SourceFile) -> Kind:
    """Return the kind of file: Parquet for a folder, and where neither the name nor the form says another."""
    if source.startswith(EXAMPLE_PREFIX):
        return "example"
    if Path(source).is_dir():
        return "parquet"
    kind = _KINDS.get(ending_of(source))
    if kind is not None:
        return kind
    return "text" if form.separator else "parquet"


def delimiter_of(source: str, form: SourceFile) -> str | None:
    """Return the character between two fields of a text file; None where it is no text file or nothing declares it."""
    if kind_of(source, form) != "text":
        return None
    return form.separator or _DELIMITER_BY_ENDING.get(ending_of(source))


def check_kind(source: str, form: SourceFile) -> None:
    """Refuse what cannot be read, by its name and whether it is a folder, before anything is planned.

    The source need not exist, and nothing is opened.

    Raises:
        InputError: another kind of file, one that is compressed and no text, a text whose delimiter nothing tells, a sheet
            without the library that reads it, or a key of the source that this kind of file has no use for.
    """
    kind = kind_of(source, form)
    ending = ending_of(source)
    if kind == "parquet" and ending and ending not in _KINDS and not Path(source).is_dir():
        raise InputError(
            f"source ({source}) is of a kind that is not supported ({ending}): save it as {SUPPORTED}. For a text file with "
            "another ending declare its delimiter: source: {file: …, delimiter: semicolon}"
        )
    if compression_of(source) is not None and kind != "text":
        raise InputError(
            f"source ({source}) is compressed, which only text files can be; decompress it first"
        )
    if ending == ".txt" and kind == "text" and form.separator is None:
        raise InputError(
            f"source ({source}) needs its delimiter declared: source: {{file: …, delimiter: tab}}"
        )
    if kind == "sheet" and find_spec("openpyxl") is None:
        raise InputError(f"source ({source}) needs openpyxl: pip install 'marginweave[xlsx]'")
    _check_keys(source, form, kind)


_TEXT_KEYS = ("header", "skip", "footer", "rename")
_KEYS: dict[Kind, tuple[str, ...]] = {"text": _TEXT_KEYS, "sheet": ("sheet", *_TEXT_KEYS)}


def _check_keys(source: str, form: SourceFile, kind: Kind) -> None:
    """Refuse a key that a file of this kind has no use for; raises InputError."""
    for key in form.layout_keys:
        if key not in _KEYS.get(kind, ("rename",)):
            why = "only a workbook (.xlsx) has sheets"
            if key != "sheet":
                why = "a file of this kind has the names of its columns and nothing beside its rows"
            raise InputError(f"source.{key} has no meaning for {source}: {why}. Delete {key}")
