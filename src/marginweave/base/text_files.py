"""How the text of a file is written, recognised by a look at it: its encoding, and what stands between two fields."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_NEVER = bytes([*range(9), *range(14, 27), *range(28, 32), 0x7F, 0x81, 0x8D, 0x8F, 0x90, 0x9D])  # in windows-1252
_MOST_ROWS = 1000


def recognise_encoding(chunks: Iterable[bytes]) -> str | None:
    """`utf-8`, `utf-16` or `windows-1252`, for the bytes of a whole file; None for what is none of them, such as no text."""
    decoder, utf8, western = codecs.getincrementaldecoder("utf-8")(), True, True
    for number, chunk in enumerate(chunks):
        zeros = chunk[1::2].count(0)
        if number == 0 and (chunk.startswith(_UTF16) or (zeros > len(chunk) // 4 > 0 and not chunk[::2].count(0))):
            return "utf-16"
        western = western and len(chunk.translate(None, _NEVER)) == len(chunk)
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError:
            utf8 = False
        if not (utf8 or western):
            return None
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        utf8 = False
    return "utf-8" if utf8 else "windows-1252" if western else None


def recognise_delimiter(sample: str, *, whole: bool) -> str | None:
    """The name of the character that cuts all rows of `sample` into equally many fields, into the most of them; or None.

    Where the sample is not the `whole` file, its last row may be cut and is left out.
    """
    found, most = None, 1
    for name, character in DELIMITERS.items():
        try:
            reader = csv.reader(io.StringIO(sample, newline=""), delimiter=character)
            rows = [row for _, row in zip(range(_MOST_ROWS + 1), reader, strict=False) if row]
        except csv.Error:
            continue
        rows = rows if whole and len(rows) <= _MOST_ROWS else rows[: max(1, len(rows) - 1)]
        widths = {len(row) for row in rows}
        if len(widths) == 1 and max(widths) > most:
            found, most = name, max(widths)
    return found
