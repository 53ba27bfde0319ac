"""Configurations for budget tests."""

from __future__ import annotations

from typing import Any

from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration


def configuration(
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    neighbors: str = "add-remove",
    private: bool = False,
    missing: bool = True,
    **aggregate: Any,
) -> Configuration:
    """Four columns of 2, 3, 5 and 7 values, the first of private domain on request."""
    columns: dict[str, Any] = {
        f"c{size}": {"type": "category", "values": [str(v) for v in range(size)]}
        for size in (2, 3, 5, 7)
    }
    if private:
        columns["c2"] = {"type": "category", "domain": "private"}
    if not missing:
        for column in columns.values():
            column["missing"] = []
            if "values" in column:
                column["outside"] = "error"
    return parse_configuration(
        {
            "dataset": "people",
            "source": "people.csv",
            "privacy": {
                "epsilon": epsilon,
                "delta": delta,
                "unit": "row",
                "neighbors": neighbors,
                **({"weak_delta": "a test"} if delta > 1e-3 else {}),
            },
            "missing": [""],
            "columns": columns,
            "aggregate": {"method": "k-tuples", **aggregate},
        }
    )
