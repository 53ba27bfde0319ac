"""GUM: it never moves away from a marginal, never makes what is forbidden, and always makes what was asked for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.base.errors import InputError
from marginweave.configuration.synthesis import GumSynthesis
from marginweave.domain.masks import Mask
from marginweave.estimate.consistency import make_consistent
from marginweave.observations.tables import Observation
from marginweave.records.gum.kernel import (
    Pace,
    Target,
    Zeros,
    _cap,
    _choose,
    _rounded,
    residual,
    update,
)
from tests.support.synthesized import synthesize_gum

SIZES = (2, 3, 5, 7)
NO_ZEROS = Zeros.of([])
EVERY_PAIR = list(itertools.combinations(range(4), 2))


def target_of(counts: np.ndarray, margin: float) -> Target:
    """A target over attributes 1 and 2."""
    return Target(
        attributes=np.array([1, 2]),
        strides=np.array([5, 1]),
        sizes=np.array([3, 5]),
        counts=counts,
        margin=margin,
        columns=np.arange(4),
    )


def random_rows(seed: int, rows: int, skew: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    columns = [rng.choice(n, rows, p=rng.dirichlet(np.full(n, skew))) for n in SIZES]
    columns[1] = np.where(rng.random(rows) < 0.7, columns[2] % 3, columns[1])
    return np.ascontiguousarray(np.stack(columns, axis=1), np.int32)


def marginal(
    rows: np.ndarray, clique: tuple[int, ...], sizes: tuple[int, ...] = SIZES
) -> np.ndarray:
    counts = np.zeros([sizes[a] for a in clique])
    np.add.at(counts, tuple(rows[:, a] for a in clique), 1)
    return counts


def measured(
    rows: np.ndarray, cliques: list[tuple[int, ...]], level: float, seed: int = 0
) -> list[Observation]:
    """Marginals with noise, made consistent; exact ones at level 0."""
    rng = np.random.default_rng(seed)
    noisy = [
        Observation(
            attributes=c,
            counts=marginal(rows, c) + rng.normal(0, level, [SIZES[a] for a in c]),
            deviation=max(level, 1e-6),
        )
        for c in cliques
    ]
    return list(make_consistent(noisy))


@settings(max_examples=50)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 120),
    st.sampled_from([1.0, 0.84, 0.3, 0.01]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 0.7, 3.0]),
)
def test_an_update_never_moves_away_from_its_marginal(
    seed: int, rows: int, alpha: float, share: float, margin: float
) -> None:
    """Residuals are whole, and a cell gives or takes at most its residual rounded up: the L1 distance cannot grow.

    What was moved shows in it: two for each record, one at its old cell and one at its new. A cell of n records takes at
    most alpha n (one more by rounding); copies are whole records that were there before, replacements keep other columns.
    """
    rng = np.random.default_rng(seed)
    records, code = random_rows(seed, rows), np.empty(rows, np.int64)
    target = target_of(rng.multinomial(rows, rng.dirichlet(np.full(15, 0.3))), margin)
    for _ in range(4):
        before, old = residual(records, target._replace(margin=0.0), code), records.copy()
        moved = update(records, target, NO_ZEROS, Pace(alpha, share), code, rng)
        after = residual(records, target._replace(margin=0.0), code)
        assert after == before - 2 * moved
        changed = (records != old).any(axis=1)
        assert moved >= changed.sum()
        counts = marginal(old, (1, 2)).ravel()
        most = np.where(counts > 0, counts + alpha * counts, alpha * target.counts)
        assert (marginal(records, (1, 2)).ravel() <= np.maximum(counts, np.ceil(most) + 1)).all()
        if share == 0:
            assert np.array_equal(records[:, [0, 3]], old[:, [0, 3]])
        if share == 1:
            known = {tuple(row) for row in old.tolist()}
            # a cell that takes one more than it has, by rounding, has nothing left to copy
            full = (counts > 0) & (marginal(records, (1, 2)).ravel() <= 2 * counts)
            into_full = changed & full[records[:, 1] * 5 + records[:, 2]]
            assert all(tuple(row) in known for row in records[into_full].tolist())


def test_over_full_cells_give_one_share_of_what_they_hold() -> None:
    """min(excess, beta n) adds up to the 40 that leave: 20 beta + 100 beta + 5 = 40, the third cell being at its excess."""
    excess = np.array([10.0, 60.0, 5.0, 0.0])
    _cap(excess, np.array([20, 100, 400, 50]), 40)
    assert excess == pytest.approx([20 * 35 / 120, 100 * 35 / 120, 5, 0])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_updates_arrive(share: float) -> None:
    """Without a margin, at full rate, one marginal is met exactly within 200 updates, empty cells included."""
    rng = np.random.default_rng(1)
    records, code = random_rows(1, 400), np.empty(400, np.int64)
    target = target_of(rng.multinomial(400, np.full(15, 1 / 15)), 0.0)
    assert residual(records, target, code) > 100
    for _ in range(200):
        update(records, target, NO_ZEROS, Pace(1.0, share), code, rng)
    assert residual(records, target, code) == 0


def test_amounts_are_rounded_up_or_down_by_chance_and_never_beyond_their_limit() -> None:
    """40 000 times: the total is met, means lie within 5.2 sd/sqrt(N) of the amounts, sd at most 1/2 (false alarm 6e-7);
    where the total is more than the amounts, a limit still holds."""
    rng = np.random.default_rng(2)
    amounts, most = np.array([0.3, 0.0, 1.2, 0.5]), np.full(4, 9)
    drawn = np.array([_rounded(amounts, 2, most, rng) for _ in range(40_000)])
    assert (drawn.sum(axis=1) == 2).all()
    assert (np.abs(drawn.mean(axis=0) - amounts) < 5.2 * 0.5 / 200).all()
    tight = np.array([2, 1])
    assert all((_rounded(np.array([1.5, 1.0]), 3, tight, rng) <= tight).all() for _ in range(100))


def test_cells_within_the_margin_are_left_alone_and_the_others_stop_at_it() -> None:
    """Residuals -20, 20, -3, 3 and a margin of 4: the first two end 4 from their targets, the last two never change."""
    rng = np.random.default_rng(8)
    counts = np.zeros(15, np.int64)
    counts[[0, 4, 7, 12]] = [50, 50, 50, 50]
    cell = np.repeat(np.arange(15), counts)
    records = np.zeros((200, 4), np.int32)
    records[:, 1], records[:, 2] = cell // 5, cell % 5
    wanted = counts.copy()
    wanted[[0, 4, 7, 12]] += [20, -20, 3, -3]
    code = np.empty(200, np.int64)
    for _ in range(30):
        update(records, target_of(wanted, 4.0), NO_ZEROS, Pace(1.0, 0.5), code, rng)
        assert marginal(records, (1, 2)).ravel()[[7, 12]].tolist() == [50, 50]
    assert marginal(records, (1, 2)).ravel()[[0, 4]].tolist() == [66, 34]


def test_where_a_record_goes_does_not_depend_on_where_it_stood() -> None:
    """Two cells, one after the other in the table, give 500 records each to two empty ones: chi-square, 1e-6."""
    rng = np.random.default_rng(9)
    records = np.zeros((2000, 4), np.int32)
    records[1000:, 2] = 1
    old = records[:, 2].copy()
    wanted = np.zeros(15, np.int64)
    wanted[[0, 1, 10, 11]] = 500
    update(records, target_of(wanted, 0.0), NO_ZEROS, Pace(1.0, 0.0), np.empty(2000, np.int64), rng)
    moved = records[:, 1] == 2
    assert moved.sum() == 1000
    table = np.zeros((2, 2))
    np.add.at(table, (old[moved], records[moved, 2]), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-6


def test_leaving_and_copied_records_are_chosen_evenly() -> None:
    """4 of 20 records leave one cell, 6 of 10 are copied in another, 20 000 times: each of the 30 frequencies lies
    within 5.8 standard deviations of its share; false alarm 30 times 7e-9."""
    code = np.array([0] * 20 + [1] * 10)[np.random.default_rng(0).permutation(30)]
    chosen = np.zeros(30)
    rng = np.random.default_rng(5)
    for _ in range(20_000):
        freed, sources = _choose(code, np.array([20, 10]), np.array([4, 0]), np.array([0, 6]), rng)
        assert len(set(freed)) == 4
        assert len(set(sources)) == 6
        chosen[freed] += 1
        chosen[sources] += 1
    share = np.where(code == 0, 0.2, 0.6)
    assert (np.abs(chosen - 20_000 * share) < 5.8 * np.sqrt(20_000 * share * (1 - share))).all()


@settings(max_examples=12)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 60),
    st.sets(st.sampled_from(EVERY_PAIR), min_size=1),
    st.sampled_from([GumSynthesis(rounds=4), GumSynthesis(preset="paper")]),
)
def test_exactly_as_many_records_as_asked_with_declared_values(
    seed: int, records: int, cliques: set[tuple[int, int]], preset: GumSynthesis
) -> None:
    """Whatever the marginals: the shape, the type, every code inside its size; the same seed, the same records."""
    marginals = measured(
        random_rows(seed, 300), [*((a,) for a in range(4)), *sorted(cliques)], 20.0, seed
    )
    made = synthesize_gum(marginals, SIZES, records, preset)
    assert made.shape == (records, 4)
    assert made.dtype == np.int32
    assert (made >= 0).all()
    assert (made < np.array(SIZES)).all()
    assert np.array_equal(made, synthesize_gum(marginals, SIZES, records, preset))


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["tree", "one-way"]), st.booleans())
def test_forbidden_combinations_never_appear(seed: int, start: str, known: bool) -> None:
    """Random masks over one, two and three attributes that leave some record; after 0 to 3 rounds, and when the
    marginals still have counts in the forbidden cells as well."""
    rng = np.random.default_rng(seed)
    kept = [rng.integers(0, n) for n in SIZES]
    masks = []
    for attributes in [(3,), (0, 2), (1, 2, 3)]:
        allowed = rng.random([SIZES[a] for a in attributes]) < 0.6
        allowed[tuple(kept[a] for a in attributes)] = True
        masks.append(Mask(attributes=attributes, allowed=allowed))
    marginals = measured(random_rows(seed, 200), [(0,), (0, 1), (1, 2), (2, 3), (0, 3)], 10.0, seed)
    if known:
        marginals = list(make_consistent(marginals, masks))
    for rounds in range(4):
        settings_ = GumSynthesis(start=start, rounds=rounds, tolerance=0.0, seed=seed)  # pyright: ignore[reportArgumentType]
        made = synthesize_gum(marginals, SIZES, 150, settings_, masks)
        assert len(made) == 150
        for mask in masks:
            assert mask.allowed[tuple(made[:, a] for a in mask.attributes)].all()


def test_updates_go_on_under_a_mask() -> None:
    """Attribute 0 is determined by attribute 1, and (1, 2) starts wrong: copies of whole records still mend it."""
    rows = random_rows(3, 4000, skew=2.0)
    rows[:, 0] = rows[:, 1] % 2
    allowed = np.zeros((2, 3), np.bool_)
    allowed[[0, 1, 0], [0, 1, 2]] = True
    mask = Mask(attributes=(0, 1), allowed=allowed)
    marginals = list(make_consistent(measured(rows, [(0, 1), (1, 2), (2, 3), (1, 3)], 0.0), [mask]))
    distance = []
    for rounds in (0, 30):
        made = synthesize_gum(
            marginals,
            SIZES,
            4000,
            GumSynthesis(start="one-way", rounds=rounds, tolerance=0.0),
            [mask],
        )
        assert (made[:, 0] == made[:, 1] % 2).all()
        distance.append(np.abs(marginal(made, (1, 2)) - marginal(rows, (1, 2))).sum())
    assert distance[1] < 0.1 * distance[0]


def test_a_tree_of_pairs_is_reproduced_to_rounding() -> None:
    """A chain is clipped away whole and drawn attribute by attribute: no cell is off by more than 1 + 1 + 1 records.

    Systematic sampling is off by less than one in a group; the sizes of the groups are off by what came before.
    """
    rows = random_rows(2, 3000)
    marginals = measured(rows, [(0, 1), (1, 2), (2, 3)], 0.0)
    made = synthesize_gum(marginals, SIZES, 3000, GumSynthesis(rounds=0))
    for clique in [(0, 1), (1, 2), (2, 3)]:
        assert np.abs(marginal(made, clique) - marginal(rows, clique)).max() <= 3


def test_components_come_out_independent() -> None:
    """(0, 1) and (2, 3) share no marginal: chi-square of independence of 1 and 2 over 20 000 records, false alarm 1e-6."""
    rows = random_rows(4, 20_000, skew=3.0)
    rows[:, 0] = rows[:, 1] % 2
    triangle = [(0, 1), (2, 3)]
    made = synthesize_gum(measured(rows, triangle, 0.0), SIZES, 20_000, GumSynthesis())
    assert stats.chi2_contingency(marginal(rows, (1, 2))).pvalue < 1e-12
    assert stats.chi2_contingency(marginal(made, (1, 2))).pvalue > 1e-6


def test_all_pairs_are_met_and_copies_carry_what_no_pair_says() -> None:
    """From independent columns, noise-free pairs: 30 rounds leave less than a tenth of every distance."""
    rows = random_rows(6, 5000, skew=2.0)
    rows[:, 3] = (rows[:, 0] * 3 + rows[:, 2]) % 7
    marginals = measured(rows, EVERY_PAIR, 0.0)
    first = synthesize_gum(marginals, SIZES, 5000, GumSynthesis(start="one-way", rounds=0))
    last = synthesize_gum(marginals, SIZES, 5000, GumSynthesis(start="one-way", tolerance=0.0))
    before = sum(np.abs(marginal(first, c) - marginal(rows, c)).sum() for c in EVERY_PAIR)
    after = sum(np.abs(marginal(last, c) - marginal(rows, c)).sum() for c in EVERY_PAIR)
    assert after < 0.1 * before


def test_copies_alternate_with_replacements_as_the_settings_say() -> None:
    """The second share counts from the second round on, and only then."""
    marginals = measured(random_rows(9, 500), EVERY_PAIR, 5.0)

    def made(rounds: int, *duplicate: float) -> bytes:
        return synthesize_gum(
            marginals, SIZES, 500, GumSynthesis(start="one-way", rounds=rounds, duplicate=duplicate)
        ).tobytes()

    assert (made(1, 0.0) == made(1, 0.0, 1.0)) is True
    assert (made(2, 0.0) == made(2, 0.0, 1.0)) is False
    assert (made(1, 1.0) == made(1, 0.0)) is False


def test_cells_of_less_than_half_a_record_are_not_lost() -> None:
    """Attributes of 20 values are equal: 8 records have 0.4 of one in each cell, and come out equal all the same.

    The mask, which forbids nothing, keeps the pair from being clipped.
    """
    equal = Observation(attributes=(0, 1), counts=np.eye(20) * 100, deviation=1e-6)
    mask = Mask(attributes=(0, 1), allowed=np.ones((20, 20), np.bool_))
    made = synthesize_gum(
        [equal], (20, 20), 8, GumSynthesis(start="one-way", tolerance=0.0, rounds=60), [mask]
    )
    assert (made[:, 0] == made[:, 1]).all()


def test_noise_is_left_alone() -> None:
    """A start whose every cell is within its deviation is the end: 30 rounds make the same records as none."""
    marginals = [
        Observation(attributes=m.attributes, counts=m.counts, deviation=1e4)
        for m in measured(random_rows(7, 500), EVERY_PAIR, 5.0)
    ]
    none = synthesize_gum(marginals, SIZES, 500, GumSynthesis(rounds=0))
    many = synthesize_gum(marginals, SIZES, 500, GumSynthesis(rounds=30))
    eager = synthesize_gum(marginals, SIZES, 500, GumSynthesis(rounds=30, tolerance=0.0))
    assert np.array_equal(none, many)
    assert not np.array_equal(none, eager)


def test_it_stops_at_noise_and_is_nearer_to_the_truth_for_it() -> None:
    """Three independent attributes measured with much noise: following it is farther from the truth than leaving it."""
    sizes = (6, 7, 8)
    rng = np.random.default_rng(11)
    pairs = list(itertools.combinations(range(3), 2))
    truth = {c: np.full([sizes[a] for a in c], 2000 / (sizes[c[0]] * sizes[c[1]])) for c in pairs}
    noisy = [
        Observation(attributes=c, counts=t + rng.normal(0, 15, t.shape), deviation=15.0)
        for c, t in truth.items()
    ]
    singles = [
        Observation(
            attributes=(a,), counts=np.full(n, 2000 / n) + rng.normal(0, 3, n), deviation=3.0
        )
        for a, n in enumerate(sizes)
    ]
    consistent = make_consistent([*singles, *noisy])
    distance = {}
    for tolerance in (0.0, 1.0):
        settings_ = GumSynthesis(start="one-way", tolerance=tolerance)
        made = synthesize_gum(consistent, sizes, 2000, settings_)
        distance[tolerance] = sum(
            float(np.abs(marginal(made, c, sizes) - t).sum()) for c, t in truth.items()
        )
    assert distance[1.0] < 0.8 * distance[0.0]


@pytest.mark.parametrize(
    ("cliques", "sizes", "records", "message"),
    [
        ([(0, 1)], SIZES, 10, "attribute 2 must be in at least one marginal"),
        (
            [(0, 1), (2, 3)],
            (2, 3, 5, 8),
            10,
            r"attributes \(2, 3\) must have the shape that sizes say",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    cliques: list, sizes: tuple, records: int, message: str
) -> None:
    marginals = measured(random_rows(1, 50), cliques, 1.0)
    with pytest.raises(InputError, match=message):
        synthesize_gum(marginals, sizes, records, GumSynthesis())
