"""The rule of declared values: a number equals every spelling of itself, a code only itself."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.configuration.values import ValueMatcher, first_duplicate, number


@pytest.mark.parametrize("spelling", ["9", "9.0", " 9 ", "+9", "09", "9e0", "9.", "90e-1"])
def test_a_declared_number_equals_every_spelling(spelling: str) -> None:
    assert ValueMatcher(["7", "9"]).index(spelling) == 1


@pytest.mark.parametrize("text", ["9.5", "-9", "nine", "9_0", "", "nan", "inf", "٩", "9 0", "0x9"])
def test_other_texts_are_outside(text: str) -> None:
    assert ValueMatcher(["7", "9"]).index(text) == -1


def test_codes_with_leading_zeros_are_not_numbers() -> None:
    matcher = ValueMatcher(["01", "1", "001"])
    assert [matcher.index(t) for t in ["01", "1", "001", "1.0", "0001"]] == [0, 1, 2, 1, 1]
    assert ValueMatcher(["01", "02"]).index("1") == -1


def test_texts_compare_trimmed_and_by_case() -> None:
    matcher = ValueMatcher([" yes", "No"])
    assert [matcher.index(t) for t in ["yes", " yes ", "YES", "No", "no"]] == [0, 0, -1, 1, -1]


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=9
    ),
    st.integers(0, 6),
)
def test_trailing_zeros_and_exponents_do_not_matter(value: Decimal, zeros: int) -> None:
    """Every way Python prints a number finds the declared one, and a neighbor of it does not."""
    declared = format(value, "f")
    matcher = ValueMatcher([declared])
    assert number(declared) == value
    assert matcher.index(format(value.scaleb(-zeros), "f") + f"e{zeros}") == 0
    assert matcher.index(declared + "000") == 0
    assert matcher.index(format(value + 1, "f")) == -1


def test_long_identifiers_stay_apart() -> None:
    """Exact decimals: numbers that a float would merge are different values."""
    matcher = ValueMatcher(["12345678901234567890123456789012", "12345678901234567890123456789013"])
    assert matcher.index("12345678901234567890123456789013") == 1


@pytest.mark.parametrize(
    ("values", "pair"), [(["1", "1.0"], ("1", "1.0")), (["a", "b", " a"], ("a", " a"))]
)
def test_duplicates_are_found(values: list[str], pair: tuple[str, str]) -> None:
    assert first_duplicate(values) == pair


def test_codes_and_numbers_are_no_duplicates() -> None:
    assert first_duplicate(["01", "1", "001", "one"]) is None
