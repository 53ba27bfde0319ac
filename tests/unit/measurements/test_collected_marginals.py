"""Marginals are measured by attribute, not by column, where a column is a set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from marginweave.measurements.collected import collected_marginals
from tests.support.configurations import configuration
from tests.support.stage_draws import MeasuredTable
from tests.support.tables import with_sets

ROWS = [
    ["f", "north", "x;y"],
    ["m", "west", "y"],
    ["f", "west", ""],
    ["m", "south", "z;x;?;!"],
] * 20
CONFIGURATION = configuration(
    columns={
        "sex": {"type": "category", "values": ["f", "m"]},
        "region": {"type": "category", "values": ["north", "south", "west"]},
        "signs": {"type": "set", "values": ["x", "y", "z"], "max_values": 2},
    },
    aggregate={"method": "marginals", "compress": "none", "cliques": [["sex", "signs=y"]]},
    privacy={"epsilon": 30.0, "delta": 1e-6, "unit": "row"},
)
NAMES = ("sex", "region", "signs=x", "signs=y", "signs=z")
# The last row and column are the records without the value.
COUNTS: dict[tuple[int, ...], list[Any]] = {
    (0,): [40, 40, 0], (1,): [20, 20, 40, 0], (2,): [40, 40], (3,): [40, 40], (4,): [20, 60],
    (0, 3): [[20, 20], [20, 20], [0, 0]],
}  # fmt: skip


def test_marginals_are_those_of_attributes(tmp_path: Path) -> None:
    """Every marginal has its counts within 10 sigma (far below the 20 by which they differ), under its attributes' names."""
    stages = MeasuredTable(CONFIGURATION, with_sets(ROWS, CONFIGURATION), tmp_path)
    stages.draw("one-way")
    stages.draw("marginals")
    found = collected_marginals(stages, lambda _: None)
    assert found.domain.names == NAMES
    of_set = next(cells for cells in found.domain.undeclared if cells.of_set)
    assert (of_set.name, of_set.found, of_set.kept) == ("signs", True, False)
    assert of_set.low <= of_set.count <= of_set.high
    assert abs(of_set.count - 20) <= 10 * of_set.deviation + 1
    said = str(of_set.sentence(80, 0.0, "signs"))
    assert said.endswith(
        "of records hold a value of signs that was not declared, and that is left out"
    )
    assert found.domain.labels == tuple(attribute.labels for attribute in CONFIGURATION.attributes)
    measured = {m.attributes: m for m in (*found.one_way, *found.larger)}
    assert measured.keys() == COUNTS.keys()
    for clique, counts in COUNTS.items():
        assert (
            np.abs(measured[clique].counts - counts).max()
            <= 10 * measured[clique].deviation + 1
            < 15
        )
