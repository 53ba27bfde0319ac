"""Few records: the parts of the draw cost what it does, noise covers all scores, and strong pairs are chosen."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from marginweave.base.budget import Stability
from marginweave.base.errors import InputError
from marginweave.configuration.defaults import pairs_by_noise
from marginweave.configuration.load import parse_configuration
from marginweave.counts.marginals import count_marginals
from marginweave.measurements import few_records
from marginweave.measurements.collected import collected_marginals
from marginweave.measurements.few_records import (
    AGAIN,
    PAIRS,
    SCORES,
    distance,
    merged_table,
    part_multiplier,
    score_sigma,
)
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.gaussian import RoundedGaussian, add_noise, marginal_sigma
from marginweave.observations.means import expected_noise
from marginweave.observations.payloads import unpack_observations
from tests.support.configurations import configuration, raw
from tests.support.level_draws import category, table_of
from tests.support.stage_draws import MeasuredTable, assert_noise

SIZES = (6, 6, 5, 4, 7)
RECORDS = 900
FEW = {"method": "marginals", "cliques": {"all": 3}, "least_records": 5_000}


def alike(records: int = RECORDS, sizes: tuple[int, ...] = SIZES) -> list[NDArray[np.int64]]:
    """Codes of columns of which the first two are the same, and the others independent."""
    rng = np.random.default_rng(7)
    columns = [rng.integers(0, size, records) for size in sizes]
    columns[1] = columns[0] % sizes[1]
    return columns


def independent(records: int = RECORDS) -> list[NDArray[np.int64]]:
    """Codes of independent columns."""
    rng = np.random.default_rng(8)
    return [rng.integers(0, size, records) for size in SIZES]


def measured(
    folder: Path,
    columns: list[NDArray[np.int64]],
    sizes: tuple[int, ...] = SIZES,
    **changes: Any,
) -> MeasuredTable:
    """The table with its single attributes drawn."""
    named = {
        name: {**category(size), "impute": {"distribution": "uniform"}}
        for name, size in zip("abcdefghijklm", sizes, strict=False)
    }
    config = configuration(columns=named, **{"aggregate": FEW, **changes})
    table = MeasuredTable(config, table_of([c.tolist() for c in columns], sizes), folder)
    table.draw("one-way")
    return table


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """The costs of all noise that is added, in mu^2: (S / sigma)^2, S by the definition of a unit."""
    paid: list[Fraction] = []

    def added(noise: RoundedGaussian, counts: Any, part: Fraction, bits: Any, table: int) -> Any:
        unit = noise.stability
        sides = 2 if unit.neighbors == "replace-one" else 1
        paid.append(sides * unit.records**2 / Fraction(part) ** 2)
        return add_noise(counts, part, bits, table=table)

    def scored(scores: Any, sigma: Fraction, bits: Any, *, table: int) -> Any:
        unit = paid_unit[0]
        sides = 2 if unit.neighbors == "replace-one" else 1
        paid.append(len(scores) * (sides * unit.records) ** 2 / Fraction(sigma) ** 2)
        return add_noise(scores, sigma, bits, table=table)

    paid_unit: list[Stability] = []
    original = few_records.score_sigma

    def noted(multiplier: float, pairs: int, stability: Stability) -> Fraction:
        paid_unit[:] = [stability]
        return original(multiplier, pairs, stability)

    monkeypatch.setattr(RoundedGaussian, "add", added)
    monkeypatch.setattr(few_records, "add_noise", scored)
    monkeypatch.setattr(few_records, "score_sigma", noted)
    return paid


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("columns", "epsilon"), [(alike, 0.3), (alike, 10.0), (independent, 10.0), (alike, 0.01)]
)
def test_all_noise_of_the_draw_costs_what_the_draw_does(
    columns: Any, epsilon: float, neighbors: str, costs: list[Fraction], tmp_path: Path
) -> None:
    """However many pairs are chosen, none included; deviations are rounded up, by 1/1024 each."""
    table = measured(tmp_path, columns(), privacy__epsilon=epsilon, privacy__neighbors=neighbors)
    costs.clear()
    table.draw("marginals")
    draw = table.plan.by_name["marginals"]
    assert sum(costs) <= (1 + Fraction(1, 10**9)) * Fraction(draw.parameter) ** -2
    assert sum(costs) >= Fraction(98, 100) * Fraction(draw.parameter) ** -2


def test_the_parts_add_up_to_one() -> None:
    assert AGAIN + SCORES + PAIRS == 1


@given(
    cells=st.lists(st.integers(0, 40), min_size=4, max_size=4),
    expected=st.lists(st.floats(0, 60, allow_nan=False), min_size=4, max_size=4),
    added=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    removed=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_no_unit_moves_a_distance_further_than_its_records(
    cells: list[int], expected: list[float], added: list[int], removed: list[int]
) -> None:
    """By the records that come, and those that go, in whatever cells: rounding adds nothing."""
    before = np.array(cells, np.int64).reshape(2, 2)
    after = (before + np.array(added).reshape(2, 2) - np.array(removed).reshape(2, 2)).clip(min=0)
    model = np.array(expected).reshape(2, 2)
    moved = int(np.abs(after - before).sum())
    assert abs(distance(after, model) - distance(before, model)) <= moved


@pytest.mark.parametrize("records", [1, 3])
def test_the_noise_of_scores_covers_all_of_them(records: int) -> None:
    """A unit moves every one of P scores by theta, or 2 theta: sqrt(P) times that together."""
    for neighbors in ("add-remove", "replace-one"):
        unit = Stability(records=records, neighbors=neighbors)
        sides = 2 if neighbors == "replace-one" else 1
        sigma = float(score_sigma(3.0, 45, unit))
        assert sigma == pytest.approx(3 * math.sqrt(45) * sides * records, abs=1 / 1000)
        assert sigma >= 3 * math.sqrt(45) * sides * records


def test_a_merged_table_is_that_of_merged_records() -> None:
    columns = independent()[:2]
    codes = [np.array([0, 1, 2, 2, 1, 2]), np.array([1, 0, 0, 1, 2, 2])]
    (table,) = count_marginals([tuple(columns)], (6, 6), [(0, 1)])
    merged = [new[column] for new, column in zip(codes, columns, strict=True)]
    (expected,) = count_marginals([tuple(merged)], (3, 3), [(0, 1)])
    assert (merged_table(table, codes) == expected).all()


def test_of_few_records_single_attributes_are_measured_again_and_the_strongest_pair(
    tmp_path: Path,
) -> None:
    """The pair that is the same column twice is chosen; false alarm below 1e-6.

    Its score is about 1,500 records, above twice its cost of 36 cells by more than 6 standard deviations of all noise.
    """
    table = measured(tmp_path, alike(), privacy__epsilon=3.0)
    drawn = unpack_observations(table.draw("marginals"))
    single = [m for m in drawn if len(m.attributes) == 1]
    assert [m.attributes for m in single] == [(a,) for a in range(len(SIZES))]
    pairs = [m.attributes for m in drawn[len(single) :]]
    assert (0, 1) in pairs
    most = pairs_by_noise(table.configuration, RECORDS)
    assert len(pairs) <= most
    marginals = collected_marginals(table, read_kept)
    assert marginals.is_combined
    first = unpack_observations(table.payload(table.plan.by_name["one-way"]))
    for before, after in zip(first, marginals.one_way, strict=False):
        assert after.deviation < 0.8 * before.deviation


@pytest.mark.parametrize(("above", "pairs"), [(30, []), (1_500, [(0, 1)])])
def test_a_pair_is_measured_where_that_brings_all_pairs_closer(
    above: float, pairs: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score just above its own noise is worth less than what its slot costs the other 77 pairs.

    Four values of 225 records each are merged with a probability below 1e-9, so that a pair has 16 cells.
    """
    table = measured(tmp_path, [np.arange(900) % 4] * 13, (4,) * 13, privacy__epsilon=3.0)
    multiplier = float(table.plan.by_name["marginals"].parameter)
    slots = pairs_by_noise(table.configuration, RECORDS)
    deviation = marginal_sigma(
        part_multiplier(multiplier, PAIRS / slots), table.configuration.stability
    )

    def scored(scores: Any, sigma: Fraction, bits: Any, *, table: int) -> NDArray[np.int64]:
        by_chance = float(sigma) * math.sqrt(2 * math.log(len(scores)))
        noisy = np.zeros(len(scores), np.int64)
        noisy[0] = by_chance + expected_noise(float(deviation), 16) / 2 + above
        return noisy

    monkeypatch.setattr(few_records, "add_noise", scored)
    drawn = unpack_observations(table.draw("marginals"))
    assert [m.attributes for m in drawn if len(m.attributes) > 1] == pairs


def test_scores_that_noise_would_hide_are_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their part measures single attributes: at epsilon 0.05 the noise of scores is more than there are records."""

    def refused(*_: Any, **__: Any) -> NDArray[np.int64]:
        raise AssertionError

    monkeypatch.setattr(few_records, "add_noise", refused)
    table = measured(tmp_path, alike(), privacy__epsilon=0.05)
    drawn = unpack_observations(table.draw("marginals"))
    assert {len(m.attributes) for m in drawn} == {1}


def read_kept(name: str) -> bytes:
    raise AssertionError(name)


def test_all_noise_is_independent_and_as_published(tmp_path: Path) -> None:
    """Means of several measurements have the deviation that they state: noise that was used twice would have more."""
    sizes = (900, 1100, 1000)
    columns = alike(5_000, sizes)
    table = measured(
        tmp_path, columns, sizes, aggregate={**FEW, "least_records": 10**6, "compress": "none"}
    )
    table.draw("marginals")
    for observation in collected_marginals(table, read_kept).one_way:
        (a,) = observation.attributes
        exact = np.bincount(columns[a], minlength=sizes[a])
        assert_noise(
            np.asarray(observation.counts - exact, float),
            math.sqrt(observation.deviation**2),
        )


def test_of_many_records_all_triples_are_measured(tmp_path: Path) -> None:
    table = measured(tmp_path, alike(), aggregate={**FEW, "least_records": 200})
    drawn = unpack_observations(table.draw("marginals"))
    assert [m.attributes for m in drawn] == list(itertools.combinations(range(len(SIZES)), 3))
    assert not collected_marginals(table, read_kept).is_combined


@pytest.mark.parametrize(("least", "needed"), [(5_000, False), (200, True)])
def test_scores_that_choose_nothing_go_back(least: int, needed: bool, tmp_path: Path) -> None:
    """With few records the draw of marginals has other scores; otherwise those of selected pairs are drawn."""
    selected = {"method": "marginals", "least_records": least}
    table = measured(tmp_path, alike(), aggregate=selected)
    assert table.plan.by_name["selection"].is_needed(table) is needed
    if not needed:
        assert unpack_observations(table.draw("marginals"))


def test_the_plan_does_not_depend_on_the_number_of_records(tmp_path: Path) -> None:
    """The draws and their prices are those of the same configuration without the decision."""
    table = measured(tmp_path, alike())
    usual = configuration(
        columns={
            name: {**category(size), "impute": {"distribution": "uniform"}}
            for name, size in zip("abcde", SIZES, strict=True)
        },
        aggregate={"method": "marginals", "cliques": {"all": 3}},
    )
    prices = [draw.price for draw in plan_budget(usual).draws]
    assert [draw.price for draw in table.plan.draws] == prices


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"privacy__epsilon": 1.0}, 766),
        ({"privacy__epsilon": 0.1}, 6124),
        ({"privacy__epsilon": 1.0, "rows": 900}, None),
        ({"columns__sex": {"type": "category", "domain": "private"}}, None),
    ],
    ids=["triples", "selected", "rows", "private"],
)
def test_auto_decides_by_the_count_where_rows_are_left_out(
    changes: dict[str, Any], least: int | None
) -> None:
    """r = sqrt(6) / epsilon of 10,000 records is 32, twice the limit of triples, or 40, that of selected pairs, at so many."""
    config = parse_configuration(raw(aggregate=None, **changes))
    assert config.marginal_settings.least_records == least


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"aggregate__noise": "laplace"}, "gaussian"),
        ({"aggregate__cliques": {"adaptive": 2}}, "selected or"),
        ({"columns__sex": {"type": "category", "domain": "private"}}, "public domains"),
        ({"synthesize": {"method": "aggregate-seeded"}}, "mixture or gum"),
    ],
)
def test_what_few_pairs_cannot_be_measured_with_is_refused(
    changes: dict[str, Any], needed: str
) -> None:
    with pytest.raises(InputError, match=f"least_records .* needs .*{needed}"):
        parse_configuration(raw(**{"aggregate": FEW, **changes}))
