"""Tables that tell nothing are not fitted, and single columns are held to their counts where these are the most exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.configuration.default_records import fitting_seconds
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.fit import calibrate_one_way, fit_mixture
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.rounding import nearest_column
from marginweave.estimate.tuples import InformativeTables
from marginweave.observations.tables import CensoredObservation, Observation

SIZES = (2, 3, 5, 7)
TOTAL = 4200.0
FEW = MixtureSynthesis(components=20, fits=2, iterations=100)


def known(
    clique: Clique, counts: np.ndarray, deviation: float, threshold: int = 1
) -> CensoredObservation:
    """Counts of which only those that reach the threshold are known."""
    kept = counts >= threshold
    return CensoredObservation(
        attributes=clique,
        counts=np.where(kept, counts, 0.0),
        deviation=deviation,
        released=kept,
        hidden=~kept,
        cut=threshold - 0.5,
    )


def singles(deviation: float = 1.0) -> list[CensoredObservation]:
    return [known((a,), np.full(size, TOTAL / size), deviation) for a, size in enumerate(SIZES)]


def tables(
    length: int, deviation: float, seed: int, threshold: int = 1
) -> list[CensoredObservation]:
    """Noisy counts of independent even columns."""
    rng = np.random.default_rng(seed)
    made = []
    for clique in itertools.combinations(range(4), length):
        shape = [SIZES[a] for a in clique]
        counts = TOTAL / np.prod(shape) + np.round(rng.normal(0, deviation, shape))
        made.append(known(clique, counts, deviation, threshold))
    return made


def dependent(deviation: float = 30.0) -> CensoredObservation:
    """The last two columns agree more often than not."""
    counts = np.full((5, 7), TOTAL / 70)
    counts[np.arange(5), np.arange(5)] += TOTAL / 10
    return known((2, 3), counts, deviation)


@pytest.mark.parametrize("threshold", [1, 40])
def test_pure_noise_is_not_let_in(threshold: int) -> None:
    """Of 600 independent tables a normal surprise would let in 14; at most 40 are (a Poisson of 14: 1e-8; fixed seeds)."""
    let_in = sum(
        len(InformativeTables(singles(), TOTAL, 1e6).pick(tables(2, 30.0, seed, threshold)))
        for seed in range(100)
    )
    assert let_in <= 40


def test_a_dependence_is_let_in_first_and_as_many_as_there_is_time_for() -> None:
    """The most surprising one stays where there is time for one alone; the order is the one they came in."""
    given_tables = [*tables(2, 30.0, 0)[:5], dependent()]
    plenty = InformativeTables(singles(), TOTAL, 1e6).pick(given_tables)
    assert dependent().attributes in [m.attributes for m in plenty]
    assert [m.attributes for m in plenty] == sorted(m.attributes for m in plenty)
    own = sum(fitting_seconds(size) for size in SIZES)
    informative = InformativeTables(singles(), TOTAL, own + fitting_seconds(35))
    assert [m.attributes for m in informative.pick(given_tables)] == [(2, 3)]
    assert informative.seconds == pytest.approx(0.0)
    assert InformativeTables(singles(), TOTAL, own).pick(given_tables) == []


def test_shorter_tables_come_first() -> None:
    """What pairs leave is for triples."""
    own = sum(fitting_seconds(size) for size in SIZES)
    informative = InformativeTables(singles(), TOTAL, own + fitting_seconds(35))
    wide = known((1, 2, 3), np.arange(105.0).reshape(3, 5, 7) * 100, 5.0)
    assert len(informative.pick([dependent()])) == 1
    assert informative.pick([wide]) == []
    assert len(InformativeTables(singles(), TOTAL, 1e6).pick([wide])) == 1


def test_columns_of_which_nothing_was_counted_tell_nothing() -> None:
    assert InformativeTables(singles()[:3], TOTAL, 1e6).pick([dependent()]) == []


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-50, 500), st.sampled_from("rhn")), min_size=2, max_size=8).filter(
        lambda cells: any(kind == "r" for _, kind in cells)
    ),
    st.integers(1, 60),
    st.floats(1, 3000),
)
def test_the_nearest_column_adds_up_and_has_no_negative_count(
    cells: list[tuple[float, str]], threshold: int, total: float
) -> None:
    """Whatever is released, hidden or was never counted; suppressed codes stay below the threshold where there are others."""
    kinds = np.array([kind for _, kind in cells])
    counts = np.array([max(count, threshold) if kind == "r" else 0.0 for count, kind in cells])
    column = CensoredObservation(
        attributes=(0,),
        counts=counts,
        deviation=3.0,
        released=kinds == "r",
        hidden=kinds == "h",
        cut=threshold - 0.5,
    )
    found = nearest_column(column, np.full(len(cells), total / len(cells)), total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    if (kinds == "n").any() and counts.sum() + threshold * (kinds == "h").sum() <= total:
        assert found[kinds == "r"] == pytest.approx(counts[kinds == "r"])
        assert (found[kinds == "h"] <= threshold - 0.5 + 1e-9 * total).all()


def test_a_model_is_held_to_exact_columns_and_keeps_its_dependence() -> None:
    """A model of even columns, held to others, has these; the odds ratios of a pair are those that were there."""
    rng = np.random.default_rng(3)
    shares = [rng.dirichlet(np.ones(size), 6) for size in SIZES]
    model = Mixture.of(rng.dirichlet(np.ones(6)), shares, SIZES, TOTAL, [])
    truth = [TOTAL * rng.dirichlet(np.full(size, 5.0)) for size in SIZES]
    exact = [Observation(attributes=(a,), counts=truth[a], deviation=1e-3) for a in range(4)]
    pair = Observation(attributes=(2, 3), counts=model.marginal((2, 3)), deviation=50.0)
    held = calibrate_one_way(model, [*exact, pair])
    for a in range(4):
        assert np.abs(held.marginal((a,)) - truth[a]).sum() < 0.02 * TOTAL
    assert held.weights is model.weights


def test_columns_that_larger_tables_know_better_are_left_to_these() -> None:
    """Counts of one column with 100 times the noise of a table of two move the model by less than a thousandth."""
    model = Mixture.of(
        np.ones(1), [np.full((1, size), 1 / size) for size in SIZES[:2]], SIZES[:2], TOTAL, []
    )
    wrong = Observation(attributes=(0,), counts=np.array([TOTAL, 0.0]), deviation=100.0)
    pair = Observation(attributes=(0, 1), counts=np.full((2, 3), TOTAL / 6), deviation=1.0)
    assert calibrate_one_way(model, [wrong, pair]).marginal((0,)) == pytest.approx(
        [TOTAL / 2] * 2, rel=1e-3
    )


def test_a_fit_is_nearer_to_single_columns_than_their_noise() -> None:
    """A fit may end one deviation away from every count; of its columns less than half of that is left."""
    rng = np.random.default_rng(0)
    ones = [
        Observation(attributes=(a,), counts=TOTAL / size + rng.normal(0, 20, size), deviation=20.0)
        for a, size in enumerate(SIZES)
    ]
    ones = [
        Observation(
            attributes=m.attributes,
            counts=m.counts.astype(np.float64) * TOTAL / m.total,
            deviation=20.0,
        )
        for m in ones
    ]
    pairs = [
        Observation(attributes=m.attributes, counts=m.counts, deviation=90.0)
        for m in tables(2, 90.0, 1)
    ]
    model = fit_mixture([*ones, *pairs], SIZES, TOTAL, [], FEW)
    squares = (
        np.concatenate([(model.marginal(m.attributes) - m.counts) / m.deviation for m in ones]) ** 2
    )
    assert squares.mean() < 0.25
