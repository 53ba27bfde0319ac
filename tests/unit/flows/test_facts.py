"""Commands that print facts: as JSON for programs, and in tables that fit 100 columns for people."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marginweave.flows.cli.app import app
from marginweave.schemas.ledger.accounts import Account
from marginweave.tasks.ledger import Ledger
from tests.support.people_table import people
from tests.support.places import EXAMPLES
from tests.support.plain_runs import run_plainly


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished run of the account people."""
    home = tmp_path_factory.mktemp("facts")
    place = home / "ledger" / "ledger.sqlite"
    account = Account(dataset="people", epsilon=Decimal(3), delta=Decimal("1e-5"), unit="row", neighbors="add-remove")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        Ledger.create(place, environment={}).accounts.open(account, actor="steward")
        run_plainly(home, people(home, 60, aggregate__reporting_length=1), "a-run-with-a-name-2026-11")
    return home


def said(home: Path, *arguments: object) -> str:
    environment = {"MARGINWEAVE_LEDGER": str(home / "ledger" / "ledger.sqlite"), "MARGINWEAVE_HOME": str(home)}
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_facts_as_json(home: Path) -> None:
    """The numbers that are printed without it."""
    (run,) = json.loads(said(home, "runs", "--json"))
    assert (run["name"], run["dataset"], run["state"]) == ("a-run-with-a-name-2026-11", "people", "finished")
    (listed,) = json.loads(said(home, "ledger", "list", "--json"))
    assert (listed["cap_epsilon"], listed["releases"]) == (3, 1)
    assert 0 < listed["epsilon_left"] < 3
    shown = json.loads(said(home, "ledger", "show", "people", "--json"))
    assert {key: shown[key] for key in listed} == listed
    assert [draw["state"] for draw in shown["newest"][0]["draws"]] == ["COMMITTED"] * len(shown["newest"][0]["draws"])
    config = home / "people.yaml"
    plans = json.loads(said(home, "plan", "--json", config, config))
    assert [(plan["dataset"], plan["epsilon"], plan["unit"]) for plan in plans] == [("people", 1, "row")] * 2
    text = said(home, "plan", config)
    assert all(note in text for note in plans[0]["notes"])
    assert all(draw["noise"] in text for draw in plans[0]["draws"].values())


def test_a_plan_ends_with_the_next_command(home: Path) -> None:
    """Where the release fits; else the ledger's line says what to do."""
    config = home / "people.yaml"
    assert said(home, "plan", config).splitlines()[-1] == f"Next: marginweave run {config}"
    large = home / "large.yaml"
    large.write_text(re.sub(r"(epsilon\W+)1\b", r"\g<1>9", config.read_text(), count=1))
    assert "Next:" not in said(home, "plan", large)


@pytest.mark.parametrize("rows", [None, 48842])
def test_tables_fit_a_terminal(home: Path, rows: int | None) -> None:
    """Lines of a table, which have gaps between columns; sentences may be as long as they are."""
    configs: list[Any] = [home / "people.yaml", EXAMPLES / "affairs.yaml", EXAMPLES / "adult.yaml"]
    texts = [said(home, "ledger", "show", "people")]
    for config in configs:
        place = home / f"{rows}-{config.name}"
        place.write_text(config.read_text() + (f"\nrows: {rows}\n" if rows else ""))
        texts += [said(home, "plan", place), said(home, "plan", place, config)]
    lines = [line.rstrip() for text in texts for line in text.splitlines() if "  " in line.strip()]
    assert len(lines) > 20
    assert [line for line in lines if len(line) > 100] == []
