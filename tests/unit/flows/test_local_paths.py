"""A URL where a path of this machine belongs: every command refuses it, whatever the option, before it does anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from marginweave.base.errors import InputError
from marginweave.flows.cli.app import app
from marginweave.flows.cli.console import LocalCommand
from marginweave.runs.home import home_directory


def commands(group: Any) -> list[Any]:
    return [
        command
        for member in group.commands.values()
        for command in (commands(member) if hasattr(member, "commands") else [member])
    ]


def test_every_command_looks_at_its_paths() -> None:
    every = commands(typer.main.get_command(app))
    assert len(every) > 20
    assert [command.name for command in every if not isinstance(command, LocalCommand)] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run s3://b/visits.yaml", "config is a URL"),
        ("publish r --to s3://b/copies", "--to is a URL"),
        ("ledger verify --anchor https://example.org/anchor.json", "--anchor is a URL"),
        ("ledger export people --to file:///mnt/x", "--to is a URL"),
        ("ledger reconcile --home /tmp --home s3://b/home", "--home is a URL"),
        ("runs --home s3://b/home", "home is a URL"),
        ("init http://example.org/t.csv", "source (http://…) must be a path, s3://BUCKET/KEY"),
    ],
)
def test_a_url_is_refused(line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, line.split())
    assert (told.exit_code, words in told.output) == (2, True), told.output
    assert list(tmp_path.iterdir()) == []


def test_a_home_of_the_environment() -> None:
    """As a deployed release has it."""
    with pytest.raises(InputError, match="home is a URL"):
        home_directory(None, {"MARGINWEAVE_HOME": "s3://b/home"})
    assert home_directory(None, {"MARGINWEAVE_HOME": "/tmp"}) == Path("/tmp").resolve()
