"""One sequence of stages, two ways to start it: the flow below Prefect, and the stages in a process without it."""

from __future__ import annotations

import importlib
from pathlib import Path
from unittest import mock

import pytest
import yaml

from marginweave.configuration.load import parse_configuration
from marginweave.flows.prefect.session import prefect_session
from marginweave.ledger import Ledger
from tests.golden.releases import comparable_files, known_secrets, released_files
from tests.golden.shapes import account_of, write_people

# whose name in the package is the flow
flow_module = importlib.import_module("marginweave.flows.release")
pytestmark = pytest.mark.system


@pytest.mark.parametrize("shape", ["gum", "private bounds"])
def test_both_ways_write_the_same_files(server: str, tmp_path: Path, shape: str) -> None:
    """Under the same noise; what differs are names and times."""
    alone, served = tmp_path / "alone", tmp_path / "served"
    for home in (alone, served):
        home.mkdir()
    expected = released_files(alone, shape)
    ledger = served / "ledger" / "ledger.sqlite"
    config = write_people(served, shape)
    account = account_of(parse_configuration(yaml.safe_load(config.read_text())))
    with mock.patch.dict(
        "os.environ", {"MARGINWEAVE_LEDGER": str(ledger), "PREFECT_API_URL": server}
    ):
        Ledger.create(ledger).accounts.open(account, actor="steward")
        with prefect_session(served, served / "log"), known_secrets():
            place = flow_module.release(str(config), "r", None, str(served))
    files = comparable_files(Path(place), served)
    assert files.keys() == expected.keys()
    assert [name for name in files if files[name] != expected[name]] == []
