"""Quotes are held against the slow reference, Python's strict reader, wherever the bytes are cut."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginweave.schemas.errors import InputError
from marginweave.tasks.validate.text_source import check_quotes

PIECES = st.lists(st.sampled_from(['"', '""', ",", ";", "\n", "\r\n", "\r", "x", " ", "é", '"x,\n"']), max_size=24)


def refused(chunks: list[bytes], delimiter: str) -> bool:
    try:
        check_quotes(chunks, delimiter)
    except InputError:
        return True
    return False


def refused_by_reference(text: str, delimiter: str) -> bool:
    try:
        list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return True
    return False


@settings(max_examples=125, deadline=None)
@given(PIECES, st.sampled_from([",", ";"]), st.integers(1, 8))
@example(list('a,b\n1,"open\n2,x\n7,5" tube\n'), ",", 3)
@example(list('a,b\n1,"x"'), ",", 1)
@example(list('5" pipe,1\n'), ",", 2)
def test_refused_is_what_a_strict_reader_refuses(pieces: list[str], delimiter: str, width: int) -> None:
    text = "".join(pieces)
    content = text.encode()
    chunks = [content[i : i + width] for i in range(0, len(content), width)]
    assert refused(chunks, delimiter) == refused_by_reference(text, delimiter)


@pytest.mark.parametrize(("text", "words"), [('1,"x', "never closed"), ('1,"x"y', "closed inside a field")])
def test_both_faults_are_told_apart(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_quotes([text.encode()], ",")
