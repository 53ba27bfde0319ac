"""The standard normal distribution at single numbers, beside scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special

from marginweave.mechanisms.normal import log_ndtr, ndtr, ndtri


@given(st.floats(-1e8, 40))
@example(-37.0)
@example(math.nextafter(-37.0, 0))
@example(0.0)
def test_logarithms_keep_their_digits_however_far_out(x: float) -> None:
    assert log_ndtr(x) == pytest.approx(float(special.log_ndtr(x)), rel=1e-13)


@given(st.floats(-37, 10))
def test_probabilities_keep_their_digits(x: float) -> None:
    """Where they are not so small that doubles themselves lose digits."""
    assert ndtr(x) == pytest.approx(float(special.ndtr(x)), rel=1e-12)


@given(st.floats(1e-300, 1 - 1e-16))
def test_quantiles_are_scipys(probability: float) -> None:
    assert ndtri(probability) == pytest.approx(
        float(special.ndtri(probability)), rel=1e-12, abs=1e-15
    )


def test_ends_are_infinite() -> None:
    assert [ndtri(0), ndtri(1)] == [-math.inf, math.inf]
