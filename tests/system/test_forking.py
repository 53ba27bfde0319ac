"""The forked program is the installed one: what it prints, writes and ends with, in the environment that it is given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.places import EXAMPLES, INSTALLED
from tests.support.release_checks import contents, opened

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["runs"], 0),
        (["plan", EXAMPLES / "affairs.yaml"], 0),
        (["nothing"], 2),
        (["ledger", "list"], 3),
    ],
    ids=["help", "runs", "plan", "slip", "no ledger"],
)
def test_both_programs_say_the_same(marginweave: CommandLine, arguments: list[str], code: int) -> None:
    installed, forked = (replace(marginweave, program=p)(*arguments) for p in (INSTALLED, marginweave.program))
    assert (forked.returncode, forked.stdout, forked.stderr) == (code, installed.stdout, installed.stderr)


def test_a_release_without_prefect_is_the_same(marginweave: CommandLine, served: CommandLine, tmp_path: Path) -> None:
    """It prints the same lines and leaves the same files, but for those of Prefect."""
    config = people(tmp_path, 100, aggregate__reporting_length=2)
    opened(marginweave, 3.0)
    printed = {}
    files = {}
    for run, cli in (("without", marginweave), ("with", served)):
        result = cli("run", config, "--run", run)
        assert result.returncode == 0, result.stderr
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        printed[run] = [
            (line["event"], line.get("stage"), sorted(line)) for line in lines if line["event"] != "progress"
        ]
        files[run] = set(contents(cli.home / "runs" / run))
    assert printed["without"] == printed["with"]
    assert files["with"] - files["without"] == {"internal/prefect.log"}
    assert files["without"] < files["with"]


@pytest.mark.long  # a run of the installed program; every other test of it would see the same
def test_what_one_program_has_begun_the_other_knows(served: CommandLine) -> None:
    """The forked one releases in the home, ledger and server of its environment, the installed one finds it finished."""
    first = served("run", EXAMPLES / "affairs.yaml", "--run", "one")
    assert first.returncode == 0, first.stderr
    again = replace(served, program=INSTALLED)("run", EXAMPLES / "affairs.yaml", "--run", "one")
    assert (again.returncode, '"charged_now": false' in again.stdout) == (0, True), again.stderr
    assert (served.home / "runs" / "one" / "internal" / "prefect.log").is_file()
    assert (served.home / "prefect").is_dir()
