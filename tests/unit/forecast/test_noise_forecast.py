"""What `plan` says of combinations, from public facts."""

from __future__ import annotations

import pytest

from marginweave.base.errors import InputError
from marginweave.forecast.noise import combinations_forecast, preparation_forecast
from marginweave.runs.limits import check_size
from tests.support.configurations import configuration

LARGE = {name: {"type": "category", "values": list(range(5_000))} for name in "abcdefghij"}


def test_candidates_are_counted_over_all_sets_of_columns() -> None:
    """2, 3, 5 and 7 values: 17 single ones, 101 pairs, 247 triples; half of the cells of a count without records pass 1."""
    lines = [str(sentence) for sentence in combinations_forecast(configuration())]
    assert [line.split(";")[0] for line in lines] == [
        "Combinations of 1: 17",
        "Combinations of 2: at most 101",
        "Combinations of 3: at most 247",
    ]


def test_what_happens_to_too_many_is_said() -> None:
    """45 pairs of columns of 5,000 values each are accepted, and the plan says from which count on they are kept."""
    config = configuration(columns=LARGE, aggregate={"reporting_length": 2})
    check_size(config)
    line = str(combinations_forecast(config)[1])
    assert line.startswith("Combinations of 2: at most 1125000000; about ")
    assert "2000000 of them from a count of " in line


def test_nothing_is_said_where_a_domain_is_private() -> None:
    assert (
        combinations_forecast(
            configuration(columns__town={"type": "category", "domain": "private"})
        )
        == []
    )


def test_keys_beyond_63_bits_are_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"^columns j, i, h, g, f, e have more than 2\^63 combinations; use coarser bins",
    ):
        check_size(configuration(columns=LARGE, aggregate={"reporting_length": 6}))


def test_more_values_than_may_be_kept_are_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"^the columns have 50000 values together, more than aggregate.max_combinations",
    ):
        check_size(
            configuration(
                columns=LARGE, aggregate={"reporting_length": 2, "max_combinations": 49_999}
            )
        )


def test_a_mixture_that_no_memory_holds_is_refused_before_anything_is_paid_for() -> None:
    """8 bytes for each of 50,010 codes, the missing ones included, in each of so many components."""
    mixture = {"method": "mixture", "components": 1000}
    check_size(configuration(columns=LARGE, synthesize={**mixture, "fits": 9}))
    with pytest.raises(
        InputError,
        match=r"^synthesize\.fits \(10\) times .* a model of 4.0[0-9] GB, more than 4 GB; use fewer",
    ):
        check_size(configuration(columns=LARGE, synthesize={**mixture, "fits": 10}))


@pytest.mark.parametrize(
    ("within", "decimals", "rows", "said"),
    [
        ([0, 1e6], None, 10_000_000, ["among 10,000 points of `within`, which are 100 apart"]),
        ([0, 120], 0, 10_000_000, []),  # each number is a candidate
        ([0, 120], 0, 500, ["and 5 rows lie beyond each, so that they may be any number"]),
        ([0, 120], 0, None, []),  # nobody knows how many
    ],
)
def test_bounds_that_noise_or_their_candidates_decide_are_told(
    within: list[float], decimals: int | None, rows: int | None, said: list[str]
) -> None:
    age = {"type": "number", "bounds": "private", "within": within, "bins": 5, "decimals": decimals}
    config = configuration(columns__age=age, rows=rows)
    lines = [str(sentence) for sentence in preparation_forecast(config)]
    assert lines[0].startswith("Bounds: bought for 'age'")
    assert len(lines[1:]) == len(said)
    assert all(words in line for words, line in zip(said, lines[1:], strict=True))
