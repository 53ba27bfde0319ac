"""A whole release by the functions of its stages, without Prefect: what is told has its noise, and who opens what."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from marginweave.checkpoints.run_folder import RunFolder
from marginweave.checkpoints.store import Store
from marginweave.flows import stages
from marginweave.ledger import Ledger
from marginweave.measurements import record_count
from marginweave.runs.capabilities import DerivedReference
from marginweave.runs.preparation import prepare_run
from marginweave.runs.progress import reporting
from marginweave.runs.request import read_request
from tests.support.forked_runs import STAGES
from tests.support.kills import Victim
from tests.support.opened_files import opened_files, within
from tests.support.people_table import people
from tests.support.stages import is_stage

pytestmark = pytest.mark.system
ROWS = 97
NOISE = 1_009


@dataclass
class Released:
    """A release, the files that were opened by stages that see private rows, and those that all others opened."""

    folder: RunFolder
    source: Path
    key: bytes
    left: list[str] = field(default_factory=list)
    right: list[str] = field(default_factory=list)

    def watched(self, stage: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a stage, watched."""

        def call(first: Any, *others: Any) -> Any:
            with opened_files(self.right if isinstance(first, DerivedReference) else self.left):
                return stage(first, *others)

        return call


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    """97 rows, whose number gets a noise of exactly 1,009."""
    home = tmp_path_factory.mktemp("stages")
    settings = {"publish__keep_private": True, "aggregate__reporting_length": 2}
    victim = Victim(home=home, config=people(home, ROWS, **settings))
    made = Released(
        victim.folder,
        home / "people.csv",
        Ledger.open(victim.ledger_file, environment={}).keys.checkpoint_key,
    )
    watched: dict[str, Any] = {name: made.watched(getattr(stages, name)) for name in STAGES}
    with (
        mock.patch.dict(os.environ, {"MARGINWEAVE_LEDGER": str(victim.ledger_file)}),
        mock.patch.multiple(stages, **watched),
        mock.patch.object(record_count, "add_noise", lambda counts, *_: counts + NOISE),
        reporting(None),
    ):
        request = read_request(victim.config, run="r", source=None, home=home)
        private, _ = prepare_run(request)
        stages.run_stages(request, private, lambda stage: stage)
    return made


def test_every_stage_is_watched() -> None:
    """But those of the comparison with the rows, which writes to `internal/`: it is no part of what leaves."""
    used = {name for name, value in vars(stages).items() if is_stage(value)}
    assert used - {"compare_internally", "report_internally"} == set(STAGES)


def test_the_number_of_records_is_told_with_its_noise(released: Released) -> None:
    """In the table of counts, which is where all that is published of it comes from."""
    with (released.folder.release / "aggregates.csv").open(newline="") as file:
        (whole,) = (row for row in csv.DictReader(file) if row["length"] == "0")
    assert int(whole["count"]) == ROWS + NOISE


def test_private_checkpoints_hang_on_the_key_of_the_ledger(released: Released) -> None:
    """Their digests stand in the manifest: without a secret key a small table could be guessed from them."""
    store = Store(released.folder.private, released.key)
    manifest = released.folder.read_manifest()
    assert manifest is not None
    for stage in ("validate", "preprocess", "encode"):
        entry = manifest.stages[stage]
        blocks = store.blocks(stage, entry.address)
        assert blocks is not None
        assert blocks.digest == entry.digest


def test_nothing_private_is_opened_right_of_aggregate(released: Released) -> None:
    """Post-processing opens checkpoints of its own, and nothing of the table, of `private/` or of `internal/`."""
    places = released.folder.private, released.folder.internal, released.source
    assert within(released.left, *places)
    assert within(released.right, released.folder.derived)
    assert within(released.right, *places) == []
