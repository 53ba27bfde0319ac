"""Plans of releases with private bounds, subjects and a resized table; and that every stage draws for the whole unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.accounting.accountants import gdp_mu
from marginweave.accounting.amplification import functional_parameters
from marginweave.accounting.composition import composed_epsilon
from marginweave.accounting.selection_composition import release_epsilon
from marginweave.base.budget import Cost, Stability
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.measurements import contribution_bound, quantile_bounds
from marginweave.measurements.quantile_bounds import QuantileBound, candidate_histogram
from marginweave.measurements.record_count import RecordCount
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.exponential import selection_mu
from marginweave.mechanisms.randomness import DrawBits
from tests.support.configurations import configuration
from tests.support.level_draws import table_of
from tests.support.stage_draws import MeasuredTable
from tests.support.tables import encoded

UNIFORM = {"distribution": "uniform"}
INCOME = {"type": "number", "bounds": "private", "within": [0, 1000], "bins": 5}
SEX = {"type": "category", "values": ["f", "m"], "impute": UNIFORM}
TWO_PRIVATE = {"income": INCOME, "sex": SEX, "debt": INCOME}


def mu2(config: Configuration, prefix: str) -> float:
    """What the draws of one kind cost."""
    return sum(
        float(draw.cost.mu2) for draw in plan_budget(config).draws if draw.name.startswith(prefix)
    )


def test_bounds_are_drawn_first_and_named_by_position() -> None:
    """Two draws a column, called by its place among all columns: names in the ledger are public and stable."""
    config = configuration(columns=TWO_PRIVATE, aggregate={"percentile": "none"})
    names = [draw.name for draw in plan_budget(config).draws]
    bounds = ["bounds-1-low", "bounds-1-high", "bounds-3-low", "bounds-3-high"]
    assert names == [*bounds, "count", "level-1", "level-2", "level-3"]


@pytest.mark.parametrize(("declared", "share"), [(None, 0.05), (0.3, 0.3)])
def test_bounds_have_their_share_together(declared: float | None, share: float) -> None:
    """0.05 of mu^2 unless declared, over all columns, in equal parts; what is left of the budget goes to the counts."""
    config = configuration(columns=TWO_PRIVATE, aggregate__bounds_share=declared)
    budget = mu2(config, "")
    # selections are composed by their exact curves: `mixed`
    assert 1.01 < budget / gdp_mu(1.0, 1e-6) ** 2 < 1.2
    assert mu2(config, "bounds") == pytest.approx(share * budget, rel=1e-8)
    assert mu2(config, "level") == pytest.approx((1 - 0.02 - 0.10 - share) * budget, rel=1e-8)
    each = {draw.parameter for draw in plan_budget(config).draws if draw.name.startswith("bounds")}
    assert len(each) == 1
    assert 4 * selection_mu(each.pop()) ** 2 == pytest.approx(share * budget, rel=1e-8)


def test_a_resized_table_draws_no_count() -> None:
    """Its number of records is public: the count's share goes to the counts, and the epsilon of the whole is the same."""
    plain, resized = (
        configuration(columns={"sex": SEX}),
        configuration(columns={"sex": SEX}, resize={"records": 9}),
    )
    assert "count" not in [draw.name for draw in plan_budget(resized).draws]
    assert mu2(resized, "level") == pytest.approx(
        mu2(plain, "level") + mu2(plain, "count"), rel=1e-8
    )
    assert plan_budget(resized).spent_epsilon == pytest.approx(
        plan_budget(plain).spent_epsilon, rel=1e-8
    )


@pytest.mark.parametrize("formula", ["printed", "tight"])
def test_an_amplified_plan_is_made_for_the_functional_budget(formula: str) -> None:
    """The draws together cost the functional epsilon at the functional delta; the first one is charged for all."""
    resize = {"records": 9, "proportion": 0.5, "amplify": True, "formula": formula}
    config = configuration(
        columns={"sex": SEX, "region": SEX}, resize=resize, aggregate__reporting_length=2
    )
    assert config.resize is not None
    epsilon, delta = functional_parameters(1.0, 1e-6, 1, config.resize.rate, formula)  # pyright: ignore[reportArgumentType]
    plan = plan_budget(config)
    spent = sum(draw.parameter**-2 for draw in plan.draws)
    assert spent == pytest.approx(gdp_mu(epsilon, delta) ** 2, rel=1e-8)
    assert epsilon > 1.0
    assert [draw.cost == Cost() for draw in plan.draws] == [False, True]
    assert (plan.epsilon, plan.delta, plan.spent_epsilon) == (1.0, 1e-6, 1.0)


@given(
    epsilon=st.sampled_from([0.01, 0.5, 1.0, 8.0]),
    delta=st.sampled_from([1e-12, 1e-6, 1e-3]),
    share=st.floats(1e-4, 0.87),
    neighbors=st.sampled_from(["add-remove", "replace-one"]),
    unit=st.sampled_from(
        ["row", {"column": "id", "max_records": 7}, {"column": "id", "join": True}]
    ),
    resize=st.sampled_from([None, {"records": 50}, {"records": 50, "proportion": 2.5}]),
)
@settings(max_examples=25, deadline=None)
def test_no_preparation_spends_more_than_it_states(
    epsilon, delta, share, neighbors, unit, resize
) -> None:
    """Bounds, subjects and resize: the draws cost at most epsilon at delta; theta and copies go into the noise alone."""
    changes: dict[str, Any] = {
        "columns": {"income": {**INCOME, "impute": UNIFORM}, "sex": SEX},
        "aggregate": {"bounds_share": share, "sigma": "balanced"},  # auto would look at theta
        **({"resize": resize} if resize else {}),
    }
    guarantee = {"epsilon": epsilon, "delta": delta}
    config = configuration(**changes, privacy={**guarantee, "unit": unit, "neighbors": neighbors})
    plan = plan_budget(config)
    cheapest = min(
        composed_epsilon(plan.cost, Decimal(repr(delta)))[0],
        release_epsilon(plan.prices.charges, delta, epsilon),
    )
    assert plan.spent_epsilon == pytest.approx(cheapest, rel=1e-9)
    assert plan.spent_epsilon <= epsilon
    # either buys the same draws
    least = {**unit, "max_records": 1} if "max_records" in unit else "row"
    alone = configuration(**changes, privacy={**guarantee, "unit": least})
    assert [d.parameter for d in plan.draws] == [d.parameter for d in plan_budget(alone).draws]


def test_shares_must_leave_something() -> None:
    """Bounds are one of the shares that come before the counts."""
    with pytest.raises(
        InputError, match=r"aggregate\.bounds_share \(0\.95\) must leave something for the counts"
    ):
        plan_budget(configuration(columns=TWO_PRIVATE, aggregate={"bounds_share": 0.95}))


# --- measurements ---------------------------------------------------------------------------------------------------


@pytest.fixture
def selected(monkeypatch: pytest.MonkeyPatch) -> list[Stability]:
    """The stability of every percentile that is chosen, without noise."""
    seen: list[Stability] = []

    def select(
        histogram: Any, percentile: float, epsilon: float, unit: Stability, bits: DrawBits
    ) -> int:
        seen.append(unit)
        return 1

    for module in (contribution_bound, quantile_bounds):
        monkeypatch.setattr(module, "select_percentile", select)
    return seen


def test_the_percentile_is_chosen_for_the_whole_unit(
    selected: list[Stability], tmp_path: Path
) -> None:
    """theta rows of a subject, times the copies of a resized table: what `Sections.stability` says."""
    config = configuration(
        columns={"sex": SEX, "region": SEX},
        privacy__unit={"column": "id", "max_records": 4},
        resize={"records": 9, "proportion": 1.5},
        aggregate={"percentile": 90},
    )
    MeasuredTable(config, encoded([["f", "f"], ["m", "f"]], config), tmp_path).draw("percentile-1")
    assert selected == [Stability(records=8, neighbors="replace-one")]


def test_bounds_are_chosen_for_the_unit_in_the_rows_themselves(
    selected: list[Stability], tmp_path: Path
) -> None:
    """They are bought before the table is resized: theta rows, under the declared relation."""
    config = configuration(
        columns={"income": {**INCOME, "impute": UNIFORM}},
        privacy__unit={"column": "id", "max_records": 4},
        resize={"records": 9, "proportion": 1.5},
    )
    clean = SimpleNamespace(table=pa.table({"income": [2.0]}))
    table = MeasuredTable(config, table_of([[1]], [3]), tmp_path, [clean])
    for bound in table.plan.of(QuantileBound):
        table.draw(bound.name)
    assert selected == [Stability(records=4, neighbors="add-remove")] * 2


def test_the_rows_are_read_once_for_all_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two columns with other values, in two blocks: each has its own histogram, and later draws read no rows."""
    config, passes, remembered = configuration(columns=TWO_PRIVATE), list[int](), dict[str, Any]()

    class Blocks(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            passes.append(len(self))
            return super().__iter__()

    cells = ({"income": [5.0, None], "debt": [1.0, 20.0]}, {"income": [700.0], "debt": [None]})
    columns = [
        {name: pa.array(values, pa.float64()) for name, values in block.items()} for block in cells
    ]
    blocks = Blocks(SimpleNamespace(table=pa.table(block)) for block in columns)
    table = MeasuredTable(config, table_of([[1]], [3]), tmp_path, blocks)

    def remember(name: str, compute: Callable[[], Any]) -> Any:
        return remembered[name] if name in remembered else remembered.setdefault(name, compute())

    monkeypatch.setattr(table.rows, "remember", remember)
    bounds = table.plan.of(QuantileBound)
    assert len(bounds) == 4
    for bound in bounds:
        table.draw(bound.name)
        name, column = bound.column(config)
        values = pa.concat_arrays([block[name] for block in columns])
        histogram, _ = table.exact[bound.name].counts
        assert histogram.tolist() == candidate_histogram(values, column.bound_candidates).tolist()
    assert passes == [2]


def test_bounds_of_a_table_without_blocks_are_drawn(tmp_path: Path) -> None:
    """By noise alone."""
    table = MeasuredTable(configuration(columns=TWO_PRIVATE), table_of([[1]], [3]), tmp_path, [])
    for bound in table.plan.of(QuantileBound):
        table.draw(bound.name)
        histogram, _ = table.exact[bound.name].counts
        assert not histogram.any()


def test_the_record_count_is_noised_for_the_whole_unit() -> None:
    """Its deviation is theta times the planned multiplier, up to the step of the noise tables."""
    unit = {"column": "id", "max_records": 4}
    config = configuration(
        privacy__unit=unit, privacy__neighbors="replace-one", aggregate__method="k-tuples"
    )
    count = plan_budget(config).draw(RecordCount)
    assert 0 <= count.sigma(config) - 4 * count.parameter < 1 / 1024
