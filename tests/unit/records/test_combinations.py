"""The lattice of combinations and the percentile, against definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.estimate.normalize import normalize
from marginweave.records.combinations import count_missing, number_combinations
from marginweave.records.growing_state import quantile_exceeds
from tests.support.noisy_counts import SIZES, aggregates_of, counts_of, noisy_counts, parts, tally

ALONE = (-1,) * len(SIZES)


def walk(lattice):
    """Every combination that walking the lattice reaches, with its count, by any order of its attributes."""
    reached: dict[tuple[tuple[int, int], ...], int] = {(): lattice.counts[0]}
    frontier: list[tuple[tuple[tuple[int, int], ...], int]] = [((), 0)]
    while frontier:
        combination, node = frontier.pop()
        if node >= (len(lattice.starts) - 1) // lattice.width:
            continue
        first, last = (
            lattice.starts[node * lattice.width],
            lattice.starts[(node + 1) * lattice.width],
        )
        for place in range(first, last):
            attribute, child = lattice.extensions[place], lattice.children[place]
            pair = (int(lattice.columns[attribute]), int(lattice.values[attribute]))
            longer = tuple(sorted((*combination, pair)))
            assert reached.setdefault(longer, lattice.counts[child]) == lattice.counts[child]
            frontier.append((longer, child))
    return reached


@settings(max_examples=25, deadline=None)
@given(noisy_counts(low=1, size=12))
def test_every_path_leads_to_the_released_count(counts):
    """All released combinations, and no other, are reached, in whatever order attributes are added."""
    aggregates = normalize(aggregates_of(counts, record_count=50))
    assert walk(number_combinations(aggregates, ALONE)) == {(): 50} | counts_of(aggregates)


def with_missing(table, length):
    """Counts of all combinations, missing being a value."""
    sizes = tuple(size + 1 for size in SIZES)
    return dict(tally(table, length, sizes))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(*(st.integers(0, s) for s in SIZES)), min_size=1, max_size=30),
    st.integers(1, 3),
)
def test_exact_counts_give_the_exact_counts_of_missing_values(table, length):
    """From the counts of complete combinations, those with missing values follow without error."""
    exact = normalize(aggregates_of(tally(table, length), record_count=len(table), length=length))
    completed = count_missing(exact, (True,) * len(exact.domain.names), ALONE)
    assert counts_of(completed) == with_missing(table, length)
    assert list(counts_of(completed)) == list(
        counts_of(aggregates_of(counts_of(completed), length=length))
    )


@settings(max_examples=25, deadline=None)
@given(noisy_counts(low=1, size=12), st.integers(0, 120))
def test_missing_values_never_break_consistency(counts, record_count):
    """Whatever the noise, counts stay positive, monotone and closed."""
    aggregates = aggregates_of(counts, record_count=record_count)
    completed = counts_of(
        count_missing(normalize(aggregates), (True,) * len(aggregates.domain.names), ALONE)
    )
    assert all(completed[part] >= n > 0 for t, n in completed.items() for part in parts(t))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(*(st.integers(0, s) for s in SIZES)), min_size=1, max_size=20))
def test_nothing_is_counted_of_two_values_of_a_set(table):
    """What columns 0 and 2 have in common was not measured if they are one set: no pair of them is added, all others are."""
    released = {t: n for t, n in tally(table, 2).items() if {c for c, _ in t} != {0, 2}}
    exact = normalize(aggregates_of(released, record_count=len(table), length=2))
    completed = count_missing(exact, (True,) * len(SIZES), (0, -1, 0, -1))
    assert counts_of(completed) == {
        t: n for t, n in with_missing(table, 2).items() if {c for c, _ in t} != {0, 2}
    }


def test_counts_that_are_not_normalized_are_refused():
    """A pair without its parts is an error, and so are no counts at all."""
    with pytest.raises(InputError, match="normalized"):
        number_combinations(aggregates_of({((0, 0), (1, 2)): 5, ((0, 0),): 5, ((3, 6),): 5}), ALONE)
    with pytest.raises(InputError, match="at least"):
        number_combinations(aggregates_of({}, length=0), ALONE)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 10**9) | st.integers(1, 9), min_size=1, max_size=60),
    st.floats(0.001, 1),
    st.data(),
)
def test_percentile_is_definition_eight(counts, fraction, data):
    """The R-8 quantile, numpy's `median_unbiased`, is rounded to the nearest whole number and compared with any point."""
    expected = np.quantile(np.array(counts, np.float64), fraction, method="median_unbiased")
    near = int(expected + 0.5)
    point = data.draw(
        st.sampled_from([*counts, max(near - 1, 0), near, near + 1]) | st.integers(0, max(counts))
    )
    assume(abs(expected + 0.5 - point - 1) > 1e-6)  # where rounding decides
    high, low = [n for n in counts if n > point], [n for n in counts if n <= point]
    exceeds = quantile_exceeds(
        len(counts), fraction, len(high), max(low, default=0), min(high, default=0), point
    )
    assert exceeds == (expected + 0.5 >= point + 1)
