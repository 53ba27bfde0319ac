"""The auditor's and the steward's commands on a ledger in either database; in PostgreSQL by a role that may only append."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from marginweave.flows.cli.app import app
from marginweave.ledger import PostgresLocation
from marginweave.ledger.keys import key_file
from tests.support.configurations import raw
from tests.support.databases import change, on_both

Call = Callable[..., Result]

pytestmark = on_both


@pytest.fixture
def call(location, tmp_path, monkeypatch) -> Call:
    """`marginweave ledger …` in this process, with a home without runs; it must end with `code`."""
    monkeypatch.setenv("MARGINWEAVE_HOME", str(tmp_path / "home"))
    if isinstance(location, PostgresLocation):
        url = location.url.set(drivername="postgresql")
        monkeypatch.setenv("MARGINWEAVE_LEDGER", url.render_as_string(hide_password=False))
        monkeypatch.setenv("MARGINWEAVE_LEDGER_KEY_FILE", str(location.key_file))
    else:
        monkeypatch.setenv("MARGINWEAVE_LEDGER", str(location))

    def run(*arguments: str | Path, code: int = 0) -> Result:
        result = CliRunner().invoke(app, ["ledger", *map(str, arguments)])
        assert result.exit_code == code, (result.output, result.stderr)
        return result

    return run


@pytest.fixture
def published(ledger, reserve) -> str:
    """A release with a draw given back, published as run `spring`, and one that stands still."""
    reserve(run="spring")
    ledger.draws.take_lease("first", "lease")
    for name in ("count", "level-1"):
        ledger.draws.begin("first", name, "lease")
        ledger.draws.commit("first", name, "lease", "ab" * 32, tainted=False)
    ledger.draws.return_unused("first", ["level-2"])
    ledger.releases.publish("first", "lease", {"release/a.csv": "cd" * 32})
    reserve("second")
    return "spring"


def test_the_export_has_every_row_and_the_published_release(published, call, tmp_path) -> None:
    """JSON Lines and CSV agree row by row, the registry has one record, and what is not published has none."""
    folder = tmp_path / "exported"
    said = call("export", "--to", folder).stdout
    assert "1 published release(s)" in said
    assert "1 release(s) not published" in said
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    with (folder / "events.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["row_hash"] for row in rows] == [event["row_hash"] for event in events]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["kind"] for event in events][-5:] == ["PUBLISHED", *["RESERVED"] * 4]
    (record,) = (folder / "releases").iterdir()
    assert record.name == f"{published}-first.json"
    parameters = json.loads(record.read_text())["deployment"]["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": 1.0, "delta": 1e-6}


def test_without_the_key_the_same_rows_are_exported(published, call, location, tmp_path) -> None:
    """Who has lost the key can still say what was spent, and is told that no seal was checked."""
    assert "could not be checked" not in call("export", "--to", tmp_path / "with").stdout
    key_file(location).unlink()
    rows = len((tmp_path / "with" / "events.jsonl").read_text().splitlines())
    assert (
        f"The seals of {rows} row(s) could not be checked"
        in call("export", "--to", tmp_path / "without").stdout
    )
    for name in ("events.jsonl", "events.csv", f"releases/{published}-first.json"):
        assert (tmp_path / "without" / name).read_bytes() == (tmp_path / "with" / name).read_bytes()


def test_one_account_is_exported_without_the_others(published, call, tmp_path) -> None:
    """The rows of another account stay away; an account that is not there is refused, and nothing is written."""
    call("open", "twin", "--epsilon", "1", "--delta", "1e-6")
    call("export", "twin", "--to", tmp_path / "exported")
    lines = (tmp_path / "exported" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["LEDGER_CREATED", "OPENED"]
    assert list((tmp_path / "exported" / "releases").iterdir()) == []
    call("export", "nobody", "--to", tmp_path / "none", code=3)
    assert not (tmp_path / "none").exists()


def test_a_mistyped_account_is_recognized(published, ledger, call, tmp_path) -> None:
    """Wherever an account is named: the open one with nearly this name comes before the command that opens another."""
    name = ledger.accounts.totals()[0].account.dataset
    cap = ("--epsilon", "2", "--delta", "1e-6", "--reason", "typo")
    for command in (
        ("show", f"{name}s"),
        ("cap", f"{name}s", *cap),
        ("export", f"{name}s", "--to", tmp_path / "e"),
    ):
        told = call(*command, code=3).stderr
        assert f"did you mean {name}? If not, open it: marginweave ledger open {name}s" in told
    told = call("show", "zzzz", code=3).stderr
    assert "the ledger has no account zzzz; open it: marginweave ledger open zzzz" in told


def test_expiry_gives_back_what_stands_still(published, call, tmp_path) -> None:
    """By age in days, and never the release that is finished."""
    assert "Nothing is that old" in call("expire", "--older-than", "1d").stdout
    call("expire", "--older-than", "-1d", code=2)
    said = call("expire", "--older-than", "0d").stdout
    assert re.fullmatch(
        r"Release second: left alone, as its run is not below .*; where that is lost, --release second\n",
        said,
    )
    run = tmp_path / "home" / "runs" / "second"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    said = call("expire", "--older-than", "0d").stdout
    assert said.splitlines() == ["Release second: what was reserved is given back"]
    assert "Nothing is that old" in call("expire", "--older-than", "0d").stdout
    shutil.rmtree(run)
    assert "every seal checked" in call("verify").stdout


def test_expiry_of_a_begun_release_says_what_becomes_of_its_run(published, ledger, call) -> None:
    """By its name alone; its run cannot finish, and the steward is told what to do about it."""
    ledger.draws.take_lease("second", "other lease")
    ledger.draws.begin("second", "count", "other lease")
    assert "Nothing is that old" in call("expire", "--older-than", "0d").stdout
    said = call("expire", "--older-than", "0d", "--release", "second").stdout
    assert (
        "Its run second had begun to draw and can no longer finish; what was drawn stays charged"
        in said
    )
    assert said.rstrip().endswith("marginweave purge second --unfinished")


@pytest.mark.parametrize("given", ["1", "1.5;1e-6"])
def test_what_other_homes_spent_needs_both_amounts(published, ledger, call, given: str) -> None:
    """A number alone is refused in words that show the form, and nothing is booked."""
    rows = ledger.verify()
    assert (
        "--unaccounted must be EPSILON,DELTA, such as 1.5,1e-6"
        in call("reconcile", "--unaccounted", given, code=2).stderr
    )
    assert ledger.verify() == rows


def test_a_weak_delta_of_a_configuration_is_explained_there(ledger, call, tmp_path) -> None:
    """A reason on the command line is the account's: the releases of the configuration need one of their own."""
    config = tmp_path / "weak.yaml"
    config.write_text(json.dumps(raw(privacy__delta=0.01)))
    told = call(
        "open", "people", "--for", config, "--weak-delta", "a public example", code=2
    ).stderr
    assert 'say why not in the configuration: privacy: {weak_delta: "reason"}' in told
    config.write_text(json.dumps(raw(privacy__delta=0.01, privacy__weak_delta="a public example")))
    assert "Account people is open" in call("open", "people", "--for", config).stdout


def test_an_anchor_shows_what_the_chain_alone_cannot(published, call, location, tmp_path) -> None:
    """Later rows do no harm; rows cut off the end, and another history in their place, are found with the anchor only."""
    anchor = tmp_path / "anchor.json"
    call("anchor", "--to", anchor)
    assert call("anchor").stdout == anchor.read_text()
    seq = json.loads(anchor.read_text())["seq"]
    call("open", "twin", "--epsilon", "1", "--delta", "1e-6")
    assert "the anchored row among them" in call("verify", "--anchor", anchor).stdout

    # whole reservations are cut, so that the rows that are left tell a complete story
    change(
        location,
        "DELETE FROM events WHERE release = 'second' OR account = 'twin'",
        "DELETE FROM accounts WHERE dataset = 'twin'",
    )
    call("verify")
    assert f"before the anchored row {seq}" in call("verify", "--anchor", anchor, code=1).stderr
    for number in range(4):
        call(
            "cap",
            "affairs",
            "--epsilon",
            str(number + 2),
            "--delta",
            "1e-6",
            "--reason",
            "another history",
        )
    call("verify")
    assert "not the one that was anchored" in call("verify", "--anchor", anchor, code=1).stderr
    anchor.write_text("{}")
    call("verify", "--anchor", anchor, code=2)
    anchor.unlink()
    call("verify", "--anchor", anchor, code=2)


def test_the_place_of_the_key_is_told_when_an_account_opens_and_when_it_is_missing(
    ledger, call, location
) -> None:
    """With a file the refusal of `ledger open` does not recommend itself."""
    place = key_file(location)
    opening = ("open", "people", "--epsilon", "1", "--delta", "1e-6")
    assert f"Back up the ledger's key, which is in {place}." in call(*opening).stdout
    place.rename(place.with_name("away"))
    told = call(*opening, code=3).stderr
    assert f"nor at {place}. Restore the key file there from a backup" in told
    assert ("MARGINWEAVE_LEDGER_KEY_FILE" in told) == isinstance(location, PostgresLocation)
    assert ("marginweave ledger open" in told) == isinstance(location, PostgresLocation)
