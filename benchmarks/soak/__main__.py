"""python -m benchmarks.soak --place FOLDER: 500 scheduled releases of five datasets, and faults of every kind.

As root, with Debian's PostgreSQL. Resumable: the same command goes on with the same databases, home and counts. `--write`
writes docs/soak.md from what is in FOLDER.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import signal
import time
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from benchmarks.soak.faults import FAULTS, mounted
from benchmarks.soak.findings import ENDED, Seen, checked, look
from benchmarks.soak.page import written
from benchmarks.soak.services import stand
from marginweave.accounting.accounts import Account
from marginweave.ledger import Ledger, ledger_location
from tests.support.people_table import people
from tests.support.places import REPOSITORY
from tests.support.production import documented

DATASETS = {f"town-{number}": 380 + 130 * number for number in range(5)}  # rows
SAMPLE = 20.0  # seconds
LOOK = 600.0  # seconds
# of the time; the rest is quiet, so that growth shows without processes that begin anew
FAILING = 0.55


def main() -> None:
    """Run the soak to its end, or write its page."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--releases", type=int, default=500)
    parser.add_argument("--faults", type=int, default=45)
    parser.add_argument(
        "--every", type=float, default=120.0, help="seconds between two releases of a dataset"
    )
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    # what it has started ends with it, and ignores neither
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    if not asked.write:
        Soak(
            asked.place.resolve(), asked.releases // len(DATASETS), asked.faults, asked.every
        ).run()
    else:
        print(written(asked.place))  # noqa: T201 - a benchmark prints


class Soak:
    """`each` releases of each dataset, one every `every` seconds, and `faults` faults in the first part."""

    def __init__(self, place: Path, each: int, faults: int, every: float) -> None:
        self.place, self.each, self.every = place, each, every
        self.faults, self.gap = faults, FAILING * each * every / faults
        self.stand = stand(place)
        self._look_at = 0.0

    def run(self) -> None:
        """Until every release has ended; what was found is the last line of the figures."""
        mounted(self.stand.home / "runs")
        try:
            self._wait_for_server()
            self._deploy()
            self._turn(until=self._sample)
            self._note("end", **checked(self.stand, DATASETS, self.each, self._looked()))
        finally:
            self.stand.stop()

    def _turn(self, until: Any) -> None:
        """Look after the services, sample, and let things fail, until `until` says that all have ended."""
        failing = self._next_fault()
        sampled = 0.0
        while True:
            self.stand.look()
            if time.monotonic() >= sampled:
                sampled = time.monotonic() + SAMPLE
                try:
                    if until():
                        return
                except (OSError, AssertionError):  # the server is away: that is one of the faults
                    pass
            if time.monotonic() >= failing and self._noted() < self.faults:
                self._fail()
                failing = self._next_fault()
            time.sleep(0.5)

    def _next_fault(self) -> float:
        return time.monotonic() + self.gap * (0.5 + random.Random(self._noted()).random())

    def _noted(self) -> int:
        return sum(line["kind"] == "fault" for line in figures(self.place))

    def _fail(self) -> None:
        """The next kind of a deck that is shuffled anew when all have come."""
        number = self._noted()
        deck = sorted(FAULTS)
        random.Random(number // len(deck)).shuffle(deck)
        kind = deck[number % len(deck)]
        if "flow" in kind and not self.stand.flows():
            return
        self._note("fault", fault=kind)
        FAULTS[kind](self.stand)

    def _wait_for_server(self) -> None:
        end = time.monotonic() + 300
        while True:
            self.stand.look()
            try:
                self.stand.ask("/health", None, "GET")
            except OSError:
                assert time.monotonic() < end
                time.sleep(1)
            else:
                return

    def _deploy(self) -> None:
        """Accounts, tables and deployments, where they are not there; schedules for what is still to come."""
        shipped = yaml.safe_load((REPOSITORY / "deployments" / "prefect.yaml").read_text())
        nightly = shipped["deployments"][0]
        deployments = []
        if not (self.place / "deployed").exists():
            # a worker makes one, too
            self.stand.run(*documented("prefect work-pool create"), "--overwrite")
            for name, rows in DATASETS.items():
                path = self._dataset(name, rows)
                changes = {
                    "name": name,
                    "description": "Soak",
                    "tags": ["marginweave", name],
                    "parameters": {
                        "configuration": str(path),
                        "source": str(path.with_suffix(".csv")),
                        "warn_at": 1.0,
                    },
                    "schedules": [],
                }
                deployments.append({**nightly, **changes})
            (self.stand.home / "soak.yaml").write_text(
                yaml.safe_dump({**shipped, "deployments": deployments})
            )
            command = documented("prefect --no-prompt deploy")
            self.stand.run(
                *["soak.yaml" if word == "deployments/prefect.yaml" else word for word in command]
            )
            (self.place / "deployed").touch()
        self._schedule()

    def _schedule(self) -> None:
        start = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(
            seconds=20
        )
        for number, deployment in enumerate(self._deployments()):
            path = f"/deployments/{deployment['id']}/schedules"
            for schedule in deployment["schedules"]:
                self.stand.ask(f"{path}/{schedule['id']}", None, "DELETE")
            anchor = start + datetime.timedelta(seconds=number * self.every / len(DATASETS))
            interval = {
                "interval": self.every,
                "anchor_date": anchor.isoformat(),
                "timezone": "UTC",
            }
            self.stand.ask(path, [{"schedule": interval, "active": True}])

    def _dataset(self, name: str, rows: int) -> Path:
        folder = self.stand.home / "tables" / name
        folder.mkdir(parents=True)
        path = people(folder, rows, dataset=name)
        environment = {**os.environ, **self.stand.environment}
        Ledger.create(ledger_location(environment), environment=environment).accounts.open(
            Account(
                dataset=name,
                epsilon=Decimal(500),
                delta=Decimal("1e-3"),
                unit="row",
                neighbors="add-remove",
            ),
            actor="soak",
        )
        return path

    def _deployments(self) -> list[dict[str, Any]]:
        found = self.stand.ask(
            "/deployments/filter", {"deployments": {"name": {"any_": list(DATASETS)}}}
        )
        return sorted(found, key=lambda one: str(one["name"]))

    def _sample(self) -> bool:
        """Note how large everything is; stop schedules that have made enough runs; whether all of them have ended.

        A run has ended when its release is there: Prefect forgets flow runs meanwhile.
        """
        ended = started = 0
        for deployment in self._deployments():
            wanted: dict[str, Any] = {"deployments": {"id": {"any_": [deployment["id"]]}}}
            waiting = {
                "name": {"not_any_": ["Scheduled"]},
                "type": {"not_any_": [*ENDED, "CRASHED"]},
            }
            open_ = self.stand.ask("/flow_runs/count", {**wanted, "flow_runs": {"state": waiting}})
            over = sum(
                1 for _ in self.stand.home.glob(f"runs/{deployment['name']}-*/release/privacy.json")
            )
            started, ended = started + over + open_, ended + over
            more = over + open_ < self.each
            for schedule in deployment["schedules"]:
                # one that publishes right now is counted twice: on again where it was
                if schedule["active"] is not more:
                    path = f"/deployments/{deployment['id']}/schedules/{schedule['id']}"
                    self.stand.ask(path, {"active": more}, "PATCH")
        sizes = self._sizes()
        self._note("sample", started=started, ended=ended, **sizes)
        if time.monotonic() >= self._look_at:
            self._looked()
        return ended == started >= self.each * len(DATASETS)

    def _looked(self) -> Seen:
        """What was found of flow runs, kept in a file."""
        path = self.place / "flow-runs.json"
        seen: Seen = json.loads(path.read_text()) if path.exists() else {}
        look(self.stand, DATASETS, seen)
        path.write_text(json.dumps(seen))
        self._look_at = time.monotonic() + LOOK
        return seen

    def _sizes(self) -> dict[str, float]:
        """Megabytes: memory of what lasts, and disk but for the releases themselves."""
        stand = self.stand
        memory = {
            f"memory of {one.name}": one.memory()
            for one in (stand.server, stand.supervisor, stand.worker)
        }
        databases = {
            f"{name} database": stand.databases.run(
                stand.databases.text(), f"SELECT pg_database_size('{name}')"
            )[0][0]
            / 1e6
            for name in ("ledger", "prefect")
        }
        folders = {
            "logs": sum(file.stat().st_size for file in stand.home.glob("*.log")) / 1e6,
            "home without runs": _size(stand.home, {"runs", "tables"}),
            "runs": _size(stand.home / "runs", set()),
            "temporary files": _size(self.place / "tmp", set()),
        }
        return {**memory, **databases, **folders}

    def _note(self, kind: str, **facts: Any) -> None:
        line = {"time": round(time.time(), 1), "kind": kind, **facts}
        with (self.place / "figures.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)  # noqa: T201 - a benchmark prints


def _size(folder: Path, without: set[str]) -> float:
    total = 0
    for root, names, files in os.walk(folder):
        names[:] = [name for name in names if name not in without]
        for file in files:
            with suppress(OSError):  # it has been removed meanwhile
                total += (Path(root) / file).lstat().st_size
    return total / 1e6


def figures(place: Path) -> list[dict[str, Any]]:
    """Every line that the soak has noted."""
    path = place / "figures.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
