"""Quotes are looked at by Python's strict reader, in any encoding that has ASCII in it, and each fault has its words."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.sources.text_source import check_quotes_and_widths

PIECES = st.lists(
    st.sampled_from(['"', '""', ",", ";", "\n", "\r\n", "\r", "x", " ", "é", '"x,\n"']), max_size=24
)


def refused(content: bytes, delimiter: str) -> bool:
    try:
        check_quotes_and_widths(io.BytesIO(content), delimiter)
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
@given(PIECES, st.sampled_from([",", ";"]))
@example(list('a,b\n1,"open\n2,x\n7,5" tube\n'), ",")
@example(list('a,b\n1,"x"'), ",")
@example(list('5" pipe,1\n'), ",")
def test_refused_is_what_a_strict_reader_refuses(pieces: list[str], delimiter: str) -> None:
    text = "".join(pieces)
    assert refused(text.encode(), delimiter) == refused_by_reference(text, delimiter)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('1,"x', "never closed"),
        ('1,"x"y', "closed inside a field"),
        (f'1,"{"x" * 2**24}', "row of more than 8 MiB, or"),
    ],
)
def test_all_faults_are_told_apart(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_quotes_and_widths(io.BytesIO(text.encode()), ",")
