"""`unchanged: skip`: a new run over the table of the release before, byte for byte, is skipped, and no other one."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import marginweave as mw
from marginweave.accounting.accounts import Account
from marginweave.base.errors import InputError
from marginweave.flows.cli.app import app
from marginweave.flows.prefect.schedules import Schedule
from marginweave.forecast.account import account_forecast
from marginweave.ledger import Ledger
from marginweave.runs.lookup import decide
from marginweave.runs.metrics import metrics_file
from marginweave.runs.overview import overview_page
from marginweave.runs.request import SKIPPED, read_request
from marginweave.runs.retention import list_runs
from marginweave.runs.unchanged import unchanged_since
from tests.support.people_table import people, people_frame
from tests.support.plain_runs import commands_without_prefect, run_plainly

SKIP: dict[str, Any] = {"unchanged": "skip", "aggregate__reporting_length": 1}
APPROVAL: dict[str, Any] = {**SKIP, "publish__approval": "required"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(place))
    monkeypatch.setenv("MARGINWEAVE_HOME", str(tmp_path))
    Ledger.create(place, environment={}).accounts.open(account, actor="steward")
    return tmp_path


def skips(home: Path, config: Path, run: str = "tonight", supersedes: str | None = None) -> bool:
    request = read_request(config, run=run, source=None, home=home, supersedes=supersedes)
    return unchanged_since(request) is not None


def draws(home: Path) -> int:
    ledger = Ledger.open(home / "ledger" / "ledger.sqlite")
    return sum(len(record.draws) for record in ledger.releases.of("people"))


def test_a_table_is_unchanged_byte_for_byte(home: Path) -> None:
    config = people(home, 60, **SKIP)
    assert not skips(home, config)  # there is no release
    run_plainly(home, config, "first")
    assert skips(home, config)
    assert not skips(home, config, "first")  # it finds its release
    assert not skips(home, config, supersedes="first")
    table = home / "people.csv"
    before = table.read_text()
    table.write_text(before.replace("f,", "m,", 1))
    assert not skips(home, config)
    run_plainly(home, config, "second")
    table.write_text(before)
    assert not skips(home, config)  # the release before is another table's


def test_a_release_of_another_configuration_is_no_reason_to_skip(home: Path) -> None:
    run_plainly(home, people(home, 60, aggregate__reporting_length=1), "first")
    config = people(home, 60, **SKIP)
    assert not skips(home, config)
    run_plainly(home, config, "second")
    assert skips(home, config)
    assert not skips(home, people(home, 60, **SKIP, privacy__epsilon=0.5))
    released_always = people(home, 60, aggregate__reporting_length=1, unchanged="release")
    assert not skips(home, released_always)


@pytest.mark.parametrize("approved", [True, False])
def test_a_release_counts_until_it_is_rejected(home: Path, approved: bool) -> None:
    config = people(home, 60, **APPROVAL)
    run_plainly(home, config, "first")
    assert skips(home, config)
    decide(home, "first", approved=approved, by="A. Meier", reason="checked")
    assert skips(home, config) == approved


def test_a_skipped_night_charges_nothing_and_says_why_to_its_operator_alone(home: Path) -> None:
    config = people(home, 60, **SKIP)
    run_plainly(home, config, "first")
    before = draws(home)
    with commands_without_prefect():
        done = CliRunner().invoke(app, ["run", str(config), "--run", "tonight"])
    assert (done.exit_code, draws(home)) == (0, before)
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["event"], line["charged_now"]) == ("skipped", False)
    reason = Path(line["reason"])
    assert "are those of run first, byte for byte" in reason.read_text()
    assert reason.stat().st_mode & 0o077 == 0
    assert "first" not in done.stdout
    assert [run.state for run in list_runs(home)] == ["finished", "skipped"]
    assert 'outcome="skipped"} 1.0' in metrics_file(home).read_text()


@pytest.mark.parametrize("words", [["resume"], ["purge"], ["report"]])
def test_a_command_about_a_skipped_run_says_that_it_was_skipped(
    home: Path, words: list[str]
) -> None:
    config = people(home, 60, **SKIP)
    run_plainly(home, config, "first")
    with commands_without_prefect():
        CliRunner().invoke(app, ["run", str(config), "--run", "tonight"])
        told = CliRunner().invoke(app, [*words, "tonight"])
    assert told.exit_code == 2
    said = " ".join(told.output.split())
    assert "run tonight was skipped: it has no release, and nothing to resume or to purge" in said
    assert "skipped.txt says why" in said


def test_the_overview_asks_for_nothing_after_a_skipped_night(home: Path) -> None:
    from datetime import UTC, datetime

    config = people(home, 60, **SKIP)
    run_plainly(home, config, "first")
    with commands_without_prefect():
        CliRunner().invoke(app, ["run", str(config), "--run", "tonight"])
    page = overview_page([home], home / "ledger" / "ledger.sqlite", datetime.now(UTC)).decode()
    assert "Run tonight is" not in page
    assert ">skipped<" in page


def test_a_skipped_run_is_begun_where_the_table_has_changed(home: Path) -> None:
    config = people(home, 60, **SKIP)
    run_plainly(home, config, "first")
    with commands_without_prefect():
        CliRunner().invoke(app, ["run", str(config), "--run", "tonight"])
        (home / "people.csv").write_text((home / "people.csv").read_text() + "f,north,5,3\n")
        CliRunner().invoke(app, ["run", str(config), "--run", "tonight"])
    assert [run.state for run in list_runs(home)] == ["finished", "finished"]
    assert not (home / "runs" / "tonight" / "internal" / SKIPPED).exists()  # it was charged
    assert 'outcome="finished"} 1.0' in metrics_file(home).read_text()


def test_fit_returns_the_release_of_the_same_frame(home: Path) -> None:
    configuration = mw.Configuration.from_yaml(people(home, 60, **SKIP))
    synthesizer = mw.Synthesizer(configuration, home=home)
    first = synthesizer.fit(people_frame(), run="first").release.place
    before = draws(home)
    assert synthesizer.fit(people_frame(), run="again").release.place == first
    assert draws(home) == before
    assert synthesizer.fit(people_frame(202), run="other").release.place != first


def test_fit_says_where_the_release_of_the_same_frame_is_not_in_this_home(home: Path) -> None:
    configuration = mw.Configuration.from_yaml(people(home, 60, **SKIP))
    mw.Synthesizer(configuration, home=home).fit(people_frame(), run="first")
    elsewhere = mw.Synthesizer(configuration, home=home / "other")
    with pytest.raises(InputError, match=r"run first has released this table .* another home"):
        elsewhere.fit(people_frame(), run="again")


@pytest.mark.parametrize(("unchanged", "is_listed"), [("skip", True), ("release", False)])
def test_the_statement_lists_skips_as_not_covered(
    home: Path, unchanged: str, is_listed: bool
) -> None:
    folder = run_plainly(home, people(home, 60, **{**SKIP, "unchanged": unchanged}), "first")
    stated = json.loads((folder / "release" / "privacy.json").read_text())
    listed = [text for text in stated["not_covered"] if "unchanged: skip" in text]
    assert bool(listed) == is_listed


@pytest.mark.parametrize(("unchanged", "is_said"), [("skip", True), ("release", False)])
def test_a_forecast_of_a_schedule_counts_no_skips(
    home: Path, unchanged: str, is_said: bool
) -> None:
    config = people(home, 60, **{**SKIP, "unchanged": unchanged})
    request = read_request(config, run=None, source=None, home=home)
    forecast = account_forecast(request, Schedule("30 1 * * *", "UTC"))
    said = [str(sentence) for sentence in forecast.sentences]
    assert any("lasts longer by each run that is skipped" in text for text in said) == is_said
