"""Numbers of a column in steps of their last decimal are the numbers that its texts spell."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import accumulate

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from marginweave.drafts.distinct_numbers import DistinctNumbers

# Up to 18 digits are read at once, and others one by one.
_PLAIN = st.from_regex(r"-?[0-9]{1,9}(\.[0-9]{1,5})?", fullmatch=True)
_LONGER = st.from_regex(r"-?[0-9]{17,20}", fullmatch=True)
_ANY = st.from_regex(
    r"[+-]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,5})([eE][+-]?[0-9]{1,2})?", fullmatch=True
)
_TEXTS = st.one_of(st.lists(_PLAIN, unique=True), st.lists(_ANY | _PLAIN, unique=True))
_CELLS = st.dictionaries(_PLAIN | _ANY, st.integers(1, 1000), max_size=12)
_PLAIN_CELLS = st.dictionaries(_PLAIN | _LONGER, st.integers(1, 1000), max_size=30)


def exactly(texts: dict[str, int]) -> dict[Decimal, int]:
    """The numbers of the texts, the least first, with their cells, by exact decimals."""
    numbers: Counter[Decimal] = Counter()
    for text, cells in texts.items():
        numbers[Decimal(text)] += cells
    return dict(sorted(numbers.items()))


@given(st.one_of(_CELLS, _PLAIN_CELLS))
def test_each_number_is_there_once_with_its_cells_and_in_order(texts: dict[str, int]) -> None:
    numbers = DistinctNumbers.of_texts(texts)
    values = [numbers[place] for place in range(len(numbers))]
    assert dict(zip(values, numbers.cells.tolist(), strict=True)) == exactly(texts)
    assert values == sorted(values)


@given(_TEXTS)
def test_its_decimals_are_as_many_as_some_number_needs(texts: list[str]) -> None:
    needed = [0]
    for text in texts:
        _, digits, exponent = Decimal(text).as_tuple()
        needed_digits = "".join(map(str, digits)).rstrip("0")
        if needed_digits:
            needed.append(len(needed_digits) - len(digits) - int(exponent))
    assert DistinctNumbers.of_texts(dict.fromkeys(texts, 1)).decimals == max(needed)


@given(_CELLS.filter(bool), st.floats(0.001, 1))
def test_a_share_of_the_cells_is_up_to_its_quantile(texts: dict[str, int], share: float) -> None:
    numbers, least = exactly(texts), sum(texts.values()) * share
    up_to = zip(numbers, accumulate(numbers.values()), strict=True)
    expected = next(value for value, cells in up_to if cells >= least)
    assert DistinctNumbers.of_texts(texts).quantile(share) == expected


@given(_CELLS, _PLAIN)
def test_numbers_up_to_a_value_and_below_it(texts: dict[str, int], value: str) -> None:
    numbers, exact = DistinctNumbers.of_texts(texts), exactly(texts)
    assert numbers.up_to(Decimal(value)) == sum(number <= Decimal(value) for number in exact)
    assert numbers.below(Decimal(value)) == sum(number < Decimal(value) for number in exact)


@given(_CELLS)
def test_sizes_are_distances_from_0(texts: dict[str, int]) -> None:
    sizes = DistinctNumbers.of_texts(texts).sizes()
    seen = [(sizes[place], cells) for place, cells in enumerate(sizes.cells.tolist())]
    expected = [(value.copy_abs(), cells) for value, cells in exactly(texts).items() if value]
    assert sorted(seen) == sorted(expected)
    assert [size for size, _ in seen] == sorted(size for size, _ in seen)


@given(_CELLS.filter(bool), st.data())
def test_numbers_without_some_are_the_others(texts: dict[str, int], data: st.DataObject) -> None:
    exact = exactly(texts)
    left_out = data.draw(st.sets(st.sampled_from([*exact])))
    others = DistinctNumbers.of_texts(texts).without([*left_out])
    values = [others[place] for place in range(len(others))]
    assert values == [value for value in exact if value not in left_out]


def test_a_number_is_spelled_as_it_is_first() -> None:
    spelled = [f"{number}{end}" for end in ("", ".0") for number in range(100, 200)]
    texts = pa.array([*spelled, "200.00"], pa.string())
    numbers = DistinctNumbers.of(texts, np.ones(len(texts), np.int64))
    assert numbers.spelled.tolist() == [0] * 100 + [2]


def test_a_text_far_nearer_to_0_than_any_double_is_0() -> None:
    assert DistinctNumbers.of_texts({"1e-9999": 1, "2": 1})[0] == 0
