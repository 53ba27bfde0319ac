"""Whole releases on a PostgreSQL ledger whose connection is cut at one of their commits: none is lost, no row stands twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import make_url

from marginweave.accounting.records import EventKind
from tests.support.commit_proxy import CommitProxy, Mode, commit_proxy
from tests.support.forked_runs import ForkedRuns
from tests.support.kills import Victim
from tests.support.people_table import people
from tests.support.postgres import Server, postgres_server
from tests.support.samples import every

pytestmark = pytest.mark.system
MODES: tuple[Mode, ...] = ("swallow the answer", "cut before")
SAMPLED = 2


@dataclass
class Releases:
    """Runs with a database each, behind one proxy."""

    forks: ForkedRuns
    server: Server
    proxy: CommitProxy
    behind: str
    place: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def made(self, mode: Mode, fatal: int | None) -> tuple[Victim, int]:
        """A run that is finished, by the same command where it was stopped; and how often it was stopped."""
        home = self.place / f"home-{next(self.numbers)}"
        home.mkdir()
        database = make_url(self.server.database()).database
        url = make_url(self.behind).set(database=database).render_as_string(hide_password=False)
        ledger = {
            "MARGINWEAVE_LEDGER": url,
            "MARGINWEAVE_LEDGER_KEY_FILE": str(home / "keys" / "ledger.key"),
        }
        self.proxy.order(mode, None)
        config = people(home, 40, aggregate__reporting_length=1)
        victim = Victim(home=home, config=config, environment=ledger)
        self.proxy.order(mode, fatal)
        answer, stops = self.forks.ask(victim.order()), 0
        self.reached = self.proxy.commits
        if answer.code != 0:
            assert (answer.code, "cannot be used" in answer.message) == (3, True), answer
            victim.check()
            answer, stops = self.forks.ask(victim.order()), 1
        assert answer.code == 0, answer
        victim.check_finished()
        return victim, stops


@pytest.fixture(scope="module")
def releases(forks: ForkedRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    place = tmp_path_factory.mktemp("releases")
    with postgres_server() as server, commit_proxy(server.url) as (proxy, url):
        behind = url.set(drivername="postgresql").render_as_string(hide_password=False)
        yield Releases(forks, server, proxy, behind, place)


def _rows(victim: Victim) -> list[tuple[str, str | None]]:
    """What was written, but for the lease of an attempt that was stopped."""
    return [(event.kind, event.draw) for event in victim.events if event.kind != EventKind.LEASED]


def _cut(releases: Releases, mode: Mode, share: float | None) -> None:
    calm, _ = releases.made(mode, None)
    commits, stopped = releases.reached, 0
    assert commits >= 9, "reserve, lease, three draws begun and committed, the end"
    every = range(1, commits + 1)
    chosen = (
        every if share is None else [every[int(share * len(every) * k)] for k in range(SAMPLED)]
    )
    for fatal in chosen:
        victim, stops = releases.made(mode, fatal)
        stopped += stops
        assert releases.reached >= fatal or stops, f"commit {fatal} was not reached"
        assert _rows(victim) == _rows(calm), (mode, fatal)
    print(  # noqa: T201
        f"{mode}: {len(chosen)} of {commits} commits, {stopped} stopped and went on by the same command"
    )


@pytest.mark.parametrize("mode", every(2, MODES))
def test_some_commits_may_lose_their_connection(releases: Releases, mode: Mode) -> None:
    """Two of them, spread over the run."""
    _cut(releases, mode, 1 / SAMPLED)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_every_commit_may_lose_its_connection(releases: Releases, mode: Mode) -> None:
    """Of readers, too."""
    _cut(releases, mode, None)
