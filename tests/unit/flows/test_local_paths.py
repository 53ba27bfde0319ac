"""A URL, or what no file can be called, in the place of a path: every command refuses it before it does anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import marginweave as mw
from marginweave.base.errors import InputError
from marginweave.flows.cli.app import app
from marginweave.flows.cli.console import LocalCommand
from marginweave.runs.home import home_directory
from tests.support.configurations import raw


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
def test_a_url_is_refused(
    line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, line.split())
    assert (told.exit_code, words in told.output) == (2, True), told.output
    assert list(tmp_path.iterdir()) == []


LONG = "é" * 128  # 256 bytes
TOO_LONG = "has a name that is too long: a file's has at most 255 bytes, 4095 with its folders; choose a shorter one"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plan long.yaml", "source"),
        ("check long.yaml", "source"),
        ("run long.yaml --yes", "source"),
        (f"run plain.yaml --yes --source {LONG}.csv", "source"),
        (f"plan plain.yaml --source {LONG}.csv", "source"),
        ("plan certified.yaml", "engine: a certificate or key"),
        (f"plan {LONG}.yaml", "configs"),
        (f"init {LONG}.csv", "source"),
        (f"init t.csv --output {LONG}", "--output"),
        (f"init t.csv --output {LONG}/x.yaml", "--output"),
        (f"query {LONG} --by a", "the release"),
        (f"table {LONG} a", "the release"),
        (f"query {'long/' * 1000} --by a", "the release"),
        (f"overview --to {LONG}", "--to"),
        (f"plan plain.yaml --page {LONG}", "--page"),
        (f"publish r --to {LONG}", "--to"),
        (f"report r --to {LONG}", "--to"),
        (f"handover r --to {LONG}", "--to"),
    ],
)
def test_a_name_that_no_file_can_have_is_refused(
    line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system would raise an error of its own, an internal one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a\nx\n")
    plain = (
        "dataset: d\nsource: t.csv\nprivacy: {epsilon: 1, delta: 1e-6, unit: row}\n"
        "columns: {a: {type: category, values: [x]}}\n"
    )
    files = {"ca": f"{LONG}.pem", "cert": "c.pem", "key": "k.pem"}
    engine = f"engine: {{dask: 'tls://localhost:1', {', '.join(f'{key}: {file}' for key, file in files.items())}}}\n"
    (tmp_path / "plain.yaml").write_text(plain)
    (tmp_path / "long.yaml").write_text(plain.replace("t.csv", f"{LONG}.csv"))
    (tmp_path / "certified.yaml").write_text(plain + engine)
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: True)
    told = CliRunner().invoke(app, line.split())
    assert (told.exit_code, f"marginweave: {words} {TOO_LONG}" in told.output) == (2, True), (
        told.output
    )


def test_python_refuses_such_names_in_the_same_words(tmp_path: Path) -> None:
    for call in (
        lambda: mw.Release.open(LONG, tmp_path),
        lambda: mw.Release.open(tmp_path / LONG),
        lambda: mw.Configuration.draft(f"{LONG}.csv"),
        lambda: mw.Synthesizer(raw(), tmp_path, verbose=False).fit(tmp_path / f"{LONG}.csv"),
        lambda: mw.Synthesizer(raw(source=f"{LONG}.csv")),
    ):
        with pytest.raises(InputError, match=re.escape(TOO_LONG)):
            call()


def test_a_home_of_the_environment() -> None:
    """As a deployed release has it."""
    with pytest.raises(InputError, match="home is a URL"):
        home_directory(None, {"MARGINWEAVE_HOME": "s3://b/home"})
    assert home_directory(None, {"MARGINWEAVE_HOME": "/tmp"}) == Path("/tmp").resolve()
