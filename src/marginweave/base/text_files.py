"""Recognises how the text of a file is written: its encoding, and the delimiter between two fields."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Bytes that no text in windows-1252 has.
_NEVER = bytes([*range(9), *range(14, 27), *range(28, 32), 0x7F, 0x81, 0x8D, 0x8F, 0x90, 0x9D])
_MOST_ROWS = 1000


def recognise_encoding(chunks: Iterable[bytes]) -> str | None:
    """Return `utf-8`, `utf-16` or `windows-1252`, for all bytes of a file; None where it is in none of them."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_utf8 = True
    is_western = True
    for number, chunk in enumerate(chunks):
        if number == 0 and _begins_utf16(chunk):
            return "utf-16"
        is_western = is_western and len(chunk.translate(None, _NEVER)) == len(chunk)
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError:
            is_utf8 = False
        if not (is_utf8 or is_western):
            return None
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        is_utf8 = False
    if is_utf8:
        return "utf-8"
    return "windows-1252" if is_western else None


def line_not_in_utf8(lines: Iterable[bytes]) -> int | None:
    """Return the number, from 1, of the first line that is not UTF-8 in a file most of which is; None in any other file.

    Of the lines beyond ASCII, more than half are UTF-8: by chance few texts in windows-1252 are.
    """
    in_utf8 = 0
    in_another = 0
    first = None
    for number, line in enumerate(lines, start=1):
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
        except UnicodeDecodeError:
            in_another += 1
            first = first or number
        else:
            in_utf8 += 1
    return first if in_utf8 > in_another else None


def _begins_utf16(chunk: bytes) -> bool:
    """Return whether the first bytes of a file have a mark of UTF-16, or zeros in many second bytes and in no first one."""
    if chunk.startswith(_UTF16):
        return True
    zeros = chunk[1::2].count(0)
    return zeros > len(chunk) // 4 > 0 and chunk[::2].count(0) == 0


def recognise_delimiter(sample: str, *, is_complete: bool, most_beside: int = 0) -> str | None:
    """Return the name of the delimiter that cuts all rows of `sample` into equally many fields, and the most; or None.

    At most `most_beside` rows at the beginning, and as many at the end, may be cut differently. Where the sample is not a
    complete file, its last row may be cut and is left out.
    """
    delimiter = None
    most = 1
    for name, character in DELIMITERS.items():
        try:
            reader = csv.reader(io.StringIO(sample, newline=""), delimiter=character)
            rows = [row for row in islice(reader, _MOST_ROWS + 1) if row]
        except csv.Error:
            continue
        if not is_complete or len(rows) > _MOST_ROWS:
            rows = rows[: max(1, len(rows) - 1)]
        width = _common_width([len(row) for row in rows], most_beside)
        if width > most:
            delimiter = name
            most = width
    return delimiter


def _common_width(widths: Sequence[int], most_beside: int) -> int:
    """Return the width of all rows but at most `most_beside` at the beginning and at the end; 0 where they have several."""
    if not widths:
        return 0
    width = Counter(widths).most_common(1)[0][0]
    first = widths.index(width)
    last = len(widths) - widths[::-1].index(width)
    are_few_beside = first <= most_beside and len(widths) - last <= most_beside
    return width if are_few_beside and set(widths[first:last]) == {width} else 0
