"""An old copy of the ledger, put back after a release was published: nothing more is drawn under it until it is reconciled."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from tests.support.command_line import CommandLine
from tests.support.forked_runs import ForkedRuns, begin
from tests.support.samples import every
from tests.support.shapes import NewVictim

pytestmark = pytest.mark.system


@pytest.mark.parametrize("moment", every(2, ["begin_draw", "finish"]))
def test_a_copy_from_the_middle_of_a_release_admits_no_other(
    forks: ForkedRuns,
    new_victim: NewVictim,
    marginweave: CommandLine,
    moment: str,
) -> None:
    """The copy knows the release, and not that it was drawn, or not that it was published."""
    victim = new_victim()
    run = begin(victim.order(point=[moment, "before", 1, "stop"]))
    run.wait_until_stopped()
    kept = victim.home / "kept"
    shutil.copytree(victim.ledger_file.parent, kept)
    run.go_on()
    assert run.wait() == 0, run.err
    shutil.rmtree(victim.ledger_file.parent)
    shutil.copytree(kept, victim.ledger_file.parent)
    drawn = victim.makes.read_text()

    for name in ("r2", "r"):
        refused = forks.ask({**victim.order(), "run": name})
        assert refused.code == 3, refused
        assert "older copy of itself" in refused.message
        assert "marginweave ledger reconcile" in refused.message
    named = {**marginweave.environment, "MARGINWEAVE_LEDGER": str(victim.location)}
    cli = replace(marginweave, home=victim.home, environment=named)
    for command, code in (
        (("ledger", "expire", "--older-than", "0d"), 3),
        (("ledger", "cap", "people", "--epsilon", "60", "--delta", "1e-4", "--reason", "more"), 3),
        (("ledger", "verify"), 1),
    ):
        result = cli(*command)
        assert (result.returncode, "older copy of itself" in result.stderr) == (code, True), (
            result.stderr
        )
    assert victim.makes.read_text() == drawn

    told = cli("ledger", "reconcile")
    assert told.returncode == 0, told.stderr
    assert "people admits nothing until" in told.stdout
    frozen = forks.ask({**victim.order(), "run": "r2"})
    assert (frozen.code, "admits nothing" in frozen.message) == (3, True), frozen
    assert cli("ledger", "reconcile", "--no-other-home", "one machine").returncode == 0
    assert cli("ledger", "verify").returncode == 0
    assert forks.ask(victim.order()).code == 0  # finds its release
    assert forks.ask({**victim.order(), "run": "r2"}).code == 0
    assert cli("ledger", "verify").returncode == 0
    account = json.loads((victim.home / "runs" / "r2" / "release" / "account.json").read_text())
    assert [each["no_other_home"] for each in account["restored"]] == [None, "one machine"]
    assert not any(
        "rows_adopted" in each or "draws_charged_as_lost" in each for each in account["restored"]
    )
