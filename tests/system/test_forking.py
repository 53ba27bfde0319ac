"""The forked program is the installed one: what it prints, writes and ends with, in the environment that it is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.command_line import CommandLine
from tests.support.places import EXAMPLES, INSTALLED

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


@pytest.mark.long  # a run of the installed program; every other test of it would see the same
def test_what_one_program_has_begun_the_other_knows(served: CommandLine) -> None:
    """The forked one releases in the home, ledger and server of its environment, the installed one finds it finished."""
    first = served("run", EXAMPLES / "affairs.yaml", "--run", "one")
    assert first.returncode == 0, first.stderr
    again = replace(served, program=INSTALLED)("run", EXAMPLES / "affairs.yaml", "--run", "one")
    assert (again.returncode, '"charged_now": false' in again.stdout) == (0, True), again.stderr
    assert (served.home / "runs" / "one" / "internal" / "prefect.log").is_file()
    assert (served.home / "prefect").is_dir()
