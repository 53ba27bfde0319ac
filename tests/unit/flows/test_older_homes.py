"""A home that a version before 0.3.0 made is refused by whatever opens it: exit code 2, one sentence, nothing changed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marginweave.base.formats import LAST_READER
from marginweave.flows.cli.app import app
from tests.support.finished_runs import finished_home

READS = f"was made by an older version; {LAST_READER} is the last that reads it\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_home(tmp_path_factory.mktemp("finished"), "k-tuples")


def _older(file: Path, key: str) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), key: 2}))


def _said(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_home_of_an_older_version_is_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a run's manifest, by a release wherever it is, and by the ledger."""
    home, release = shutil.copytree(finished, tmp_path / "home"), tmp_path / "release"
    ledger, manifest = (
        home / "ledger" / "ledger.sqlite",
        home / "runs" / "k-tuples" / "manifest.json",
    )
    monkeypatch.setenv("MARGINWEAVE_HOME", str(home))
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(ledger))
    shutil.copytree(home / "runs" / "k-tuples" / "release", release)
    _older(release / "privacy.json", "format")
    for command in (("query", release), ("table", release, "sex")):
        assert _said(*command) == (2, "", f"marginweave: the release of run k-tuples {READS}")

    before = manifest.read_text()
    _older(manifest, "version")
    config = home / "people.yaml"
    commands = (
        ("runs",),
        ("report", "k-tuples"),
        ("resume", "k-tuples"),
        ("run", config, "--run", "k-tuples"),
    )
    for command in commands:
        code, _, said = _said(*command)
        assert (code, said) == (2, f"marginweave: run k-tuples {READS}")
    manifest.write_text(before)

    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("UPDATE ledger_format SET number = 5")
        connection.commit()
    for command in (
        ("ledger", "list"),
        ("ledger", "verify"),
        ("plan", config),
        ("handover", "k-tuples", "--to", "b"),
    ):
        code, _, said = _said(*command)
        assert (code, said) == (2, f"marginweave: the ledger {ledger} {READS}")
