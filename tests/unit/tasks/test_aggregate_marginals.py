"""The stage that measures marginals, run without a ledger: sets are counted by attribute, not by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from marginweave.counts.payloads import unpack_marginals
from marginweave.draws.references import StageResult
from marginweave.tasks.aggregate import marginals as marginals_task
from tests.support.configurations import configuration
from tests.support.stage_draws import ENCODED, Stages
from tests.support.tables import with_sets

ROWS = [["f", "north", "x;y"], ["m", "west", "y"], ["f", "west", ""], ["m", "south", "z;x;?;!"]] * 20
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


def test_marginals_are_those_of_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every marginal has its counts within 10 sigma (far below the 20 by which they differ), under its attributes' names."""
    stages = Stages(CONFIGURATION, with_sets(ROWS, CONFIGURATION), tmp_path, monkeypatch)
    kept: dict[str, bytes] = {}

    def checkpoint(stage: str, _inputs: Iterable[StageResult], compute: Callable[[], bytes]) -> StageResult:
        kept[stage] = compute()
        return ENCODED

    stages.reference.derived = SimpleNamespace(checkpoint=checkpoint, read_kept=lambda _: None)
    marginals_task.measure_one_way(stages.reference, ENCODED)
    marginals_task.measure_larger(stages.reference, ENCODED)
    marginals_task.collect_marginals(stages.reference)
    found = unpack_marginals(kept["collect"])
    assert found.domain.names == NAMES
    of_set = next(cells for cells in found.domain.undeclared if cells.of_set)
    assert (of_set.name, of_set.found, of_set.kept) == ("signs", True, False)
    assert of_set.low <= 20 <= of_set.high
    said = of_set.words(80, "signs")
    assert said.endswith("of records hold a value of signs that was not declared, and that is left out")
    assert found.domain.labels == tuple(attribute.labels for attribute in CONFIGURATION.attributes)
    measured = {m.attributes: m for m in (*found.one_way, *found.larger)}
    assert measured.keys() == COUNTS.keys()
    for clique, counts in COUNTS.items():
        assert np.abs(measured[clique].counts - counts).max() <= 10 * measured[clique].deviation + 1 < 15
