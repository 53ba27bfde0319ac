"""Cuts the first and the last lines off a text: those that are declared to be no rows of the table.

Lines are counted, and never recognised by what they hold: otherwise one row could decide whether another is read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

_CHUNK = 1 << 20
_LINE_END = re.compile(rb"\r\n|\r(?=.)|\n", re.DOTALL)
_ENDS = b"\r\n"


def cut_lines(stream: Any, skip: int, footer: int) -> io.BufferedReader:
    """Return the bytes of a `stream` without the first `skip` lines and the last `footer` lines that are not empty.

    The text is in an encoding that contains ASCII. What follows the first line of the footer is cut as well.
    """
    chunks = iter(lambda: stream.read(_CHUNK), b"")
    return io.BufferedReader(_Pieces(_before_footer(_after_lines(chunks, skip), footer)), _CHUNK)


def _after_lines(chunks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """Yield what follows the first `skip` lines."""
    ahead = b""
    start = 0
    while skip:
        end = _LINE_END.search(ahead, start)
        if end is not None:
            start = end.end()
            skip -= 1
            continue
        chunk = next(chunks, b"")
        if not chunk:
            return
        ahead = ahead[start:] + chunk
        start = 0
    if ahead[start:]:
        yield ahead[start:]
    yield from chunks


def _before_footer(chunks: Iterator[bytes], footer: int) -> Iterator[bytes]:
    """Yield what precedes the last `footer` lines that are not empty; of fewer lines, nothing."""
    if not footer:
        yield from chunks
        return
    held_back = b""
    for chunk in chunks:
        held_back += chunk
        start = _footer_start(held_back, footer)
        if start:
            yield held_back[:start]
            held_back = held_back[start:]


def _footer_start(text: bytes, footer: int) -> int:
    """Return where the last `footer` lines of `text` begin that are not empty; 0 where there are fewer."""
    start = len(text)
    for _ in range(footer):
        while start and text[start - 1] in _ENDS:
            start -= 1
        start = max(text.rfind(b"\n", 0, start), text.rfind(b"\r", 0, start)) + 1
    return start


class _Pieces(io.RawIOBase):
    """Bytes that come in pieces, as a file that is read once from its beginning."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the beginning of `buffer`, and return how many bytes that are; 0 at the end."""
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        size = min(len(buffer), len(self._piece))
        buffer[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size
