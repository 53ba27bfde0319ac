"""A connection that drops at a commit of the ledger loses no release and writes no row twice, at whichever commit it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import URL, make_url

from marginweave.accounting.records import Event
from marginweave.base.errors import BudgetError, LostConnection
from marginweave.ledger import Ledger, journal, ledger_location
from tests.support.commit_proxy import CommitProxy, Mode, commit_proxy
from tests.support.releases import ACCOUNT, reserve_release, small_plan

pytestmark = pytest.mark.system
_COMMITS = 9  # of `_release`


@pytest.fixture
def proxied(database) -> Iterator[tuple[CommitProxy, dict[str, str]]]:
    """A proxy, and the environment of a ledger in a fresh database behind it."""
    upstream: URL = make_url(database["MARGINWEAVE_LEDGER"])
    with commit_proxy(upstream) as (proxy, url):
        yield proxy, {**database, "MARGINWEAVE_LEDGER": url.render_as_string(hide_password=False)}


def _open(environment: dict[str, str]) -> Ledger:
    return Ledger.create(ledger_location(environment), environment=environment)


def _release(ledger: Ledger) -> None:
    """Every move that a whole release makes; a transaction each."""
    ledger.accounts.open(ACCOUNT, actor="steward")
    reserve_release(ledger, small_plan())
    ledger.draws.take_lease("first", "lease")
    for name in ("count", "level-1"):
        ledger.draws.begin("first", name, "lease", {"inputs": "ab"})
        ledger.draws.commit("first", name, "lease", "digest", tainted=False)
    ledger.draws.return_unused("first", ["level-2"])
    ledger.releases.publish("first", "lease", {"privacy.json": "ab"})


def _words(event: Event) -> tuple[object, ...]:
    # each ledger's key makes another mark
    body = {name: value for name, value in event.body.items() if name != "source"}
    return event.kind, event.draw, event.cost, event.lease, event.digest, body


@pytest.fixture
def undisturbed(ledger) -> list[tuple[object, ...]]:
    """The rows of the same release where nothing is cut."""
    _release(ledger)
    return [_words(event) for event in ledger.session.events()]


@pytest.mark.parametrize("mode", ["swallow the answer", "cut before"])
@pytest.mark.parametrize("fatal", range(1, _COMMITS + 1))
def test_every_commit_may_lose_its_connection(proxied, undisturbed, mode: Mode, fatal: int) -> None:
    """At whichever commit: the release goes on by itself and has the rows that it has where nothing is cut."""
    proxy, environment = proxied
    ledger = _open(environment)
    proxy.order(mode, fatal)
    _release(ledger)
    assert proxy.commits >= min(fatal, _COMMITS)
    found = Ledger.open(ledger.location, environment=environment)
    found.verify()
    assert [_words(event) for event in found.session.events()] == undisturbed


def test_all_commits_of_a_release_are_counted(proxied) -> None:
    """The range of the test above reaches the last one, so that each is cut."""
    proxy, environment = proxied
    ledger = _open(environment)
    proxy.order("cut before", None)
    _release(ledger)
    assert proxy.commits == _COMMITS


@pytest.mark.parametrize("mode", ["swallow the answer", "cut before"])
def test_a_changed_cap_stands_once(proxied, mode: Mode) -> None:
    """What has no lease to be known by is known by its rows: one change."""
    proxy, environment = proxied
    ledger = _open(environment)
    ledger.accounts.open(ACCOUNT, actor="steward")
    rows = ledger.verify()
    proxy.order(mode, 1)
    ledger.accounts.change_cap("affairs", 2.0, 1e-6, "decided", "steward")
    assert Ledger.open(ledger.location, environment=environment).verify() == rows + 1


def test_rows_that_others_have_overtaken_are_not_written(proxied, monkeypatch) -> None:
    """Cut before the commit, and somebody wrote meanwhile: it is said, nothing stands there, and asking again is enough."""
    proxy, environment = proxied
    ledger = _open(environment)
    ledger.accounts.open(ACCOUNT, actor="steward")
    other = Ledger.open(ledger.location, environment=environment)
    settle = journal._write_once

    def overtaken(*given: object) -> None:
        proxy.order("cut before", None)
        other.accounts.change_cap("affairs", 3.0, 1e-6, "meanwhile", "steward")
        settle(*given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(journal, "_write_once", overtaken)
    proxy.order("cut before", 1)
    with pytest.raises(LostConnection):
        reserve_release(ledger, small_plan())
    assert ledger.releases.find("first") is None
    assert reserve_release(ledger, small_plan()).release == "first"


def test_a_server_that_stays_away_is_said(proxied, monkeypatch) -> None:
    """A bounded number of attempts, then a refusal that says so."""
    proxy, environment = proxied
    ledger = _open(environment)
    monkeypatch.setattr("marginweave.ledger.connection.PAUSES", (0.01,))
    monkeypatch.setattr(proxy, "upstream", proxy.upstream.set(host="127.0.0.1", port=9, query={}))
    with pytest.raises(BudgetError, match="cannot be used"):
        ledger.accounts.open(ACCOUNT, actor="steward")
