"""How often one run prepares what it needs once: a number that grows is a second preparation that crept in."""

from __future__ import annotations

import cProfile
import inspect
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from marginweave.accounting.accounts import Account
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.estimate.tuples import tuple_observations
from marginweave.ledger import Ledger
from marginweave.ledger.ledger import Keys
from marginweave.ledger.releases import Releases
from marginweave.measurements.split import plan_budget
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

# Calls in a run of k-tuples of up to two columns, made in one process.
CALLS: dict[str, tuple[Callable[..., Any], int]] = {
    "the configuration is parsed from its file": (parse_configuration, 1),
    "the configuration is parsed from the manifest": (Configuration.from_canonical, 1),
    "the budget is planned": (plan_budget, 1),
    "the ledger is opened": (Ledger.open, 1),
    "the source is digested": (Keys.source_digest, 3),
    "what a model is fitted to is picked": (tuple_observations, 1),
    "the manifest is read": (RunFolder.read_manifest, 2),
    "the manifest is written": (RunFolder.write_manifest, 17),
    "the release is looked up in the ledger": (Releases.find, 5),
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[CodeType, int]:
    """Calls of each function in one run, in the thread that runs the stages."""
    home: Path = tmp_path_factory.mktemp("home")
    place = home / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="people",
        epsilon=Decimal(2),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(place, environment={}).accounts.open(account, actor="steward")
    config = people(home, 40, aggregate__reporting_length=2)
    profile = cProfile.Profile()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        profile.runcall(run_plainly, home, config, "r")
    return {
        entry.code: entry.callcount
        for entry in profile.getstats()
        if isinstance(entry.code, CodeType)
    }


@pytest.mark.parametrize("what", CALLS)
def test_a_run_prepares_no_more_often_than_it_did(what: str, calls: dict[CodeType, int]) -> None:
    """Write down a smaller number where a change has made it smaller."""
    function, expected = CALLS[what]
    assert calls.get(inspect.unwrap(function).__code__, 0) == expected
