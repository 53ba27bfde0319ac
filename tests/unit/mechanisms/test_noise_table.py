"""The noise table against fifty-digit arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from marginweave.base.errors import InputError
from marginweave.mechanisms.noise_table import noise_table

DEVIATIONS = [
    Fraction(1, 1024),
    Fraction(1, 64),
    Fraction(3, 10),
    Fraction(1023, 1024),
    Fraction(1),
    Fraction(5, 2),
]
DEVIATIONS += [Fraction(20), Fraction(307_201, 1024)]


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=str)
def test_every_entry_is_the_probability_rounded_down(deviation: Fraction) -> None:
    """cumulative[j] is within one unit of 2^128 erf((j + 1/2)/(sd sqrt 2)), the last one 2^128 with a tail below 2^-127."""
    table = noise_table(deviation)
    with mpmath.workprec(220):
        scale = mpmath.sqrt(2) * deviation.numerator / deviation.denominator
        for j in {0, 1, 2, 7, table.largest // 3, table.largest // 2, table.largest - 1}:
            if 0 <= j < table.largest:
                exact = mpmath.erf((j + mpmath.mpf(1) / 2) / scale) * 2**128
                assert -(2**-10) <= exact - table.cumulative[j] <= 1 + 2**-10
        assert table.cumulative[-1] == 2**128
        assert mpmath.erfc((table.largest + mpmath.mpf(1) / 2) / scale) < mpmath.mpf(2) ** -127


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=str)
def test_tables_are_ordered_and_as_long_as_needed(deviation: Fraction) -> None:
    """Entries never fall, the top 63 bits follow them, and |X| stays within about 13.2 standard deviations."""
    table = noise_table(deviation)
    assert all(
        low <= high for low, high in zip(table.cumulative, table.cumulative[1:], strict=False)
    )
    assert table.high.tolist() == [entry >> 65 for entry in table.cumulative]
    assert table.largest <= math.ceil(13.2 * deviation)


def test_upper_tails_are_those_of_the_signed_draw() -> None:
    """P(X >= t) sums the halves of the masses above t, and P(X >= -t) = 1 - P(X >= t + 1)."""
    table = noise_table(Fraction(5, 2))
    mass = [b - a for a, b in zip((0, *table.cumulative), table.cumulative, strict=False)]
    for least in range(1, table.largest + 3):
        assert table.upper_tail(least) == Fraction(sum(mass[least:]), 2**129)
        assert table.upper_tail(1 - least) == 1 - table.upper_tail(least)
    assert table.upper_tail(0) == Fraction(1, 2) + Fraction(mass[0], 2**129)


def test_variance_is_that_of_a_rounded_gaussian() -> None:
    """E X^2 = sd^2 + 1/12 up to e^{-2 pi^2 sd^2}, by Sheppard: a moment that uses every entry."""
    table = noise_table(Fraction(20))
    mass = [b - a for a, b in zip((0, *table.cumulative), table.cumulative, strict=False)]
    second = Fraction(sum(m * j * j for j, m in enumerate(mass)), 2**128)
    assert abs(second - 400 - Fraction(1, 12)) < Fraction(1, 10**30)


@pytest.mark.parametrize("deviation", [Fraction(0), Fraction(-1), Fraction(2**17) + 1])
def test_deviations_without_a_table_are_refused(deviation: Fraction) -> None:
    """Outside (0, 2^17] there is no table."""
    with pytest.raises(InputError, match="must be positive and at most 131072"):
        noise_table(deviation)
