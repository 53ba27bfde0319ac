"""What is said of rows that are not counted holds as often as it claims, whatever the numbers are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from marginweave.observations.uncounted import uncounted_rows

CAP, MOST, SIGMA, DRAWS = 4, 4, 240.0, 4_000
# Of 4,000 intervals at 95 % fewer are right than this in one of 10^7 runs (binomial, 5.2 standard deviations).
FEWEST = math.floor(DRAWS * 0.95 - 5.2 * math.sqrt(DRAWS * 0.95 * 0.05))


@pytest.mark.parametrize(("subjects", "rows"), [(0, 0), (60, 150), (200, 200), (700, 1_200)])
def test_intervals_and_shares_hold(subjects: int, rows: int) -> None:
    """Both numbers, and of the share of rows its lower end; half as much noise said would be seen."""
    generator = np.random.default_rng(subjects)
    counted, deviation = 9_000, 70.0
    noise = np.rint(generator.normal(0, SIGMA, (DRAWS, 2))).astype(int).tolist()
    records = counted + generator.normal(0, deviation, DRAWS)
    right = np.zeros(3, int)
    for (first, second), number in zip(noise, records.tolist(), strict=True):
        found = uncounted_rows(
            MOST * subjects + first, rows + second, cap=CAP, most=MOST, sigma=SIGMA
        )
        right += [
            found.subjects_ends[0] <= subjects <= max(found.subjects_ends[1], 0),
            found.rows_ends[0] <= rows <= found.rows_ends[1],
            found.least_share(number, deviation)[1] <= rows / (rows + counted),
        ]
    assert (right >= FEWEST).all(), right


@pytest.mark.parametrize(
    ("subjects", "rows", "words"),
    [
        (
            2_980,
            1_137,
            "At least about 11 % of the rows (6 % or more, with 95 % confidence) are not counted: about 745 values (628 to",
        ),
        # noise hides the rows, and each of these has one at least
        (824, 0, "At least about 2.2 % of the rows (0.9 % or more, with 95 % confidence)"),
        # rows without subjects are noise, and rows beyond what these subjects can have
        (
            12,
            900,
            "At most 120 values of id have more than 4 rows (with 95 % confidence), of which 4 are counted",
        ),
        (600, 1_900, "At least about 6.0 % of the rows ("),
        (
            12,
            30,
            "At most 120 values of id have more than 4 rows (with 95 % confidence), of which 4 are counted",
        ),
    ],
)
def test_words_name_what_is_left_out(subjects: int, rows: int, words: str) -> None:
    """A share where noise does not explain all; else how many subjects there can be."""
    found = uncounted_rows(subjects, rows, cap=CAP, most=MOST, sigma=239.0)
    said = str(found.sentence(9_330.0, 70.0, "id"))
    assert said.startswith(words)
    is_told = said.endswith("It can be far more, as at most 4 further rows of each were looked at.")
    assert is_told is said.startswith("At least")
