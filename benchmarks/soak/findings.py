"""What must be true after the soak: every release finished, one charge each, and nothing that had finished was begun again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from benchmarks.soak.services import Stand
from marginweave.accounting.records import State
from marginweave.ledger import Ledger, ledger_location
from tests.support.release_checks import RELEASED

ENDED = ("COMPLETED", "FAILED", "CANCELLED")
_PAGE = 200


Seen: TypeAlias = dict[str, dict[str, Any]]  # what was found of each flow run, by its id


def look(stand: Stand, datasets: Iterable[str], seen: Seen) -> None:
    """Note what has ended, and whether it did once and well: Prefect forgets a flow run an hour after its end."""
    for name in datasets:
        for run in flow_runs(stand, name):
            if run["state_type"] in ENDED:
                facts = {"dataset": name, "name": run["name"], "attempts": run["run_count"]}
                seen[run["id"]] = {**facts, "troubles": _troubles(stand, run)}


def checked(stand: Stand, datasets: Mapping[str, int], each: int, seen: Seen) -> dict[str, Any]:
    """Counts of what went as it must, and of everything else; `wrong` names the first ten of those."""
    environment = {**os.environ, **stand.environment}
    ledger = Ledger.open(ledger_location(environment), environment=environment)
    wrong = [f"{run['name']}: {trouble}" for run in seen.values() for trouble in run["troubles"]]
    attempts = [run["attempts"] for run in seen.values()]
    found = Counter(resumed=sum(number > 1 for number in attempts), flow_runs=len(seen))
    for name in datasets:
        records = list(ledger.releases.of(name))
        found["releases"] += len(records)
        runs = [run["name"] for run in seen.values() if run["dataset"] == name]
        if (
            len(records) < each
            or len({*runs}) != len(runs)
            or {*runs} - {record.run for record in records}
        ):
            wrong.append(f"{name}: {len(records)} releases in the ledger, {len(runs)} flow runs")
        for record in records:
            if {draw.state for draw in record.draws} != {State.COMMITTED}:
                wrong.append(f"{record.run}: not every draw is committed")
            if len({draw.name for draw in record.draws}) != len(record.draws):
                wrong.append(f"{record.run}: a draw is charged twice")
            folder = stand.home / "runs" / record.run
            if {file.name for file in (folder / "release").iterdir()} != RELEASED or (
                folder / "private"
            ).exists():
                wrong.append(f"{record.run}: not published as it must be")
    stand.run("marginweave", "ledger", "verify")
    return {**found, "most attempts": max(attempts), "wrong": len(wrong), "first wrong": wrong[:10]}


def flow_runs(stand: Stand, name: str) -> list[dict[str, Any]]:
    """All flow runs of a deployment that were begun."""
    found: list[dict[str, Any]] = []
    while True:
        wanted = {
            "deployments": {"name": {"any_": [name]}},
            "flow_runs": {"state": {"name": {"not_any_": ["Scheduled"]}}},
        }
        page = stand.ask(
            "/flow_runs/filter", {**wanted, "limit": _PAGE, "offset": len(found), "sort": "ID_DESC"}
        )
        found += page
        if len(page) < _PAGE:
            return found


def _troubles(stand: Stand, run: Mapping[str, Any]) -> list[str]:
    """A flow run ends once, as Completed."""
    if run["state_type"] != "COMPLETED":
        return [f"ended as {run['state_name']}"]
    states = stand.ask(f"/flow_run_states/?flow_run_id={run['id']}", None, "GET")
    ends = [number for number, state in enumerate(states) if state["type"] == "COMPLETED"]
    return [] if ends == [len(states) - 1] else ["was begun again after its end"]
