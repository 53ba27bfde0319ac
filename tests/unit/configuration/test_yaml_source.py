"""The configuration file is read as written: codes survive, numbers are numbers, slips are named with their line."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.yaml_source import parse_yaml, read_yaml


def test_codes_under_values_are_texts_as_written() -> None:
    parsed = parse_yaml(
        "columns: {a: {values: [no, N, 01, 12:30, 1_000, 1e3, ~, null, true, 2019-01-01, .5]}}"
    )
    assert parsed["columns"]["a"]["values"] == [
        "no", "N", "01", "12:30", "1_000", "1e3", "~", "null", "true", "2019-01-01", ".5",
    ]  # fmt: skip


def test_numbers_elsewhere_are_numbers() -> None:
    parsed = parse_yaml("a: 1e-6\nb: 12\nc: -0.5\nd: .inf\ne: .nan\nf: '1e-6'\ng: true\nh: no\ni:")
    assert (parsed["a"], parsed["b"], parsed["c"], parsed["d"]) == (1e-6, 12, -0.5, math.inf)
    assert math.isnan(parsed["e"])
    assert (parsed["f"], parsed["g"], parsed["h"], parsed["i"]) == ("1e-6", True, "no", None)


@pytest.mark.parametrize("name", ["structure", "values", "source", "columns"])
def test_a_column_may_be_called_like_a_key(name: str) -> None:
    """What stands below it is read as below any other column: numbers as numbers, codes as texts."""
    column = parse_yaml(f"columns: {{{name}: {{bounds: [0, 1], confirm: true, values: [01]}}}}")[
        "columns"
    ][name]
    assert column == {"bounds": [0, 1], "confirm": True, "values": ["01"]}


def test_characters_that_json_escapes_in_halves_are_whole() -> None:
    """A lone half is no character, and cannot be written anywhere."""
    assert parse_yaml(r'{"\ud83d\ude00": ["\ud83d\ude00"]}') == {"\U0001f600": ["\U0001f600"]}
    with pytest.raises(InputError, match="line 2: half a character"):
        parse_yaml('a: 1\n"b\\ude00": 2')


def test_column_names_are_texts() -> None:
    assert list(parse_yaml("columns: {2012: {}, yes: {}, 1.0: {}}")["columns"]) == [
        "2012",
        "yes",
        "1.0",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' occurs twice"),
        ("a: [1, 2\nb: 3", "line 2"),
        ("- 1\n- 2", "holds no keys with values"),
        ("", "is empty"),
        ("a: &x [*x]", "an alias refers to itself"),
        ("? [1]\n: 2", "a key must be a plain text"),
        ("a: \x00", "not YAML"),
        ("[" * 3000, "nested too deeply"),
        ("a: 1\n---\nb: 2\n", "line 2"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(
                f"{n}: &{n} [{','.join(['*' + m] * 10)}]\n"
                for m, n in zip("abcdef", "bcdefg", strict=True)
            ),
            "more than 1000000 values",
        ),
    ],
)
def test_slips_are_named(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_yaml(text)


def test_files_that_cannot_be_read_are_named(tmp_path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_yaml(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="is a folder"):
        read_yaml(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("dataset: caf\xe9".encode("latin-1"))
    with pytest.raises(InputError, match="must be UTF-8"):
        read_yaml(latin)


@given(st.text(max_size=200))
def test_any_text_parses_or_is_an_input_error(text: str) -> None:
    """No text makes the reader raise anything else."""
    with contextlib.suppress(InputError):
        parse_yaml(text)


@given(st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_exactly(value: float) -> None:
    assert parse_yaml(f"x: {value!r}")["x"] == value
