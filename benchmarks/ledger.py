"""Milliseconds of one reservation, draw and commit on SQLite: python -m benchmarks.ledger [FOLDER].

Beside it stands a bare insert with an fsync of its own in the same folder and the same run: the three are three transactions,
so three such inserts are the least that they can cost. `open` and `first look` are paid once a process: the second reads the
rows behind the newest checkpoint. `show` is the ledger's part of `ledger show`, `fresh` a whole reservation, by a process that
has looked at nothing yet, and `full` what reading and verifying every row takes. The last line has each of the largest history
over that of the smallest. FOLDER decides which disk is measured.
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

from marginweave.accounting.records import Event, EventKind, now
from marginweave.ledger import Ledger, ReleaseRequest
from marginweave.ledger.admission import reservation
from marginweave.ledger.keys import SourceDigest
from tests.support.releases import ACCOUNT, gaussian, reserve_release, small_plan

REPEATS = 30
BATCH = 10
HISTORIES = (10, 100, 1000, 10_000)
NAMES = ("count", *(f"{what}-{k}" for k in (1, 2, 3) for what in ("percentile", "level")))
COST = gaussian(1e-6)
PLAN = small_plan(NAMES, cost=COST, epsilon=0.02, delta=1e-12)


def milliseconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def fill(ledger: Ledger, releases: int) -> None:
    """Finished releases, a few in each transaction: the rows are those that `reserve`, the draws and `finish` write."""
    source = ledger.keys.source_digest({"": [b"s"]})
    for start in range(0, releases, BATCH):
        _fill(ledger, range(start, min(start + BATCH, releases)), source)


def _fill(ledger: Ledger, numbers: range, source: SourceDigest) -> None:
    request = ReleaseRequest(
        dataset=ACCOUNT.dataset,
        run="r",
        plan=PLAN,
        plan_digest="p",
        unit="row",
        actor="a",
        source=source,
    )
    with ledger.session.writing() as journal:
        rows: list[Event] = []
        for number in numbers:
            first, *draws = reservation(replace(request, release=f"old-{number}"), None, now())
            rows += [first, *draws, replace(first, kind=EventKind.LEASED, lease="l", body={})]
            for name in NAMES:
                drawn = replace(first, draw=name, kind=EventKind.DRAWN, lease="l", body={})
                rows += [drawn, replace(drawn, kind=EventKind.COMMITTED, digest="00" * 32)]
            rows.append(
                replace(
                    first, kind=EventKind.PUBLISHED, body={"outputs": {"privacy.json": "00" * 32}}
                )
            )
        journal.append(*rows)


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
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE IF NOT EXISTS t (body TEXT)",
    ):
        connection.execute(statement)
    return connection


def show(location: Path) -> None:
    """What `ledger show` reads, as a process that begins."""
    ledger = Ledger.open(location, environment={})
    ledger.accounts.total(ACCOUNT.dataset)
    ledger.releases.newest(ACCOUNT.dataset, 20)


def fresh(location: Path, name: str) -> None:
    """A reservation, as the first thing that a process does."""
    reserve_release(Ledger.open(location, environment={}), PLAN, name)


def measure(folder: Path, releases: int) -> list[float]:
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
            bare.append(
                milliseconds(lambda: connection.execute("INSERT INTO t VALUES (?)", ("x" * 400,)))
            )
            times.append(one_release(ledger, f"new-{number}"))
    reserve, begin, commit = (statistics.median(column) for column in zip(*times, strict=True))
    totals = [sum(each) for each in times]
    shown = statistics.median(milliseconds(lambda: show(location)) for _ in range(REPEATS))
    begun = statistics.median(
        milliseconds(lambda n=n: fresh(location, f"fresh-{n}")) for n in range(REPEATS)
    )
    full = milliseconds(lambda: Ledger.open(location, environment={}).verify())
    ours = (
        reserve,
        begin,
        commit,
        statistics.median(totals),
        max(totals),
        opening,
        first,
        shown,
        begun,
        full,
    )
    values = [statistics.median(bare), *ours]
    print(f"{releases:>8}{rows:>8}" + "".join(f"{value:>12.2f}" for value in values))  # noqa: T201 - a benchmark prints
    return values


def main() -> None:
    """Print the table; medians, in ms."""
    names = (
        "bare insert",
        "reserve",
        "begin",
        "commit",
        "all three",
        "worst",
        "open",
        "first look",
        "show",
        "fresh",
        "full",
    )
    print(f"{'releases':>8}{'rows':>8}" + "".join(f"{name:>12}" for name in names))  # noqa: T201
    with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        lines = [measure(Path(folder), releases) for releases in HISTORIES]
    ratios = (largest / smallest for smallest, largest in zip(lines[0], lines[-1], strict=True))
    print(f"{'ratio':>16}" + "".join(f"{ratio:>12.2f}" for ratio in ratios))  # noqa: T201


if __name__ == "__main__":
    main()
