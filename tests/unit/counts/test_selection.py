"""Compression of rare values and merging of selected pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError
from marginweave.configuration.marginals import MarginalSettings
from marginweave.counts.marginals import cells
from marginweave.domain.masks import Mask
from marginweave.measurements.selection import (
    fitting,
    merge_pairs,
    most_cells,
    scored_pairs,
    selected_cliques,
)
from marginweave.mechanisms.base import CountNoise
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.laplace import DiscreteLaplace
from marginweave.observations.compression import (
    compress_codes,
    compress_mask,
    compress_observation,
    plan_compression,
)
from marginweave.observations.tables import Observation
from marginweave.records.release import expand_records

SIZES = (2, 3, 5, 7)


def one_way(seed: int, sizes: tuple[int, ...] = SIZES) -> list[Observation]:
    rng = np.random.default_rng(seed)
    return [
        Observation(attributes=(a,), counts=rng.integers(-20, 90, n), deviation=10.0)
        for a, n in enumerate(sizes)
    ]


def test_rare_values_are_merged_and_common_ones_keep_their_order() -> None:
    """3 sigma is 30: values 1 and 3 go together, as the last code; a single rare value stays alone."""
    lone = Observation(attributes=(0,), counts=np.array([5, 80]), deviation=10.0)
    many = Observation(attributes=(1,), counts=np.array([80, 29, 30, -4, 50]), deviation=10.0)
    compression = plan_compression([lone, many])
    assert [new.tolist() for new in compression.codes] == [[0, 1], [0, 3, 1, 3, 2]]
    assert compression.sizes == (2, 4)
    assert compress_observation(many, compression).counts.tolist() == [80, 30, 50, 25]


@given(st.integers(0, 2**32 - 1))
def test_records_come_back_in_the_codes_that_they_were_merged_into(seed: int) -> None:
    """compress(expand(x)) = x for every synthetic record: expansion only tells merged values apart."""
    compression = plan_compression(one_way(seed))
    rng = np.random.default_rng(seed)
    records = np.stack([rng.integers(0, n, 60) for n in compression.sizes], axis=1).astype(np.int32)
    expanded = expand_records(records, compression, np.random.default_rng(seed))
    again = compress_codes(tuple(expanded[:, a].astype(np.uint8) for a in range(4)), compression)
    assert np.array_equal(np.stack(again, axis=1), records)
    assert (expanded < np.array(SIZES)).all()


def test_merged_values_are_told_apart_by_their_counts() -> None:
    """10 against 20 of 30 000 and nothing below zero: within 5.2 standard deviations, false alarm 2e-7."""
    compression = plan_compression(
        [Observation(attributes=(0,), counts=np.array([900, 10, 20, -9]), deviation=10.0)]
    )
    expanded = expand_records(np.ones((30_000, 1), np.int32), compression, np.random.default_rng(4))
    drawn = np.bincount(expanded[:, 0], minlength=4)
    assert drawn[0] == drawn[3] == 0
    assert abs(drawn[1] - 10_000) < 5.2 * np.sqrt(30_000 * 2 / 9)


@given(st.integers(0, 2**32 - 1))
def test_a_mask_means_the_same_over_the_new_codes(seed: int) -> None:
    """Every combination of old codes is allowed exactly if its new codes are: merging never hides a structural zero."""
    rng = np.random.default_rng(seed)
    masks = [
        Mask(attributes=a, allowed=rng.random([SIZES[i] for i in a]) < 0.9)
        for a in [(3,), (1, 3), (0, 2, 3)]
    ]
    compression = plan_compression(one_way(seed), masks=masks)
    for mask in masks:
        new = compress_mask(mask, compression).table()
        index = np.meshgrid(*(compression.codes[a] for a in mask.attributes), indexing="ij")
        assert np.array_equal(new[tuple(index)], mask.allowed)


def test_one_marginal_an_attribute_is_required() -> None:
    with pytest.raises(InputError, match="one_way must have one marginal for each attribute"):
        plan_compression(one_way(0)[1:])


@given(
    st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda p: p[0] < p[1])),
    st.sampled_from([5, 30, 200, 5000]),
)
def test_merging_keeps_every_pair_and_its_rules(pairs: set[tuple[int, int]], limit: int) -> None:
    """Each pair is inside a result; what was merged is a clique of the graph, within the limit, sharing at most two."""
    sizes = [2, 3, 5, 7, 2, 3, 5, 7, 2, 3]
    room = sum(cells(pair, sizes) for pair in pairs) + 3 * limit
    merged = merge_pairs(sorted(pairs), sizes, limit, room)
    assert sum(cells(clique, sizes) for clique in merged) <= room
    inside = {pair for clique in merged for pair in itertools.combinations(clique, 2)}
    assert inside == pairs
    seen: set[int] = set()
    for clique in merged:
        if len(clique) > 2:
            assert cells(clique, sizes) <= limit
            assert len(seen & set(clique)) <= 2
            seen |= set(clique)
    assert len(merged) == len(set(merged))


def test_a_triangle_is_merged_up_to_its_cells() -> None:
    assert merge_pairs([(0, 1), (0, 2), (1, 2), (2, 3)], SIZES, 30, 1000) == ((0, 1, 2), (2, 3))
    assert merge_pairs([(0, 1), (0, 2), (1, 2), (2, 3)], SIZES, 29, 1000) == (
        (0, 1),
        (0, 2),
        (1, 2),
        (2, 3),
    )
    assert merge_pairs([(0, 1), (0, 2), (1, 2), (2, 3)], SIZES, 30, 95) == (
        (0, 1),
        (0, 2),
        (1, 2),
        (2, 3),
    )
    assert merge_pairs([(0, 1), (0, 2), (1, 2), (2, 3)], SIZES, 30, 96) == ((0, 1, 2), (2, 3))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=7), st.integers(0, 4000))
def test_what_fits_leaves_out_the_largest_and_no_more(sizes: list[int], most: int) -> None:
    """In order, within the limit; whatever is left out is no smaller than what is kept and would not have fitted."""
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    kept = fitting(pairs, sizes, most)
    together = sum(cells(pair, sizes) for pair in kept)
    assert together <= most
    assert list(kept) == sorted(kept)
    for pair in set(pairs) - set(kept):
        assert together + cells(pair, sizes) > most
        assert cells(pair, sizes) >= max((cells(k, sizes) for k in kept), default=0)


@pytest.mark.parametrize(
    ("mechanism", "parameter"), [(DiscreteLaplace, 5.0), (RoundedGaussian, 0.2)]
)
@pytest.mark.parametrize("merge", ["none", 1 << 26])
def test_whatever_is_selected_can_be_drawn(
    mechanism: type[CountNoise], parameter: float, merge: str | int
) -> None:
    """Scores that say all, of pairs up to 9 million cells: what is chosen and merged keeps the limit of its noise."""
    sizes = (2, 30, 500, 700, 3000, 9000)
    pairs = scored_pairs(sizes, mechanism)
    noise = mechanism(Stability(records=1, neighbors="add-remove"))
    settings = MarginalSettings.model_validate({"merge_cells": merge})
    chosen = selected_cliques(settings, sizes, np.full(len(pairs), 1e12), noise, parameter)
    assert chosen
    assert sum(cells(clique, sizes) for clique in chosen) <= most_cells(mechanism)
    assert all(cells(pair, sizes) <= most_cells(mechanism) for pair in pairs)
