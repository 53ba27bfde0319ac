"""Releases whose guarantee is another one than usual: a private domain, and delta 0.

Through the commands, two at once on an account with room for one, and killed at their draws. One record has a value that
nobody else has, which is published with probability 1e-6 at most.
"""

from __future__ import annotations

import csv
import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from marginweave.accounting.records import State
from tests.support.command_line import CommandLine, ForkedCommandLine
from tests.support.forked_runs import ForkedRuns
from tests.support.kills import Victim
from tests.support.people_table import people
from tests.support.release_checks import contents
from tests.support.samples import every

pytestmark = pytest.mark.system
MARKER = "xq7marker"
PRIVATE = {"columns__region": {"type": "category", "domain": "private"}}
MODES: dict[str, dict[str, Any]] = {
    "private": {**PRIVATE, "aggregate": {"reporting_length": 2}},
    "delta 0": {
        "privacy__delta": 0,
        "aggregate": {"method": "marginals", "cliques": {"all": 2}, "noise": "laplace"},
    },
}
DRAWS = {
    "private": ["count", "percentile-1", "level-1", "percentile-2", "level-2"],
    "delta 0": ["one-way", "marginals"],
}
EPSILON = 8.0


def marked(place: Path, mode: str) -> Path:
    """The table, with a region that one record has, and its configuration."""
    path = people(place, 600, privacy__epsilon=EPSILON, **MODES[mode])
    with (place / "people.csv").open("a") as table:
        table.write(f"f,{MARKER},44,7\n")
    return path


def opened(cli: CommandLine, mode: str) -> None:
    """An account that has room for one release and nothing more."""
    pure = mode == "delta 0"
    result = cli(
        "ledger", "open", "people", "--epsilon", str(EPSILON), "--delta", "0" if pure else "1e-6"
    )
    assert result.returncode == 0, result.stderr


def at_once(
    cli: ForkedCommandLine, config: Path, runs: tuple[str, str]
) -> dict[str, tuple[int, str]]:
    """Exit code and standard error of runs that are begun at the same time."""
    begun = {run: cli.begin("run", config, "--run", run) for run in runs}
    return {run: (fork.wait(), fork.err) for run, fork in begun.items()}


def released(table: str) -> list[tuple[tuple[str, str], ...]]:
    """The combinations of a released table of counts."""
    rows = list(csv.DictReader(io.StringIO(table)))
    pairs = (
        [(row[f"column_{i}"], row[f"value_{i}"]) for i in (1, 2)]
        for row in rows
        if row["length"] != "0"
    )
    return [tuple(pair for pair in row if pair[0]) for row in pairs]


@pytest.mark.parametrize("mode", every(3, MODES))
def test_of_two_at_once_one_is_released_with_its_guarantee(
    marginweave: ForkedCommandLine, mode: str
) -> None:
    cli, path = marginweave, marked(marginweave.home, mode)
    opened(cli, mode)
    ended = at_once(cli, path, ("a", "b"))
    assert sorted(code for code, _ in ended.values()) == [0, 3], ended
    (run,) = (run for run, (code, _) in ended.items() if code == 0)
    verified = cli("ledger", "verify")
    assert verified.returncode == 0, verified.stderr

    files = contents(cli.home)
    del files["people.csv"]
    private = ("runs/a/private/", "runs/b/private/")  # what the refused run has not needed yet
    for name, content in files.items():
        assert name.startswith(private) or MARKER.encode() not in name.encode() + content, name

    guarantee = json.loads(files[f"runs/{run}/release/privacy.json"])["guarantee"]
    assert (guarantee["epsilon"], guarantee["delta"]) == (EPSILON, 0 if mode == "delta 0" else 1e-6)
    assert guarantee["epsilon_of_the_draws"] <= EPSILON
    if mode == "delta 0":
        assert (guarantee["mu"], guarantee["delta_threshold"]) == (None, 0)
    told = released(files[f"runs/{run}/release/aggregates.csv"].decode())
    assert {len(row) for row in told} == {1, 2}


@pytest.mark.parametrize(
    ("mode", "transition", "side"),
    every(
        3,
        [*((mode, "begin_draw", "after") for mode in MODES), ("delta 0", "commit_draw", "before")],
    ),
)
def test_killed_at_any_draw_it_goes_on_under_what_was_charged(
    forks: ForkedRuns, tmp_path: Path, mode: str, transition: str, side: str
) -> None:
    """One draw after the other is that at which the run dies: what was begun is made again, what is whole stays."""
    planned, home = DRAWS[mode], tmp_path / "home"
    home.mkdir()
    settings = {**MODES[mode], "publish__keep_private": True}
    config = people(home, 300, privacy__epsilon=4.0, **settings)
    victim = Victim(home=home, config=config)
    for place in range(len(planned)):
        # what the attempt before has left is adopted first, by a commit of its own
        adopts = place > 0 and transition == "commit_draw"
        answer = forks.ask(victim.order(point=[transition, side, 1 + adopts]))
        assert answer.code == -signal.SIGKILL, answer
        victim.check()
    answer = forks.ask(victim.order())
    assert answer.code == 0, answer
    victim.check_finished()
    record = victim.record()
    assert record is not None
    assert [draw.name for draw in record.draws if draw.state == State.COMMITTED] == planned
