"""The exponential mechanism chooses with its exact probabilities: all small cases, OpenDP as an oracle, gaps of any size.

A choice is a function of one uniform number U, so that laws about it are exact: which U choose a level is compared with the
parts that mpmath has for it. Statistics have a false alarm of 1e-6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from marginweave.mechanisms import exponential as exponential_module
from marginweave.mechanisms.exponential import _certain_distance, _Levels, choose
from marginweave.mechanisms.gaussian import select_candidate
from marginweave.mechanisms.noise_table import exponential
from tests.support.samples import every
from tests.support.seeded_bits import SeededBits

FALSE_ALARM = 1e-6
# Two of one score, and chances that a wrong rate changes most: 1,500 choices find a factor of 7/4 (chi-square 83 beyond 3).
TELLING = [3, 3, 2, 0], Fraction(1, 2)
BITS = 128
RATES = st.fractions(Fraction(1, 10**6), 40)
SCORES = st.lists(
    st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=9
)


def exact(scores: Sequence[int], rate: Fraction) -> dict[int, Any]:
    """The probability of each distance from the best score, to 400 bits."""
    with mpmath.workprec(400):
        slope = mpmath.mpf(rate.numerator) / rate.denominator
        weights = {d: mpmath.mpf(0) for d in sorted(max(scores) - score for score in scores)}
        for score in scores:
            weights[max(scores) - score] += mpmath.exp(-slope * (max(scores) - score))
        total = mpmath.fsum(weights.values())
        return {d: weight / total for d, weight in weights.items()}


def distances(scores: Sequence[int]) -> NDArray[np.uint64]:
    return np.array([max(scores) - score for score in scores], np.uint64)


@given(st.one_of(st.fractions(0, 1), st.fractions(0, 8000)), st.integers(8, 600))
@settings(max_examples=50, deadline=None)
def test_the_exponential_is_rounded_down_by_less_than_two_units(x: Fraction, bits: int) -> None:
    with mpmath.workprec(bits + 13_000):
        off = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator) * 2**bits - exponential(x, bits)
        assert 0 <= off < 2


@given(
    RATES, st.lists(st.integers(0, 2**40), min_size=1, max_size=6), st.sampled_from([16, 128, 256])
)
@settings(max_examples=50, deadline=None)
def test_every_weight_is_bounded_as_the_proof_says(
    rate: Fraction, far: list[int], precision: int
) -> None:
    """A_i <= 2^F C_i <= A_i + 2 N_i, and what is left out has less than one unit for each candidate."""
    levels = _Levels.near(np.array([0, *far], np.uint64), rate, precision)
    with mpmath.workprec(precision + 400):
        slope = mpmath.mpf(rate.numerator) / rate.denominator
        for distance, below in zip(
            levels.distances.tolist(), levels.powers_below(levels.distances), strict=True
        ):
            assert below <= mpmath.exp(-slope * distance) * 2**precision < below + 2
        for distance in set(far) - set(levels.distances.tolist()):
            assert mpmath.exp(-slope * distance) * 2**precision < 1


@given(SCORES, RATES, st.data())
@settings(max_examples=50, deadline=None)
def test_a_choice_is_certain_only_where_the_infinite_number_makes_it(
    scores: list[int], rate: Fraction, data: st.DataObject
) -> None:
    """Near every boundary of the exact parts, and anywhere else: a level is chosen only if all U that begin so choose it."""
    probabilities = exact(scores, rate)
    with mpmath.workprec(400):
        ends = list(itertools.accumulate(probabilities.values()))
    near = int(mpmath.ldexp(data.draw(st.sampled_from(ends)), BITS)) + data.draw(
        st.integers(-50, 50)
    )
    uniform = data.draw(
        st.one_of(st.just(min(max(near, 0), 2**BITS - 1)), st.integers(0, 2**BITS - 1))
    )
    chosen = _certain_distance(_Levels.near(distances(scores), rate, BITS), uniform, BITS)
    if chosen is None:
        assert min(abs(mpmath.ldexp(end, BITS) - uniform) for end in ends) < 50 * len(scores)
        return
    place = list(probabilities).index(chosen)
    with mpmath.workprec(400):
        assert place == 0 or ends[place - 1] * 2**BITS <= uniform + mpmath.mpf(2) ** -200
        assert (
            place == len(ends) - 1 or uniform + 1 <= ends[place] * 2**BITS + mpmath.mpf(2) ** -200
        )


def p_value(scores: Sequence[int], rate: Fraction, trials: int = 1500) -> float:
    """Chi-square of choices among all candidates, those of one level apart, against the exact probabilities."""
    values = np.array(scores, np.int64)
    members = {d: scores.count(max(scores) - d) for d in exact(scores, rate)}
    chances = np.array(
        [float(exact(scores, rate)[max(scores) - s] / members[max(scores) - s]) for s in scores]
    )
    drawn = np.bincount(
        [choose(values, rate, SeededBits(8, i)) for i in range(trials)], minlength=len(scores)
    )
    kept = chances * trials >= 8
    observed = np.append(drawn[kept], drawn[~kept].sum())
    expected = np.append(chances[kept], chances[~kept].sum()) * trials
    if expected[-1] < 8:
        observed, expected = (
            observed[:-1],
            expected[:-1] * observed[:-1].sum() / expected[:-1].sum(),
        )
    return float(stats.chisquare(observed, expected).pvalue)


CASES = [
    ([0, 1, 2, 3], Fraction(1, 2)),
    ([7, 7, 7], Fraction(3)),
    ([5, 5, 4, 4, 4, -90], Fraction(1, 3)),
    ([-(2**63), 2**63 - 1, 0], Fraction(1, 2**63)),
    ([0, -(10**12), 3 * 10**11], Fraction(1, 10**12)),
    ([0, -1000, -1025, -3000], Fraction(1, 1500)),
]


@pytest.mark.parametrize(("scores", "rate"), CASES, ids=str)
def test_choices_have_the_exact_probabilities(scores: list[int], rate: Fraction) -> None:
    """Gaps of any size; arithmetic with numbers of thousands of bits has a fifth of the trials."""
    trials = 300 if rate.denominator > 10**6 else 1500
    assert p_value(scores, rate, trials) > FALSE_ALARM


@pytest.mark.parametrize("precision", [1, 3, 8])
def test_choices_that_are_refined_have_the_same_probabilities(
    precision: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From so few bits nearly every choice is open at first, and F doubles several times."""
    monkeypatch.setattr(exponential_module, "_PRECISION", precision)
    assert p_value(*TELLING) > FALSE_ALARM


def test_chunks_of_levels_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(1).integers(0, 4000, 3000)
    whole = [choose(scores, Fraction(1, 900), SeededBits(9, i)) for i in range(40)]
    monkeypatch.setattr(exponential_module, "_CHUNK", 17)
    assert [choose(scores, Fraction(1, 900), SeededBits(9, i)) for i in range(40)] == whole
    assert len(set(whole)) > 20


@pytest.mark.parametrize(
    "factor", every(3, [Fraction(1, 2), Fraction(2), Fraction(7, 4)], first=2), ids=str
)
def test_another_rate_would_be_found(factor: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistic has power: a sensitivity that is not doubled, or is twice over, fails it."""
    real = _Levels.near
    monkeypatch.setattr(
        _Levels, "near", lambda found, rate, precision: real(found, rate * factor, precision)
    )
    assert p_value(*TELLING) < FALSE_ALARM


def oracle(scale: float) -> Callable[[NDArray[np.int64]], int]:
    """OpenDP's noisy maximum, with Gumbel noise of this scale; it is slow to make."""
    from opendp import domains, measures, metrics
    from opendp.measurements import then_noisy_max
    from opendp.mod import enable_features

    enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.linf_distance(T="i64")
    choose_noisily = space >> then_noisy_max(measures.zero_concentrated_divergence(), scale=scale)
    return lambda scores: int(choose_noisily(scores))


def test_opendp_chooses_alike() -> None:
    """2,000 choices of each at epsilon 2 and sensitivity 3, by a test of homogeneity; at twice the scale it fails."""
    scores = np.array([0, 4, 9, 12, 12, -20], np.int64)
    ours = np.bincount(
        [select_candidate(scores, 3, 2.0, SeededBits(4, i)) for i in range(2000)], minlength=6
    )

    def alike(scale: float) -> float:
        chosen_by_opendp = oracle(scale)
        theirs = np.bincount([chosen_by_opendp(scores) for _ in range(2000)], minlength=6)
        table = np.array([ours, theirs])
        return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)

    assert alike(6 / 2) > FALSE_ALARM
    assert alike(12 / 2) < FALSE_ALARM


@pytest.mark.parametrize("gap", [10**6, 10**12, 2**63])
def test_a_gap_of_any_size_is_decided(gap: int) -> None:
    """gamma beyond 1e6: the best one, but for a chance of e^-1000000; alone, it is chosen."""
    scores = np.array([-(2**63), gap - 2**63, -(2**63)], dtype=object).astype(np.int64)
    assert {choose(scores, Fraction(1), SeededBits(1, i)) for i in range(50)} == {1}
    assert choose(scores[:1], Fraction(1, 7), SeededBits(1)) == 0


class Extreme(SeededBits):
    """U of nothing but ones, for so many bits: beyond what is left to the best candidates."""

    def stream(self, *place: int) -> Any:
        real = super().stream(*place)
        if place == (0,):
            left = iter(range(12))
            drawn = real.integer
            real.integer = lambda bits: (
                (1 << bits) - 1 if next(left, None) is not None else drawn(bits)
            )
        return real


def test_no_weight_is_rounded_to_nothing() -> None:
    """A candidate of weight e^-600 = 2^-866 is chosen by a U that is so near to 1: pure privacy has no exceptions."""
    assert choose(np.array([600, 0]), Fraction(1), Extreme(1)) == 1


def test_a_million_candidates_of_as_many_scores() -> None:
    """All of them levels, and most of them near enough to count."""
    scores = np.random.default_rng(2).permutation(1_000_000).astype(np.int64)
    place = choose(scores, Fraction(1, 20_000), SeededBits(1))
    assert 0 <= (scores.max() - scores[place]) / 20_000 < -math.log(1e-9)
