"""A whole release by the doors of its stages, without Prefect: what is told of the number of records, and who opens what."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from marginweave.flows.preparation import prepare_run
from marginweave.flows.progress import reporting
from marginweave.flows.request import read_request
from marginweave.tasks.aggregate import task as aggregate
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.references import DerivedReference
from tests.support.kills import Victim
from tests.support.opened import opened_files, within
from tests.support.warm_parent import DOORS, flow_module
from tests.system.test_release import people

pytestmark = pytest.mark.system
ROWS = 97
NOISE = 1_009


@dataclass
class Released:
    """A release, the files that were opened by stages that see private rows, and those that all others opened."""

    folder: RunFolder
    source: Path
    left: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)

    def watched(self, door: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a door, watched."""

        def call(first: Any, *others: Any) -> Any:
            with opened_files(self.right if isinstance(first, DerivedReference) else self.left):
                return door(first, *others)

        return call


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """97 rows, whose number gets a noise of exactly 1,009."""
    home = tmp_path_factory.mktemp("doors")
    victim = Victim(home=home, config=people(home, ROWS, publish__keep_private=True, aggregate__reporting_length=2))
    made = Released(victim.folder, home / "people.csv")
    doors = {name: made.watched(getattr(flow_module, name).fn) for name in DOORS}
    with (
        mock.patch.dict(os.environ, {"MARGINWEAVE_LEDGER": str(victim.location)}),
        mock.patch.multiple(flow_module, **doors),
        mock.patch.object(aggregate, "add_noise", lambda counts, _: np.asarray(counts) + NOISE),
        reporting(None),
    ):
        private, _ = prepare_run(read_request(victim.config, run="r", source=None, home=home))
        flow_module._release(private)
    return made


def test_the_number_of_records_is_told_with_its_noise(released: Released) -> None:
    """Every number that is released as that of the records has the noise in it."""
    told = json.loads((released.folder.release / "privacy.json").read_text())
    counted = [noise for noise in told["mechanisms"] if noise["draw"] == "count"]
    assert counted
    lines = (released.folder.release / "aggregates.csv").read_text().splitlines()
    assert str(ROWS + NOISE) in lines[1]


def test_nothing_private_is_opened_right_of_aggregate(released: Released) -> None:
    """Post-processing opens checkpoints of its own, and nothing of the table, of `private/` or of `internal/`."""
    places = released.folder.private, released.folder.internal, released.source
    assert within(released.left, *places)
    assert within(released.right, released.folder.derived)
    assert within(released.right, *places) == []
