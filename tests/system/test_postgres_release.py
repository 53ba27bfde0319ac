"""A release whose ledger is in PostgreSQL, through the real command line, by a role that may only read and append."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.postgres import Server
from tests.support.release_checks import only_run, opened

pytestmark = pytest.mark.system
PASSWORD = "hidden-word"


@pytest.fixture
def writer(served: CommandLine, database_server: Server, tmp_path: Path) -> CommandLine:
    """A command line whose ledger's tables another role has made."""
    owner = database_server.database()
    url = database_server.role(owner).replace(":@", f":{PASSWORD}@")
    ledger = {
        "MARGINWEAVE_LEDGER": url,
        "MARGINWEAVE_LEDGER_KEY_FILE": str(tmp_path / "keys" / "ledger.key"),
    }
    cli = replace(served, environment={**served.environment, **ledger})
    name = url.partition("://")[2].partition(":")[0]
    as_owner = replace(cli, environment={**cli.environment, "MARGINWEAVE_LEDGER_OWNER": owner})
    made = as_owner("ledger", "create-tables", "--writer", name)
    assert made.returncode == 0, made.stderr
    assert "has its tables" in made.stdout
    return cli


def test_a_release_through_postgresql(
    writer: CommandLine, server_folder: Path, tmp_path: Path
) -> None:
    """Opened, released, again for free, shown; and the password is in no word and no file, Prefect's database included."""
    configuration = people(tmp_path)
    opened(writer)
    first = writer("run", configuration)
    assert first.returncode == 0, first.stderr
    again = writer("run", configuration)
    assert again.returncode == 0, again.stderr
    shown = writer("ledger", "show", "people", "--all")
    assert shown.returncode == 0, shown.stderr
    assert "COMMITTED" in shown.stdout
    verified = writer("ledger", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    for process in (first, again, shown, verified):
        assert PASSWORD not in process.stdout + process.stderr
    assert only_run(writer).is_dir()
    for place in (writer.home, server_folder):
        for file in (path for path in place.rglob("*") if path.is_file()):
            assert PASSWORD.encode() not in file.read_bytes(), file


def test_a_ledger_that_is_gone_stops_the_run(writer: CommandLine, tmp_path: Path) -> None:
    """Exit 3 before anything is drawn, without the password."""
    opened(writer)
    gone = f"postgresql://writer:{PASSWORD}@127.0.0.1:9/ledger"
    away = replace(writer, environment={**writer.environment, "MARGINWEAVE_LEDGER": gone})
    stopped = away("run", people(tmp_path))
    assert stopped.returncode == 3, stopped.stderr
    assert "the ledger postgresql://127.0.0.1:9/ledger cannot be used" in " ".join(
        stopped.stderr.split()
    )
    assert PASSWORD not in stopped.stdout + stopped.stderr
    assert list((writer.home / "runs").rglob("manifest.json")) == []
