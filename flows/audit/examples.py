"""Releases of made-up data whose parameters give an audit its power: every draw has a mu of one half to two."""

from __future__ import annotations

from typing import Any

from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.accounting.plan.resolve import parse_configuration

_COLUMNS: dict[str, Any] = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "region": {"type": "category", "values": ["north", "south", "west"]},
    "grade": {"type": "category", "values": [1, 2, 3, 4]},
}
_PRIVATE: dict[str, Any] = {**_COLUMNS, "town": {"type": "category", "domain": "private"}}
_THREE_ROWS = {"column": "person", "max_records": 3}


def examples() -> dict[str, Configuration]:
    """By name: both methods, both kinds of noise, both relations, rows and subjects, public and private domains."""
    return {
        "k-tuples": _example(8.0, {"reporting_length": 2, "percentile": "none", "count_share": 0.25}, paid=0.1),
        "k-tuples, percentile": _example(
            12.0,
            {"reporting_length": 2, "percentile": 75, "percentile_share": 0.6, "count_share": 0.1},
            unit=_THREE_ROWS,
            columns=_PRIVATE,
        ),
        "k-tuples, no fabrication": _example(
            8.0,
            {"reporting_length": 2, "percentile": "none", "fabrication": "none"},
            unit=_THREE_ROWS,
            neighbors="replace-one",
        ),
        "marginals": _example(8.0, {"method": "marginals", "one_way_share": 0.3, "selection_share": 0.1}),
        "marginals, in rounds": _example(
            8.0,
            {
                "method": "marginals",
                "cliques": {"adaptive": 2, "rounds": 2, "batch": 1},
                "one_way_share": 0.3,
                "selection_share": 0.3,
            },
        ),
        "marginals, private": _example(
            10.0,
            {"method": "marginals", "cliques": {"all": 2}, "one_way_share": 0.3, "values_share": 0.3},
            unit=_THREE_ROWS,
            neighbors="replace-one",
            columns=_PRIVATE,
        ),
        "marginals, Laplace": _example(
            2.0, {"method": "marginals", "cliques": {"all": 2}, "noise": "laplace", "one_way_share": 0.3}
        ),
    }


def _example(
    epsilon: float,
    aggregate: dict[str, Any],
    *,
    unit: Any = "row",
    neighbors: str = "add-remove",
    columns: dict[str, Any] | None = None,
    paid: float | None = None,
) -> Configuration:
    bought = {} if paid is None else {"evaluate": {"paid": {"share": paid}}}
    return parse_configuration(
        {
            "dataset": "made-up",
            "source": "made-up.csv",
            "privacy": {"epsilon": epsilon, "delta": 1e-6, "unit": unit, "neighbors": neighbors},
            "columns": columns or _COLUMNS,
            "aggregate": aggregate,
            **bought,
        }
    )
