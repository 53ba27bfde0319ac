"""What of the graphical model needs no extra: its size, its refusals, and records dealt from a tree."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.synthesis import PgmSynthesis
from marginweave.counts import graphical
from marginweave.counts.graphical import Tree, choose_measurements, model_cells, model_fits, tree_tables
from marginweave.counts.selection import select_marginals
from marginweave.measurements.tables import Clique, Mask, Measurement
from marginweave.runs.limits import check_size
from marginweave.runs.request import read_request
from tests.support.configurations import configuration, raw
from tests.support.synthesized import graphical_sampler

PGM: dict[str, Any] = {"aggregate__method": "marginals", "synthesize__method": "pgm"}
SIZES = (3, 4, 2, 5)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphical, "find_spec", lambda _: None)


def test_it_is_refused_before_anything_where_the_extra_is_not_there(tmp_path: Path, absent: None) -> None:
    """By `run` and `plan`, which read a request, and by whoever synthesizes a release again elsewhere."""
    path = tmp_path / "people.yaml"
    path.write_text(yaml.safe_dump(raw(**PGM)))
    message = r"^synthesize.method \(pgm\) needs mbi: pip install 'marginweave\[pgm\]'$"
    with pytest.raises(InputError, match=message):
        read_request(path, run=None, source=None, home=tmp_path)
    one = Measurement(attributes=(0,), counts=np.ones(3), deviation=1.0)
    with pytest.raises(InputError, match=message):
        graphical_sampler([one], [3], 5, 3.0, PgmSynthesis())


@pytest.mark.parametrize(
    ("cliques", "bytes_needed"),
    [
        ({"all": 1}, 8 * (3 + 4 + 6 + 8)),
        ([["sex", "region"], ["region", "grade"]], 8 * (3 * 4 + 4 * 8 + 6)),
        ([["sex", "age"], ["age", "region"], ["region", "grade"], ["grade", "sex"]], 8 * (3 * 4 * 6 + 3 * 4 * 8)),
        ({"all": 2}, 8 * 3 * 4 * 6 * 8),
    ],
)
def test_too_large_a_model_is_refused_by_public_sizes(cliques: Any, bytes_needed: int) -> None:
    """The limit is exact, with a missing value in each column; a ring is cut where that is
    cheapest, all pairs are one table.
    """
    check_size(configuration(**PGM, aggregate__cliques=cliques, synthesize__model_size=bytes_needed))
    too_small = configuration(**PGM, aggregate__cliques=cliques, synthesize__model_size=bytes_needed - 1)
    with pytest.raises(
        InputError, match=rf"^synthesize.model_size \({bytes_needed - 1}B\) must be at least {bytes_needed}B "
    ):
        check_size(too_small)


def test_structural_zeros_count_even_where_marginals_are_selected() -> None:
    together = {"forbidden": [{"sex": "f", "region": "north", "grade": "1"}]}
    with pytest.raises(InputError, match=r"^synthesize.model_size \(300B\) must be at least 816B "):
        check_size(configuration(**PGM, structure=together, synthesize__model_size=300))
    check_size(configuration(**PGM, structure=together, synthesize__model_size=816))


def measured(cliques: Sequence[Clique], seed: int, sd: float = 3.0) -> list[Measurement]:
    """Noisy marginals of 500 records whose attributes hang together, those next to each other most."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 5, 500)
    codes = [(base + (rng.random(500) < 0.15 * (a + 1))) % size for a, size in enumerate(SIZES)]
    made = []
    for clique in cliques:
        counts = rng.normal(0, sd, [SIZES[a] for a in clique])
        np.add.at(counts, tuple(codes[a] for a in clique), 1)
        made.append(Measurement(attributes=clique, counts=counts, deviation=sd))
    return made


EVERY = [clique for k in (2, 3) for clique in itertools.combinations(range(4), k)]


@given(st.sets(st.sampled_from(EVERY), min_size=1), st.integers(8 * 14, 8 * 200), st.booleans(), st.integers(0, 99))
def test_a_model_takes_what_says_most_as_far_as_it_has_room(
    cliques: set[Clique], most: int, has_mask: bool, seed: int
) -> None:
    """Every single attribute; it fits; nothing that is left out would fit beside those that say more; all where all fit."""
    masks = [Mask(attributes=(0, 2), allowed=np.array([[False, True], [True, True], [True, True]]))] if has_mask else []
    given_ = measured([(0,), (1,), (2,), (3,), *sorted(cliques)], seed)
    tied = [mask.attributes for mask in masks]
    if not model_fits(SIZES, tied, most):
        with pytest.raises(InputError, match=r"^synthesize\.model_size \(.*B\) must be at least "):
            choose_measurements(given_, SIZES, 500.0, masks, most)
        return
    chosen = choose_measurements(given_, SIZES, 500.0, masks, most)
    names = [m.attributes for m in chosen]
    assert names == [m.attributes for m in given_ if m.attributes in names]
    assert names[:4] == [(0,), (1,), (2,), (3,)]
    assert model_fits(SIZES, [*tied, *names], most)
    singles = [np.clip(m.counts, 0, None) / np.clip(m.counts, 0, None).sum() for m in given_[:4]]

    def says(m: Measurement) -> float:
        alone = 500.0 * functools.reduce(np.multiply.outer, [singles[a] for a in m.attributes])
        return float((((m.counts - alone) / m.deviation) ** 2).sum() - m.counts.size)

    for out in (m for m in given_ if m.attributes not in names):
        better = [m.attributes for m in chosen if len(m.attributes) == 1 or says(m) > 0.9 * says(out) - 9]
        assert not model_fits(SIZES, [*tied, *better, out.attributes], most)


def test_what_noise_makes_of_many_cells_is_nothing_said() -> None:
    """Twenty cells 25 squared deviations away, twelve cells 22: there is room for one pair, and the second says more."""
    singles = [Measurement(attributes=(a,), counts=np.full(n, 600 / n), deviation=1.0) for a, n in enumerate(SIZES)]
    pairs = [
        Measurement(attributes=c, counts=np.full(shape, 600 / np.prod(shape) + 2 * np.sqrt(z)), deviation=2.0)
        for c, shape, z in (((1, 3), (4, 5), 25 / 20), ((0, 1), (3, 4), 22 / 12))
    ]
    chosen = choose_measurements([*singles, *pairs], SIZES, 600.0, [], 8 * 30)
    assert [m.attributes for m in chosen[4:]] == [(0, 1)]


def test_every_kind_of_counts_goes_with_it() -> None:
    """K-tuples and rounds as well; only structural zeros can make too large a model of them, which public sizes tell."""
    for changes in ({"aggregate__method": "k-tuples"}, {**PGM, "aggregate__cliques": "adaptive"}):
        check_size(configuration(**{**changes, "synthesize__method": "pgm", "synthesize__model_size": 168}))
        together = {"forbidden": [{"sex": "f", "region": "north", "grade": "1"}]}
        with pytest.raises(InputError, match=r"^synthesize.model_size \(300B\) must be at least 816B "):
            check_size(
                configuration(
                    **{**changes, "synthesize__method": "pgm", "synthesize__model_size": 300}, structure=together
                )
            )


def test_sets_and_bad_settings_are_refused() -> None:
    for changes, message in (
        (
            {
                "aggregate__method": "k-tuples",
                "synthesize__method": "pgm",
                "columns__sex": {"type": "set", "values": ["f", "m"], "max_values": 2},
            },
            r"^synthesize.method \(pgm\) cannot make records of column 'sex', a set counted in k-tuples",
        ),
        ({**PGM, "synthesize__model_size": "5GB"}, r"must lie in \(0, 4GB\]"),
        ({**PGM, "synthesize__model_size": 0}, r"must lie in \(0, 4GB\]"),
        ({**PGM, "synthesize__iterations": 10_001}, r"must be at most 10000"),
        ({**PGM, "synthesize__records": "exhaust"}, "must be count or a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            configuration(**changes)


@given(st.data())
def test_every_clique_is_inside_a_table_and_tables_hang_together(data: st.DataObject) -> None:
    """A junction tree: no table is part of another, and tables can be ordered so that each meets the others inside one."""
    number = data.draw(st.integers(1, 7))
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=number, max_size=number))
    some = st.lists(st.integers(0, number - 1), min_size=1, max_size=4, unique=True).map(lambda c: tuple(sorted(c)))
    cliques = data.draw(st.lists(some, max_size=9))
    tables = tree_tables(sizes, cliques)
    assert all(any({*clique} <= table for table in tables) for clique in cliques)
    assert frozenset().union(*tables) == {*range(number)}
    assert not any(one < other or (one is not other and one == other) for one in tables for other in tables)
    left = list(tables)
    while len(left) > 1:  # take away a table whose meeting with all others is inside one of them
        inner = ((t, t & frozenset().union(*(s for s in left if s is not t))) for t in left)
        leaf = next(t for t, meeting in inner if any(meeting <= s for s in left if s is not t))
        left.remove(leaf)


def test_selection_passes_over_what_makes_the_model_too_large() -> None:
    """The best pairs that leave a tree of five small ones; without a limit all are worth it."""
    sizes = (4, 5, 6, 7)
    pairs = list(itertools.combinations(range(4), 2))
    scores = np.array([9.0, 8.0, 7.0, 6.0, 5.0, 4.0]) * 1e9
    counts = [sizes[a] * sizes[b] for a, b in pairs]
    most = 8 * (20 + 24 + 28)  # the star of the first attribute
    found = select_marginals(counts, scores, 1.0, fits=lambda c: model_fits(sizes, [pairs[i] for i in c], most))
    assert [pairs[i] for i in found] == [(0, 1), (0, 2), (0, 3)]
    assert len(select_marginals(counts, scores, 1.0)) == 6
    assert model_cells(sizes, [pairs[i] for i in found]) * 8 == most


def tree() -> Tree:
    """0 - 1 and 1 - 3 with a value of 1 that 3 never goes with, and 2 by itself."""
    rng = np.random.default_rng(3)
    left, right = rng.random((3, 4)), rng.random((4, 5))
    right[2] = 0.0
    right *= left.sum(axis=0)[:, None] / np.maximum(right.sum(axis=1, keepdims=True), 1e-9)
    return Tree.of([((0, 1), left), ((1, 3), right), ((2,), np.array([1.0, 3.0]))], SIZES)


def test_records_of_a_tree_have_its_marginals_up_to_rounding() -> None:
    """Each count of a table is within its rows' roundings; what one table forbids no table makes."""
    made = tree().sample(10_000, np.random.default_rng(5))
    assert made.shape == (10_000, 4)
    assert not (made[:, 1] == 2).any()
    assert np.bincount(made[:, 2]).tolist() == [2500, 7500]
    for branch in tree().branches[:2]:
        clique = (*branch.given, *branch.new)
        counts = np.zeros([SIZES[a] for a in clique])
        np.add.at(counts, tuple(made[:, a] for a in clique), 1)
        rows = counts.reshape(branch.shares.shape)
        assert np.abs(rows - branch.shares * rows.sum(axis=1, keepdims=True)).max() < 1


def test_records_of_a_tree_are_independent_given_what_is_between() -> None:
    """0 and 3 given 1: a Pearson statistic of its degrees of freedom; false alarm below 1e-6 (mean + 5.5 deviations)."""
    made = tree().sample(60_000, np.random.default_rng(6))
    statistic, freedom = 0.0, 0
    for value in (0, 1, 3):
        counts = np.zeros((3, 5))
        here = made[made[:, 1] == value]
        np.add.at(counts, (here[:, 0], here[:, 3]), 1)
        expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
        statistic += float(((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum())
        freedom += 2 * 4
    assert statistic < freedom + 5.5 * (2 * freedom) ** 0.5 + 10


def test_the_stream_is_all_that_records_depend_on() -> None:
    one, same, other = (tree().sample(500, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    assert tree().sample(0, np.random.default_rng(1)).shape == (0, 4)
