"""What `plan` says of records and of the noise of whole tables, from public facts."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.configuration.release import Configuration
from marginweave.forecast.accuracy import method_forecast
from tests.support.configurations import PRIVATE, configuration

MARGINALS = {"aggregate__method": "marginals"}
SET = {"type": "set", "values": ["a", "b", "c"], "max_values": 2}


def method_lines(config: Configuration) -> list[str]:
    """Return the sentences on what is counted, and on what makes the records."""
    return [str(sentence) for sentence in method_forecast(config)]


def test_the_method_and_what_auto_would_be_are_said() -> None:
    counted, records = method_lines(configuration(aggregate=None))
    assert counted.startswith("Counting: marginals of 3 columns (as auto would choose; ")
    assert records.startswith("Synthetic records: mixture (as auto would choose: ")
    cliques = {"aggregate__method": "marginals", "aggregate__cliques": {"all": 3, "max_cells": 72}}
    counted, *_ = method_lines(configuration(**cliques))
    assert (
        "3 columns, of at most 72 cells, and pairs: 1 of 3, 3 of 2 (auto would choose other settings; "
        in counted
    )
    cliques["aggregate__cliques"] = {"all": 2, "max_cells": 24}
    counted, *_ = method_lines(configuration(**cliques))
    assert (
        "2 columns, of at most 24 cells: 4 of 2 (auto would choose marginals of 3 columns; "
        in counted
    )
    counted, *_ = method_lines(configuration(**MARGINALS, aggregate__cliques={"all": 1}))
    assert counted.startswith(
        "Counting: single columns (auto would choose marginals of 3 columns; all pairs together "
    )
    counted, records = method_lines(
        configuration(synthesize__method="gum", aggregate__method="marginals")
    )
    assert counted.startswith(
        "Counting: marginals, selected pairs (auto would choose marginals of 3 columns; "
    )
    assert records.startswith("Synthetic records: gum (auto would choose mixture: ")
    drowned = {"privacy__epsilon": 0.05, "aggregate__method": "marginals"}
    for cliques, said in (
        (
            [["sex", "region"]],
            "marginals, as listed (auto would choose marginals, chosen in rounds; ",
        ),
        ({"adaptive": 3}, "marginals, chosen in rounds (auto would choose other settings; "),
    ):
        counted, _ = method_lines(configuration(**drowned, aggregate__cliques=cliques))
        assert counted.startswith(f"Counting: {said}")


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"columns": {"sex": {"type": "category", "values": ["f", "m"]}}}, "single columns"),
    ],
)
def test_the_noise_of_pairs_is_said_where_it_decides(changes: dict[str, Any], counted: str) -> None:
    """Only one kind of counts goes with SDS's formulas; one column has no pairs."""
    said = method_lines(configuration(**changes, aggregate=None))[0]
    assert said == f"Counting: {counted} (as auto would choose)"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"columns__signs": SET},
            "Column signs, a set, counts as 3 columns, one for each value, which share the budget; ",
        ),
        (
            {"columns__signs": {**SET, "values": list(range(400))}},
            "Column signs, a set, counts as 400 columns, one for each value, which share the budget, and are in no pairs; ",
        ),
        (
            {"columns__signs": {"type": "set", "domain": "private", "max_values": 2}},
            "Column signs, a set with a private domain, rules out ",
        ),
        (
            {"columns__sex": PRIVATE, "privacy__epsilon": 0.5},
            "Private domains (sex) cost 5 % of the budget, ",
        ),
    ],
)
def test_what_sets_and_private_domains_cost_is_said_with_what_avoids_it(
    changes: dict[str, Any], said: str
) -> None:
    """One sentence a column that names a remedy."""
    _, cost, records = method_lines(configuration(**changes, aggregate=None))
    assert cost.startswith(said)
    assert "; declare " in cost
    assert records.startswith("Synthetic records: ")
    named = method_lines(
        configuration(**changes, aggregate={"method": "k-tuples", "reporting_length": 2})
    )
    assert len(named) == 2, "what is chosen by hand is no cost of auto"
