"""The bought comparison: what it measures, how far a unit moves it, and the noise that it gets for that."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.budget import Neighbors, Stability
from marginweave.checkpoints.codecs import pack_arrays, pack_codes
from marginweave.configuration.evaluation import PaidSettings
from marginweave.draws.references import DerivedReference, StageResult
from marginweave.evaluate.paid import bought, compared_marginals, mean_count_error, paid_evaluation
from marginweave.measurements.combinations import Domain
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.mechanisms.gaussian import add_noise, error_sigma
from tests.support.configurations import configuration
from tests.support.samples import every
from tests.support.seeded_bits import SeededBits

Row = tuple[int, ...]
SIZES = (1, 2, 3)  # values of each attribute; one code more means missing
ROWS = list(itertools.product(*(range(size + 1) for size in SIZES)))
DOMAIN = Domain(names=("a", "b", "c"), labels=tuple(tuple(map(str, range(size))) for size in SIZES))
rows = st.lists(st.sampled_from(ROWS), max_size=8)


def codes(table: list[Row]) -> list[np.ndarray]:
    return [np.array([row[j] for row in table], np.int64) for j in range(len(SIZES))]


def error(table: list[Row], records: list[Row], length: int, record_count: int) -> int:
    marginals = list(itertools.combinations(range(len(SIZES)), length))
    return mean_count_error([codes(table[:3]), codes(table[3:])], [codes(records)], DOMAIN, marginals, record_count)


@given(rows, rows, st.integers(1, 3), st.integers(0, 20))
@settings(deadline=None)
def test_it_is_the_mean_distance_of_all_marginals(
    table: list[Row], records: list[Row], length: int, record_count: int
) -> None:
    """By going through every record, in exact fractions: synthetic counts weighted to n, missing as a value, rounded down."""
    total, marginals = Fraction(0), list(itertools.combinations(range(len(SIZES)), length))
    for chosen in marginals:
        real, made = (Counter(tuple(row[j] for j in chosen) for row in side) for side in (table, records))
        weight = Fraction(record_count, len(records)) if records else Fraction(0)
        total += sum((abs(real[cell] - weight * made[cell]) for cell in real | made), Fraction(0))
    assert error(table, records, length, record_count) == math.floor(total / len(marginals))


@pytest.mark.parametrize(
    ("length", "theta", "neighbors"),
    every(3, itertools.product([1, 2, 3], [1, 2], ["add-remove", "replace-one"]), first=1),
)
def test_no_neighbor_moves_it_by_more_than_its_sensitivity_and_one_does(
    length: int, theta: int, neighbors: Neighbors
) -> None:
    """Every table that differs by one unit: up to theta of all 24 rows come, go, or give way; weights above and below 1."""
    generator, most = np.random.default_rng(length), 0
    bound = l1_sensitivity(Stability(records=theta, neighbors=neighbors))
    units = list(itertools.combinations_with_replacement(ROWS, theta))
    for size, (made, record_count) in zip((0, 1, 5), ((0, 0), (3, 7), (4, 2)), strict=True):
        kept, records = (
            [ROWS[i] for i in generator.integers(0, len(ROWS), count)] for count in (size, made)
        )  # what other units have, and the records
        without = error(kept, records, length, record_count)
        held = [error([*kept, *unit], records, length, record_count) for unit in units]
        moved = [abs(value - without) for value in held]
        if neighbors == "replace-one":  # by every other unit, also one with no row
            moved.append(max(held) - min(held))
        assert max(moved) <= bound
        most = max(most, *moved)
    # a row that all records have against one that none has
    alike, apart = [ROWS[0]] * 9, ROWS[-1]
    one, other = (error([*alike[:5], *[row] * theta], alike, length, 9) for row in (alike[0], apart))
    none = error(alike[:5], alike, length, 9)
    most = max(most, abs(one - none), abs(other - one) if neighbors == "replace-one" else 0)
    assert most == bound


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("theta", [1, 2, 3])
@given(st.floats(0.05, 500))
def test_its_noise_costs_what_its_multiplier_does(neighbors: Neighbors, theta: int, multiplier: float) -> None:
    """Sensitivity / deviation is at most 1 / multiplier, and less by rounding up to 1/1024 only: 2 theta, not sqrt(2) theta."""
    stability = Stability(records=theta, neighbors=neighbors)
    sensitivity = 2 * theta if neighbors == "replace-one" else theta
    wanted, found = Fraction(multiplier) * sensitivity, error_sigma(multiplier, stability)
    assert l1_sensitivity(stability) == sensitivity
    assert wanted <= found < wanted + Fraction(1, 1024)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_its_noise_is_rounded_gaussian(neighbors: Neighbors) -> None:
    """Mean and variance (sd^2 + 1/12) of 40,000 draws within 5.2 standard errors: false alarm 8e-7 over the 4 comparisons.

    The draws come from fixed bits, so that it fails always or never.
    """
    deviation, count = error_sigma(2.5, Stability(records=2, neighbors=neighbors)), 40_000
    noise = add_noise(np.full(count, 100, np.int64), deviation, SeededBits(3)) - 100
    variance = (2.5 * (4 if neighbors == "replace-one" else 2)) ** 2 + 1 / 12
    assert abs(noise.mean()) < 5.2 * math.sqrt(variance / count)
    assert abs(noise.var() / variance - 1) < 5.2 * math.sqrt(2 / count)


@pytest.mark.parametrize("deviation", [Fraction(1, 4), Fraction(3)])
def test_the_intervals_cover_what_was_rounded_down(deviation: Fraction) -> None:
    """True means are spread over [40, 41), and their floor is drawn; expected 0.95 or a little more.

    Of 4,000 fixed draws at most 5 standard errors fewer than 95 %: false alarm below 1e-6.
    """
    settings_, covered = PaidSettings(share=0.05), 0
    means = np.linspace(40, 41, 4000, endpoint=False)
    drawn = add_noise(np.floor(means).astype(np.int64), deviation, SeededBits(11))
    for mean, noisy in zip(means.tolist(), drawn.tolist(), strict=True):
        found = paid_evaluation(noisy, float(deviation), 80, settings_, 6)
        assert found.mean_l1 is not None
        assert found.tvd is not None
        assert (found.mean_l1.value, found.tvd.value) == (max(0, noisy) / 80, max(0, noisy) / 160)
        assert found.tvd.high == found.count_error.high / 160
        covered += found.count_error.low <= mean <= found.count_error.high
    assert covered / 4000 > 0.95 - 5 * math.sqrt(0.95 * 0.05 / 4000)
    beyond = paid_evaluation(400, float(deviation), 80, settings_, 6)
    assert beyond.mean_l1 is not None
    assert beyond.tvd is not None
    assert (beyond.mean_l1.value, beyond.tvd.value, beyond.tvd.low, beyond.tvd.high) == (2, 1, 1, 1), (
        "no distance is longer"
    )
    nothing = paid_evaluation(-40, float(deviation), 0, settings_, 6)
    assert (nothing.count_error.value, nothing.count_error.low, nothing.mean_l1, nothing.tvd) == (0, 0, None, None)


def test_sets_of_values_are_left_out_where_a_record_would_be_in_several_cells() -> None:
    """Under k-tuples; under marginals each value is an attribute with one value a record."""
    signs = {"type": "set", "values": ["x", "y"], "max_values": 2}
    tuples = configuration(columns__signs=signs)
    marginals = configuration(columns__signs=signs, aggregate__method="marginals")
    assert len(compared_marginals(tuples.attributes, 2)) == math.comb(4, 2)
    assert len(compared_marginals(marginals.attributes, 2)) == math.comb(6, 2)


def test_it_is_told_of_the_records_that_it_was_drawn_for_alone(tmp_path: Path) -> None:
    """Other records, as another version of the program would make on the way, have no number."""
    reference = DerivedReference(
        place=tmp_path, canonical=configuration(evaluate={"paid": {"share": 0.05}}).canonical()
    )
    drawn_for, other = (pack_codes(codes([row])) for row in (ROWS[0], ROWS[-1]))

    def stored(stage: str, payload: bytes) -> StageResult:
        return reference.checkpoint_blocks(stage, [], lambda: [payload])

    records, others = stored("synthesize", drawn_for), stored("synthesize-other", other)
    digest = hashlib.sha256(drawn_for).hexdigest()
    payload = pack_arrays({"value": np.array([12])}, {"synthesized": digest, "deviation": 1.5})
    paid = reference.checkpoint("evaluation", [], lambda: payload)
    found = bought(reference, paid, records, 10)
    assert found is not None
    assert (found.count_error.value, found.marginals, found.share) == (12, 6, 0.05)
    assert bought(reference, paid, others, 10) is None
