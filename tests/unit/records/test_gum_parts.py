"""The parts of GUM: schedules, the graph, the tree, systematic sampling."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from marginweave.base.errors import InputError
from marginweave.domain.masks import Mask
from marginweave.estimate.mixture.start import mutual_information, spanning_tree
from marginweave.estimate.rounding import apportion
from marginweave.records.gum.synthesize import (
    Drawing,
    draw_tree,
    maximal,
    plan_graph,
    replace_dead,
    update_rate,
)


def test_update_rates_are_those_of_the_paper() -> None:
    """Values worked out by hand: 0.84 twice after 40 rounds, e^-0.8, 1/3 and 1/sqrt(13) after 100."""
    assert [update_rate("step", t) for t in (0, 19, 20, 40)] == pytest.approx([1, 1, 0.84, 0.7056])
    assert update_rate("exponential", 100) == pytest.approx(math.exp(-0.8))
    assert update_rate("linear", 100) == pytest.approx(1 / 3)
    assert update_rate("root", 100) == pytest.approx(1 / math.sqrt(13))


def test_attributes_on_one_pair_are_clipped_layer_by_layer() -> None:
    """The triangle 0 1 2 stays; 3 hangs on 2, 4 on 3: 4 goes first, and comes back last. 5 - 6 is a component."""
    graph = plan_graph(7, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (5, 6)], [])
    assert graph.cliques == ((0, 1), (0, 2), (1, 2))
    order = [attribute for attribute, _ in graph.appended]
    assert set(graph.appended) >= {(3, 2), (4, 3)}
    assert order.index(3) < order.index(4)
    assert len({5, 6} & set(order)) == 1
    assert any({0, 1, 2} <= part for part in graph.components)


def test_what_structural_zeros_tie_is_neither_clipped_nor_parted() -> None:
    """A mask over all four keeps both pairs and joins them; one over 1 and 2 lets 0 and 3 go and joins what is left."""
    graph = plan_graph(4, [(0, 1), (2, 3)], [(0, 1, 2, 3)])
    assert graph.cliques == ((0, 1), (2, 3))
    assert graph.appended == ()
    assert graph.components == [{0, 1, 2, 3}]
    graph = plan_graph(4, [(0, 1), (2, 3)], [(1, 2)])
    assert set(graph.appended) == {(0, 1), (3, 2)}
    assert graph.components == [{1, 2}]


def test_marginals_inside_others_are_left_out() -> None:
    assert maximal([(0,), (0, 1), (1, 2), (0, 1), (0, 1, 3), (2,)]) == ((0, 1, 3), (1, 2))


@given(st.lists(st.integers(0, 30), min_size=6, max_size=6))
def test_the_spanning_tree_is_the_best_of_all_sixteen(strengths: list[int]) -> None:
    """Four binary attributes: every tree of three of the six edges, compared by total mutual information."""
    edges = list(itertools.combinations(range(4), 2))
    pairs: dict[tuple[int, ...], NDArray[np.float64]] = {
        e: np.array([[30.0 + s, 30.0], [30.0, 30.0 + s]])
        for e, s in zip(edges, strengths, strict=True)
    }
    value = {e: mutual_information(p) for e, p in pairs.items()}

    def spans(tree: tuple[tuple[int, ...], ...]) -> bool:
        reached = {0}
        for _ in range(3):
            reached |= {a for e in tree for a in e if reached & set(e)}
        return len(reached) == 4

    best = max(
        sum(value[e] for e in tree) for tree in itertools.combinations(edges, 3) if spans(tree)
    )
    found = spanning_tree(4, pairs)
    assert sum(value[e] for e in found) == pytest.approx(best, abs=1e-12)
    assert all(value[e] > 0 for e in found)


def test_mutual_information_of_known_tables() -> None:
    assert mutual_information(np.outer([1.0, 2.0], [3.0, 4.0, 5.0])) == pytest.approx(0, abs=1e-12)
    assert mutual_information(np.diag([5.0, 5.0])) == pytest.approx(math.log(2))
    assert mutual_information(np.zeros((2, 2))) == 0


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(any),
    st.integers(0, 10_000),
    st.integers(0, 2**32 - 1),
)
def test_apportioning_adds_up_and_is_never_off_by_one(
    shares: list[float], number: int, seed: int
) -> None:
    """Each value gets its share rounded down or up, the total is exact, a share of 0 gets nothing."""
    weights = np.array(shares)
    relative = weights / weights.max()
    counts = apportion(weights, number, np.random.default_rng(seed))
    assert counts.sum() == number
    assert (np.abs(counts - number * relative / relative.sum()) < 1 + 1e-6).all()
    assert not counts[weights == 0].any()


def test_apportioning_is_right_on_average() -> None:
    """3 records for shares of 1/4, 1/4, 1/2, 40 000 times: means within 5.2 sd/sqrt(N), sd at most 1/2 (6e-7 for all)."""
    rng = np.random.default_rng(3)
    mean = np.mean([apportion(np.array([1.0, 1.0, 2.0]), 3, rng) for _ in range(40_000)], axis=0)
    assert (np.abs(mean - [0.75, 0.75, 1.5]) < 5.2 * 0.5 / 200).all()


def test_dead_rows_become_copies_of_live_ones() -> None:
    """Value 1 of attribute 0 has no partner: its rows are replaced."""
    mask = Mask(attributes=(0, 1), allowed=np.array([[True, True, False], [False, False, False]]))
    drawing = _drawn([[50.0, 50.0], [1.0, 1.0, 1.0]], [mask])
    assert drawing.dead.sum() == 50
    revive(drawing)
    assert mask.allowed[tuple(drawing.records.T)].all()


def test_where_every_row_is_dead_the_likeliest_allowed_values_stand_in() -> None:
    """All counts lead to value 0 of attribute 0, which has no partner: the masks leave (1, 2), (1, 1) being forbidden."""
    masks = [
        Mask(attributes=(0, 1), allowed=np.array([[False] * 3, [False, True, True]])),
        Mask(attributes=(1,), allowed=np.array([True, False, True])),
    ]
    drawing = _drawn([[50.0, 0.0], [9.0, 8.0, 1.0]], masks)
    assert drawing.dead.all()
    revive(drawing)
    assert np.unique(drawing.records, axis=0).tolist() == [[1, 2]]


def test_masks_that_no_record_keeps_are_refused() -> None:
    """Each of the two allows something, both together nothing."""
    allowed = np.array([[True, False, False], [False, False, False]])
    masks = [Mask(attributes=(0, 1), allowed=a) for a in (allowed, ~allowed)]
    with pytest.raises(
        InputError, match="masks must leave a record: rules leave no values of attributes 0, 1"
    ):
        revive(_drawn([[50.0, 50.0], [1.0, 1.0, 1.0]], masks))


def revive(drawing: Drawing) -> None:
    replace_dead(drawing.records, drawing.dead, drawing.one_way, drawing.masks, drawing.generator)


def _drawn(one_way: list[list[float]], masks: list[Mask]) -> Drawing:
    drawing = Drawing(
        records=np.zeros((100, 2), np.int32),
        one_way=[np.array(counts) for counts in one_way],
        masks=masks,
        generator=np.random.default_rng(0),
    )
    draw_tree(drawing, [0, 1], [])
    return drawing
