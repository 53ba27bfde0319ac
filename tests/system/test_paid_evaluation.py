"""A bought comparison: killed at its draw and resumed, with every kind of release, and through the commands."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from marginweave.accounting.records import State
from tests.support.command_line import CommandLine
from tests.support.configurations import PRIVATE
from tests.support.kills import ForkServer, Victim
from tests.support.people_table import people
from tests.support.release_checks import contents, opened
from tests.support.samples import every
from tests.support.shapes import NewVictim, configured_victims

pytestmark = pytest.mark.system
# settings, planned draws before the evaluation
METHODS: dict[str, tuple[dict[str, object], list[str]]] = {
    "k-tuples": (
        {"aggregate": {"reporting_length": 2}},
        ["count", "percentile-1", "level-1", "percentile-2", "level-2"],
    ),
    "marginals": ({"aggregate": {"method": "marginals", "cliques": {"all": 2}}}, ["one-way", "marginals"]),
}
PAID = {"evaluate__paid": {"share": 0.1}}
SIGNS = {"type": "set", "values": ["f", "m"], "max_values": 2}
IMPUTED = {f"columns__{name}__impute": {"distribution": "uniform"} for name in ("sex", "region", "age", "grade")}


@pytest.fixture
def new_victim(tmp_path: Path) -> NewVictim:
    return configured_victims(tmp_path, **PAID)


def paid_of(victim: Victim) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((victim.folder.release / "evaluation.json").read_text())["paid"]
    return found


@pytest.mark.parametrize(
    ("method", "transition", "side"),
    every(3, itertools.product(METHODS, ["begin_draw", "commit_draw"], ["before", "after"]), first=1),
)
def test_a_run_killed_at_the_evaluation_goes_on(
    parent: ForkServer, new_victim: NewVictim, method: str, transition: str, side: str
) -> None:
    """Nothing is lost, and the number is told, also by another version, but not where that would make the draw again."""
    changes, before = METHODS[method]
    victim = new_victim(**changes)
    point = [transition, side, len(before) + 1]
    assert parent.ask(victim.order(point=point))["code"] == -signal.SIGKILL
    victim.check()
    assert (victim.record() or pytest.fail("no release")).draw("evaluation") is not None
    answer = parent.ask(victim.order(version="a later one"))
    if (transition, side) == ("begin_draw", "after"):
        assert answer["code"] == 2, answer
        answer = parent.ask(victim.order())
    assert answer["code"] == 0, answer
    victim.check_finished()
    record = victim.record()
    assert record is not None
    assert [draw.name for draw in record.draws] == [*before, "evaluation"]
    assert {draw.state for draw in record.draws} <= {State.COMMITTED, State.RETURNED}
    paid = paid_of(victim)
    assert (paid["length"], paid["marginals"], paid["share"]) == (2, 6, 0.1)
    assert paid["count_error"]["low"] <= paid["count_error"]["value"] <= paid["count_error"]["high"]


@pytest.mark.parametrize(
    ("changes", "returned", "marginals"),
    [
        ({"aggregate__thresholds": {"fixed": {2: 10**9}}, "aggregate__percentile": "none"}, {"level-3"}, 6),
        ({"columns__region": PRIVATE}, set(), 6),
        ({"columns__region": PRIVATE, "aggregate__method": "marginals"}, None, 6),
        ({"columns__sex": SIGNS, "evaluate__paid__length": 3}, set(), 1),
        ({"columns__sex": SIGNS, "aggregate__method": "marginals"}, None, 10),
        ({"resize": {"records": 250}, **IMPUTED}, set(), 6),
        ({"columns__age": {"type": "number", "bounds": "private", "within": [0, 200], "bins": 4}}, set(), 6),
        ({"synthesize": {"records": 40}}, set(), 6),
    ],
    ids=[
        "upper levels not reached",
        "private",
        "private marginals",
        "set",
        "set marginals",
        "resized",
        "bounds",
        "few",
    ],
)
def test_every_kind_of_release_can_buy_it(
    parent: ForkServer,
    new_victim: NewVictim,
    changes: dict[str, object],
    returned: set[str] | None,
    marginals: int,
) -> None:
    """At epsilon 20 its noise has sd 1.2 and below: the TVD of pairs is told as inside [0, 1] with 8 sd to spare."""
    victim = new_victim(privacy__epsilon=20.0, **changes)
    answer = parent.ask(victim.order())
    assert answer["code"] == 0, answer
    victim.check_finished()
    record = victim.record()
    assert record is not None
    evaluation = record.draw("evaluation")
    assert evaluation is not None
    assert evaluation.state == State.COMMITTED
    if returned is not None:
        assert {draw.name for draw in record.draws if draw.state == State.RETURNED} == returned
    paid = paid_of(victim)
    assert (paid["marginals"], paid["length"]) == (marginals, 3 if marginals == 1 else 2)
    assert 0 <= paid["tvd"]["value"] < 1
    if "aggregate__thresholds" in changes:
        assert paid["tvd"]["value"] < 0.5


@pytest.mark.long  # a whole release; each kind of it above
def test_the_commands_know_it(marginweave: CommandLine) -> None:
    """plan, run, ledger show, evaluate, report tell the one number; nothing draws it again, and no other records have it."""
    cli = opened(marginweave, epsilon=3.0)
    config = people(cli.home, 600, evaluate__paid={"share": 0.2, "length": 1}, aggregate__reporting_length=2)
    plan = cli("plan", config)
    assert plan.returncode == 0, plan.stderr
    assert any(line.startswith("evaluation") and "20.0 %" in line for line in plan.stdout.splitlines()), plan.stdout
    result = cli("run", config, "--run", "p")
    assert result.returncode == 0, result.stderr
    stages = [json.loads(line) for line in result.stdout.splitlines()]
    (stage,) = (stage for stage in stages if stage.get("stage") == "buy evaluation")
    assert stage["charged"] == ["evaluation"]
    release = cli.home / "runs" / "p" / "release"
    paid = json.loads((release / "evaluation.json").read_text())["paid"]
    row = json.loads((release / "privacy.json").read_text())["mechanisms"][-1]
    assert (row["draw"], row["sigma"], row["sensitivity"]) == ("evaluation", paid["deviation"], 1)
    told = f"{paid['count_error']['value']:g} records apart on average"
    assert told in (release / "report.html").read_text()
    assert "evaluation" in cli("ledger", "show", "people").stdout
    spent, before = cli("ledger", "show", "people").stdout, contents(release)
    for _ in range(2):
        shown = cli("evaluate", "p")
        assert (shown.returncode, told in shown.stdout) == (0, True), shown.stdout
    assert cli("run", config, "--run", "p").returncode == 0
    assert (cli("ledger", "show", "people").stdout, contents(release)) == (spent, before)
    assert cli("report", "p", "--to", cli.home / "pages").returncode == 0
    assert (cli.home / "pages" / "report.html").read_bytes() == before["report.html"]
    more = cli("synthesize", "p", "--seed", "3", "--to", cli.home / "more")
    assert more.returncode == 0, more.stderr
    assert {file.name for file in (cli.home / "more").iterdir()} == {
        "privacy.json",
        "synthetic.csv",
        "synthetic.parquet",
    }
    assert told not in (cli.home / "more" / "privacy.json").read_text()
    assert '"paid": {' not in (cli.home / "more" / "privacy.json").read_text()
