"""Commands that print facts: as JSON for programs, and in tables that fit 100 columns for people."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import marginweave as mw
from marginweave.accounting.accounts import Account, Spent
from marginweave.configuration.load import load_configuration
from marginweave.flows.cli.app import _invoke, app
from marginweave.ledger import Ledger
from marginweave.ledger.boxes import admitted
from marginweave.measurements.split import plan_budget
from tests.support.people_table import people
from tests.support.places import EXAMPLES
from tests.support.plain_runs import run_plainly


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished run of the account people."""
    home = tmp_path_factory.mktemp("facts")
    place = home / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="people",
        epsilon=Decimal(3),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(place))
        Ledger.create(place, environment={}).accounts.open(account, actor="steward")
        run_plainly(
            home, people(home, 60, aggregate__reporting_length=1), "a-run-with-a-name-2026-11"
        )
    return home


def ask(home: Path, *arguments: object) -> Result:
    environment = {
        "MARGINWEAVE_LEDGER": str(home / "ledger" / "ledger.sqlite"),
        "MARGINWEAVE_HOME": str(home),
    }
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def said(home: Path, *arguments: object) -> str:
    result = ask(home, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_facts_as_json(home: Path) -> None:
    """The numbers that are printed without it."""
    (run,) = json.loads(said(home, "runs", "--json"))
    assert (run["name"], run["dataset"], run["state"]) == (
        "a-run-with-a-name-2026-11",
        "people",
        "finished",
    )
    (listed,) = json.loads(said(home, "ledger", "list", "--json"))
    assert (listed["cap_epsilon"], listed["releases"]) == (3, 1)
    assert 0 < listed["epsilon_left"] < 3
    shown = json.loads(said(home, "ledger", "show", "people", "--json"))
    assert {key: shown[key] for key in listed} == listed
    assert [draw["state"] for draw in shown["newest"][0]["draws"]] == ["COMMITTED"] * len(
        shown["newest"][0]["draws"]
    )
    config = home / "people.yaml"
    plans = json.loads(said(home, "plan", "--json", config, config))
    assert [(plan["dataset"], plan["epsilon"], plan["unit"]) for plan in plans] == [
        ("people", 1, "row")
    ] * 2
    text = said(home, "plan", config)
    assert all(note in text for note in plans[0]["notes"])
    draws = plans[0]["draws"].values()
    assert all(draw["noise"] in text and f"{100 * draw['share']:.1f} %" in text for draw in draws)
    for draw in draws:
        if "noise_sd_most" in draw:
            assert f"{draw['noise_sd_least']:.1f}" in draw["noise"]
            assert f"{draw['noise_sd_most']:.1f}" in draw["most"].get("noise", draw["noise"])
    assert plans[0]["pairs"]["all"] >= plans[0]["pairs"]["not_measured_at_least"]
    assert sum(draw["share"] for draw in draws) == pytest.approx(1)
    verified = json.loads(said(home, "ledger", "verify", "--json"))
    assert (
        verified["accounts"],
        verified["releases"],
        verified["runs"],
        verified["elsewhere"],
    ) == (1, 1, 1, [])


def test_a_plan_in_python_says_what_the_command_says(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file and of its mapping, of a run that is there and of a new configuration: the account, noisy pairs, time."""
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger" / "ledger.sqlite"))
    for config in (home / "people.yaml", home / "small.yaml"):
        if not config.exists():
            text = re.sub(
                r"(epsilon\W+)1(?:\.0)?\b",
                r"\g<1>0.01",
                (home / "people.yaml").read_text(),
                count=1,
            )
            config.write_text(re.sub(r"(reporting_length\W+)1", r"\g<1>2", text))
        lines = said(home, "plan", config).splitlines()
        told = [line for line in lines if not line.startswith("Next: ")]
        assert any(line.startswith("Ledger: ") for line in told)
        for given in (config, mw.Configuration.from_yaml(config)):
            assert repr(mw.Synthesizer(given, home).plan()).splitlines() == told
    assert any("Pairs that are mostly noise" in line for line in told)
    assert any(re.search("it fits, and (at least )?[0-9]+ more like it", line) for line in told)


def test_whether_a_release_fits_is_a_fact(home: Path) -> None:
    """Of a new configuration yes or no, and how many more; of a run that is there, and without an account, as it is."""
    config = home / "people.yaml"

    def facts(epsilon: float, dataset: str = "people") -> tuple[bool | None, int | None, str]:
        asked = home / f"{dataset}-{epsilon}.yaml"
        changed = re.sub(
            r"(epsilon\W+)1(?:\.0)?\b", rf"\g<1>{epsilon}", config.read_text(), count=1
        )
        asked.write_text(re.sub(r"(dataset\W+)people", rf"\g<1>{dataset}", changed, count=1))
        (plan,) = json.loads(said(home, "plan", asked, "--json"))
        return plan["fits"], plan["more_that_fit"], " ".join(plan["notes"])

    fits, more, notes = facts(0.5)
    assert fits is True
    assert more is not None
    assert more > 2
    assert f"it fits, and {more} more like it" in notes
    assert facts(9)[:2] == (False, None)
    assert facts(1, "others")[:2] == (False, None)
    fits, more, notes = facts(2.8)
    assert (fits, more, "it fits, and no more like it" in notes) == (True, 0, True)
    fits, more, notes = facts(0.001)  # no further than this is counted
    assert (fits, more, "it fits, and at least 999 more like it" in notes) == (True, 999, True)


def test_an_account_says_how_many_releases_it_holds(home: Path) -> None:
    """As many are admitted, and not one more."""
    whole = said(home, "ledger", "open", "whole", "--epsilon", "1", "--delta", "1e-6")
    assert (
        "A release with this epsilon and delta uses all of it: a second one does not fit" in whole
    )
    config = home / "parts.yaml"
    config.write_text(
        (home / "people.yaml").read_text().replace("dataset: people", "dataset: parts")
    )
    refused = ask(home, "ledger", "open", "other", "--for", config)
    assert (refused.exit_code, "charged to parts, not to other" in refused.stderr) == (2, True)
    opened = said(home, "ledger", "open", "parts", "--for", config, "--epsilon", "3")
    found = re.search(r"that fit: (\d+)\.", opened)
    assert found is not None
    ledger = Ledger.open(home / "ledger" / "ledger.sqlite")
    plan = plan_budget(load_configuration(config))
    total, spent = ledger.accounts.total("parts"), Spent()
    for _ in range(int(found[1])):
        assert admitted(total.account, spent, plan.cost, plan.statement) is not None
        spent = spent.with_charge(plan.cost, plan.statement)
    assert admitted(total.account, spent, plan.cost, plan.statement) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("rn", "Did you mean 'run', 'runs'? See: "),
        ("plan --hlp", "(Possible options: --help). See: "),
        ("ledger open lib9 --epsilon x", "epsilon (x) is not a number"),
        (
            "ledger open lib9 --epsilon 1",
            "--epsilon and --delta are required, or --for CONFIG, a file that has both",
        ),
    ],
)
def test_a_mistyped_command_gets_one_line(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["marginweave", *words.split()])
    assert _invoke() == 2
    assert told in capsys.readouterr().err


def test_publish_says_what_to_open(home: Path) -> None:
    told = said(home, "publish", "a-run-with-a-name-2026-11", "--to", home / "website", "--even-so")
    assert told.splitlines()[-1] == f"Open {home / 'website' / 'report.html'}"
    assert (home / "website" / "report.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "nowhere.yaml"),
        ("ledger", "show", "nobody"),
        ("evaluate", "nothing"),
        ("query", "nothing", "--count"),
        ("table", "nothing", "age"),
    ],
    ids=" ".join,
)
def test_an_error_leaves_no_json(home: Path, arguments: tuple[str, ...]) -> None:
    """One sentence on standard error, and an exit code that tells."""
    result = ask(home, *arguments, "--json")
    assert (result.exit_code in {2, 3}, result.stdout) == (True, "")
    assert result.stderr.startswith("marginweave: ")
    assert "Traceback" not in result.stderr


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
    texts = [said(home, "ledger", "show", "people", "--all")]
    for config in configs:
        place = home / f"{rows}-{config.name}"
        place.write_text(config.read_text() + (f"\nrows: {rows}\n" if rows else ""))
        texts += [said(home, "plan", place), said(home, "plan", place, config)]
    lines = [line.rstrip() for text in texts for line in text.splitlines() if "  " in line.strip()]
    assert len(lines) > 20
    assert [line for line in lines if len(line) > 100] == []
