"""Commands in forks are those of the installed program: what they print, write and end with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, ForkedCommandLine
from tests.support.people_table import people
from tests.support.places import EXAMPLES
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
def test_both_say_the_same(marginweave: ForkedCommandLine, arguments: list[str], code: int) -> None:
    installed = CommandLine(marginweave.home, marginweave.environment)(*arguments)
    forked = marginweave(*arguments)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        code,
        installed.stdout,
        installed.stderr,
    )


def test_a_release_without_prefect_is_the_same(
    marginweave: ForkedCommandLine, served: CommandLine, tmp_path: Path
) -> None:
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
            (line["event"], line.get("stage"), sorted(line))
            for line in lines
            if line["event"] != "progress"
        ]
        files[run] = set(contents(cli.home / "runs" / run))
    assert printed["without"] == printed["with"]
    assert files["with"] - files["without"] == {"internal/prefect.log"}
    assert files["without"] < files["with"]
