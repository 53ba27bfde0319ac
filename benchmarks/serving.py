"""What is left when `flow.serve()` ends in the middle of a flow run: python -m benchmarks.serving.

A flow that sleeps is served by Prefect 3.8 as it ships, with `prefect server start`: its temporary server takes no schedule.
Printed are the processes that are alive ten seconds after SIGKILL or SIGTERM, and what the next `flow.serve()` makes of the
flow run within two minutes. `tests/system/test_serve.py` asks the same of `marginweave serve`. Ten minutes;
docs/decisions/0015-prefect-as-it-ships.md has a result.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from prefect import flow

from tests.support.places import REPOSITORY
from tests.support.prefect_api import ask
from tests.support.production import documented_server, free_port, until

SLEEP = 600.0


@flow
def sleeper() -> None:
    """Run until it is killed."""
    time.sleep(SLEEP)


def processes(home: Path) -> dict[str, list[psutil.Process]]:
    """Living processes with this home of Prefect: of the service, and of its flow runs."""
    found: dict[str, list[psutil.Process]] = {"service": [], "flow run": []}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = " ".join(process.cmdline())
            if (
                process.environ().get("PREFECT_HOME") == str(home)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found["service" if "benchmarks.serving" in words else "flow run"].append(process)
    return found


@contextmanager
def service(home: Path, api: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves the flow every minute; everything of this home is killed at the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**kept, "PREFECT_HOME": str(home), "DO_NOT_TRACK": "1", "PREFECT_API_URL": api}
    command = [sys.executable, "-m", "benchmarks.serving", "--serve"]
    with (home.parent / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        for left in (one for kind in processes(home).values() for one in kind):
            with suppress(psutil.Error):
                left.kill()
        process.wait()


def flow_runs(api: str) -> list[dict[str, Any]]:
    """The flow runs whose time has come."""
    runs: list[dict[str, Any]] = ask(api, "/flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"})
    return [run for run in runs if run["state_name"] != "Scheduled"]


def stop(home: Path, api: str, number: signal.Signals) -> None:
    """Serve until a flow run is under way, send the signal, and print what is left of it."""
    home.mkdir()
    with service(home, api) as served:
        until(lambda: [run for run in flow_runs(api) if run["state_name"] == "Running"])
        time.sleep(5)
        served.send_signal(number)
        time.sleep(10)
        alive = {kind: len(found) for kind, found in processes(home).items()}
        print(f"{number.name}: exit {served.poll()}, alive {alive}", flush=True)  # noqa: T201 - a benchmark prints
    with service(home, api):
        time.sleep(120)
        states = [(run["state_name"], run["run_count"]) for run in flow_runs(api)]
        print(f"{number.name}, two minutes after the next start: {states}", flush=True)  # noqa: T201


def main() -> None:
    """Measure and print; or serve the flow."""
    parser = argparse.ArgumentParser(prog="benchmarks.serving", description=__doc__)
    parser.add_argument("--serve", action="store_true")
    if parser.parse_args().serve:
        sleeper.serve(name="sleeper", cron="* * * * *", limit=1)
        return
    with TemporaryDirectory() as folder:
        place = Path(folder)
        for number in (signal.SIGKILL, signal.SIGTERM):
            with documented_server(place / f"server-{number.name}", free_port()) as api:
                stop(place / number.name, api, number)


if __name__ == "__main__":
    main()
