"""Milliseconds of one reservation, draw and commit on SQLite: python -m tests.benchmarks.ledger [FOLDER].

Beside it stands a bare insert with an fsync of its own in the same folder and the same run: the three are three transactions,
so three such inserts are the least that they can cost. `open` and `first look` are paid once a process: the second reads and
verifies every row. FOLDER decides which disk is measured.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from marginweave.schemas.ledger.records import EventKind, now
from marginweave.tasks.ledger import Ledger, ReleaseRequest
from marginweave.tasks.ledger.admission import reservation
from tests.support.releases import ACCOUNT, gaussian, reserve_release, small_plan

REPEATS = 30
NAMES = ("count", *(f"{what}-{k}" for k in (1, 2, 3) for what in ("percentile", "level")))
COST = gaussian(1e-6)
PLAN = small_plan(NAMES, cost=COST, epsilon=0.02, delta=1e-12)


def milliseconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def fill(ledger: Ledger, releases: int) -> None:
    """Finished releases, written in one transaction: the rows are those that `reserve`, the draws and `finish` write."""
    source = ledger.keys.source_digest([b"s"])
    request = ReleaseRequest(
        dataset=ACCOUNT.dataset, run="r", plan=PLAN, plan_digest="p", unit="row", actor="a", source=source
    )
    with ledger.session.writing() as journal:
        for number in range(releases):
            first, *draws = reservation(replace(request, release=f"old-{number}"), None, now())
            journal.append(first, *draws)
            journal.append(replace(first, kind=EventKind.LEASED, lease="l", body={}))
            for name in NAMES:
                for kind in (EventKind.DRAWN, EventKind.COMMITTED):
                    journal.append(replace(first, draw=name, kind=kind, lease="l", digest="00" * 32, body={}))
            journal.append(replace(first, kind=EventKind.PUBLISHED, body={"outputs": {"privacy.json": "00" * 32}}))


def one_release(ledger: Ledger, name: str) -> tuple[float, float, float]:
    """Reserve, begin and commit one draw of a fresh release."""
    reserve = milliseconds(lambda: reserve_release(ledger, PLAN, name))
    ledger.draws.take_lease(name, "l")
    begin = milliseconds(lambda: ledger.draws.begin(name, "count", "l"))
    commit = milliseconds(lambda: ledger.draws.commit(name, "count", "l", "00" * 32, tainted=False))
    return reserve, begin, commit


def bare_database(folder: Path) -> sqlite3.Connection:
    """A database of the same kind with one table."""
    connection = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE IF NOT EXISTS t (body TEXT)"):
        connection.execute(statement)
    return connection


def measure(folder: Path, releases: int) -> None:
    """One line of the table."""
    location = folder / str(releases) / "ledger.sqlite"
    made = Ledger.create(location, environment={})
    made.accounts.open(replace(ACCOUNT, epsilon=Decimal(100), delta=Decimal("1e-5")), actor="a")
    fill(made, releases)
    rows = made.verify()
    opening = milliseconds(lambda: Ledger.open(location, environment={}))
    ledger = Ledger.open(location, environment={})
    first = milliseconds(lambda: ledger.accounts.total(ACCOUNT.dataset))
    times, bare = [], []
    with closing(bare_database(folder)) as connection:
        for number in range(REPEATS):  # in turn, so that both meet the same disk
            bare.append(milliseconds(lambda: connection.execute("INSERT INTO t VALUES (?)", ("x" * 400,))))
            times.append(one_release(ledger, f"new-{number}"))
    reserve, begin, commit = (statistics.median(column) for column in zip(*times, strict=True))
    totals = [sum(each) for each in times]
    values = (statistics.median(bare), reserve, begin, commit, statistics.median(totals), max(totals), opening, first)
    print(f"{releases:>8}{rows:>8}" + "".join(f"{value:>12.2f}" for value in values))  # noqa: T201 - a benchmark prints


def main() -> None:
    """Print the table; medians, in ms."""
    names = ("bare insert", "reserve", "begin", "commit", "all three", "worst", "open", "first look")
    print(f"{'releases':>8}{'rows':>8}" + "".join(f"{name:>12}" for name in names))  # noqa: T201
    with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for releases in (0, 100, 1000):
            measure(Path(folder), releases)


if __name__ == "__main__":
    main()
