"""Whether the quotes of a delimited text open and close where they may, looked at as the bytes stream by.

A quote opens at the beginning of a field and nowhere else; inside, two stand for one; after the one that closes, a delimiter
or a line end follows (RFC 4180, section 2). Anything else is not read as it was meant: a quote that opens by mistake swallows
every row up to the next quote, and whatever stands after that one is taken as text without a word.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.schemas.errors import InputError

_BEGIN, _PLAIN, _QUOTED, _CLOSED, _BROKEN = range(5)
_QUOTE, _LINE_FEED, _RETURN = b'"\n\r'


def check_quotes(chunks: Iterable[bytes], delimiter: str) -> None:
    """Look at a text in any encoding that has ASCII in it, without its byte order mark.

    Raises:
        InputError: something follows a closing quote, or a quote is open at the end; the message has no data in it.
    """
    state, apart = _BEGIN, ord(delimiter)
    for chunk in chunks:
        if not chunk:
            continue
        if state not in {_QUOTED, _CLOSED} and b'"' not in chunk:
            state = _BEGIN if chunk[-1] in {apart, _LINE_FEED, _RETURN} else _PLAIN
        else:
            state = _walk(np.frombuffer(chunk, np.uint8), apart, state)
        if state == _BROKEN:
            raise InputError("has a quote that is closed inside a field; a quote that is meant is written twice")
    if state == _QUOTED:
        raise InputError("has a quote that is never closed")


@njit(cache=True, nogil=True)
def _walk(text: NDArray[np.uint8], delimiter: int, state: int) -> int:
    """The state after a chunk that begins in `state`."""
    for byte in text:
        if byte == _QUOTE:
            if state == _QUOTED:
                state = _CLOSED
            elif state in (_BEGIN, _CLOSED):  # at the beginning of a field, or the second of two
                state = _QUOTED
        elif state != _QUOTED:
            if byte in (delimiter, _LINE_FEED, _RETURN):
                state = _BEGIN
            elif state == _CLOSED:
                return _BROKEN
            else:
                state = _PLAIN
    return state
