"""Which pairs are measured where there are too many for all."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.marginals import AllCliques
from marginweave.configuration.spread_pairs import spread_pairs
from tests.support.configurations import raw


@pytest.mark.parametrize(
    ("columns", "number"), [(300, 4_000), (120, 500), (90, 4_000), (1_200, 4_800)]
)
def test_each_column_has_about_as_many(columns: int, number: int) -> None:
    pairs = spread_pairs(columns, number)
    assert len(set(pairs)) == len(pairs) == number
    assert pairs == tuple(sorted(pairs))
    assert all(0 <= first < second < columns for first, second in pairs)
    times = Counter(column for pair in pairs for column in pair)
    assert len(times) == columns
    assert max(times.values()) - min(times.values()) <= 6
    assert pairs == spread_pairs(columns, number)


def test_neighbors_are_no_more_often_a_pair_than_others() -> None:
    """Of 299 pairs of neighbors one in 11 is expected: 27, with a deviation of 5."""
    pairs = spread_pairs(300, 4_000)
    assert 5 <= sum(second - first == 1 for first, second in pairs) <= 55


def test_few_columns_have_all_pairs() -> None:
    assert spread_pairs(5, 10) == tuple(combinations(range(5), 2))
    assert spread_pairs(5, 4_000) == tuple(combinations(range(5), 2))


def test_pairs_of_many_cells_can_be_left_out() -> None:
    levels = BinLevels(sizes=(2,) * 6 + (9,))
    cliques = AllCliques(all=2, spread_pairs=10, max_cells=4)
    pairs = list(cliques.places(levels))
    assert pairs == [pair for pair in spread_pairs(7, 10) if 6 not in pair]
    assert cliques.count_sets(7) == 10


@pytest.mark.parametrize("other", [{"all": 3}, {"all": 2, "coarsen": 10}])
def test_they_are_pairs(other: dict[str, int]) -> None:
    cliques = {"spread_pairs": 3, **other}
    with pytest.raises(InputError, match=r"spread_pairs, which needs all: 2"):
        parse_configuration(raw(aggregate__method="marginals", aggregate__cliques=cliques))
