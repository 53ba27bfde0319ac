"""What `plan` says of records and of the noise of whole tables, from public facts."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from marginweave.flows.plan.accuracy import error_forecast, method_forecast
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.aggregate.noise import planned_sigmas
from marginweave.tasks.mechanisms.gaussian import noise_sigma
from tests.support.configurations import configuration

MARGINALS = {"aggregate__method": "marginals"}


def numbers(line: str) -> list[float]:
    """What stands after "column" or "columns", in order."""
    return [float(number) for number in re.findall(r"columns? (?:at most |about )?(\d+)", line)]


def test_tables_of_k_tuples_have_the_noise_of_their_cells() -> None:
    """2, 3, 5 and 7 values: 17 single ones in 4 columns, 101 pairs in 6, 247 triples in 4; sum |X| of a draw agrees."""
    config = configuration()
    plan, rng = plan_budget(config), np.random.default_rng(20)
    said = error_forecast(config, None)[0]
    for length, cells, told in zip((1, 2, 3), (17 / 4, 101 / 6, 247 / 4), numbers(said), strict=True):
        sd = float(noise_sigma(plan.by_name[f"level-{length}"].parameter, math.comb(4, length), config.stability))
        # 200,000 draws: the mean of |X| is off by .0017 of sigma, 5 of these are an alarm
        norm = cells * float(np.abs(rng.normal(0, sd, 200_000)).mean())
        assert told == pytest.approx(norm, abs=0.5 + 5 * 0.0017 * sd * cells)
    assert said.count("at most") == 3


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_marginals_have_the_noise_of_theirs(noise: str) -> None:
    """Codes 3, 4, 6 and 8 of each attribute, the missing one included; two records of 5000 are a TVD of .0002."""
    config = configuration(
        **MARGINALS, aggregate__cliques=[["sex", "age"], ["region", "age", "grade"]], aggregate__noise=noise
    )
    plan = plan_budget(config)
    found = {str(draw): planned_sigmas(config, plan, draw) for draw in plan.draws}
    mean = math.sqrt(2 / math.pi if noise == "gaussian" else 1 / 2)
    one = mean * sum(c * float(sd) for c, sd in zip((3, 4, 6, 8), found["one-way"], strict=True)) / 4
    larger = mean * sum(c * float(sd) for c, sd in zip((18, 192), found["marginals"], strict=True)) / 2
    said = error_forecast(config, 5000)[0]
    assert numbers(said) == pytest.approx([one, larger], abs=0.5)
    assert f"2 to 3 columns about {larger:.0f} records (TVD {larger / 10_000:.2g})" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"columns__sex": {"type": "category", "domain": "private"}},
        {**MARGINALS, "columns__sex": {"type": "category", "domain": "private"}},
    ],
)
def test_nothing_is_said_of_private_domains(changes: dict[str, Any]) -> None:
    assert error_forecast(configuration(**changes), 100) == []


def test_of_selected_marginals_the_single_ones_are_known() -> None:
    assert len(numbers(error_forecast(configuration(**MARGINALS), None)[0])) == 1


def test_the_rows_of_a_resized_table_are_public() -> None:
    columns = {name: {"type": "category", "values": [1, 2], "missing": [], "outside": "error"} for name in "ab"}
    imputed = {name: {**column, "impute": {"distribution": "uniform"}} for name, column in columns.items()}
    resized = configuration(columns=imputed, resize={"records": 400, "proportion": 0.5})
    assert error_forecast(resized, None) == error_forecast(resized, 7)
    assert "TVD" in error_forecast(resized, None)[0]


def test_the_method_and_what_auto_would_be_are_said() -> None:
    counted, records, measured = method_forecast(configuration(aggregate=None))
    assert counted.startswith("Counting: marginals of 3 columns (chosen automatically; ")
    assert records.startswith("Synthetic records: mixture (chosen automatically: ")
    assert measured.startswith("In our benchmarks (6,366 to 48,842 rows), ")
    cliques = {"aggregate__method": "marginals", "aggregate__cliques": {"all": 3, "max_cells": 72}}
    counted, *_ = method_forecast(configuration(**cliques))
    assert "3 columns, of at most 72 cells, and pairs: 1 of 3, 3 of 2 (auto would choose other settings; " in counted
    cliques["aggregate__cliques"] = {"all": 2, "max_cells": 24}
    counted, *_ = method_forecast(configuration(**cliques))
    assert "2 columns, of at most 24 cells: 4 of 2 (auto would choose marginals of 3 columns; " in counted
    counted, *_ = method_forecast(configuration(**MARGINALS, aggregate__cliques={"all": 1}))
    assert counted.startswith("Counting: single columns (auto would choose marginals of 3 columns; all pairs together ")
    counted, records = method_forecast(configuration(synthesize__method="gum", aggregate__method="marginals"))
    assert counted.startswith("Counting: marginals, selected pairs (auto would choose marginals of 3 columns; ")
    assert records.startswith("Synthetic records: gum (auto would choose mixture: ")
    drowned = {"privacy__epsilon": 0.05, "aggregate__method": "marginals"}
    for cliques, said in (
        ([["sex", "region"]], "marginals, as declared (auto would choose marginals, chosen in rounds; "),
        ({"adaptive": 3}, "marginals, chosen in rounds (auto would choose other settings; "),
    ):
        counted, _ = method_forecast(configuration(**drowned, aggregate__cliques=cliques))
        assert counted.startswith(f"Counting: {said}")


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"synthesize__method": "pgm"}, "marginals, selected pairs"),
        ({"privacy__accountant": "sds"}, "k-tuples"),
        ({"columns": {"sex": {"type": "category", "values": ["f", "m"]}}}, "single columns"),
    ],
)
def test_the_noise_of_pairs_is_said_where_it_decides(changes: dict[str, Any], counted: str) -> None:
    """Only some kind of counts goes with a graphical model, or with SDS's formulas; one column has no pairs."""
    said = method_forecast(configuration(**changes, aggregate=None))[0]
    assert said == f"Counting: {counted} (chosen automatically)"
