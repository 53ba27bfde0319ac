"""Flow runs of one deployment of releases, made through Prefect's API: no process runs them."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from marginweave.flows.prefect.run_names import FLOW
from tests.support.prefect_api import ask
from tests.support.production import until


class FlowRuns:
    """Makes flow runs of a new deployment on the server at a URL, and changes and reads their states.

    With a `pool` the deployment is one for workers of a new work pool.
    """

    def __init__(self, server: str, *, pool: bool = False) -> None:
        self.server = server
        self.flow = self.ask("/flows/", {"name": FLOW})["id"]
        name = uuid.uuid4().hex
        if pool:
            self.ask("/work_pools/", {"name": name, "type": "process"})
        deployment = {"name": name, "flow_id": self.flow, "work_pool_name": name if pool else None}
        self.deployment = self.ask("/deployments/", deployment)["id"]

    def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        return ask(self.server, path, body, method)

    def run(self, *states: str, deployed: bool = True) -> str:
        """A flow run that has gone through the states."""
        path = f"/deployments/{self.deployment}/create_flow_run" if deployed else "/flow_runs/"
        flow = {} if deployed else {"flow_id": self.flow}
        made: str = self.ask(
            path, {**flow, "name": uuid.uuid4().hex, "state": {"type": "PENDING"}}
        )["id"]
        for state in states:
            self.set(made, state)
        return made

    def set(self, run: str, state: str) -> None:
        self.ask(f"/flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})

    def heartbeat(self, run: str) -> None:
        """A sign of life, as Prefect's engine sends it."""
        flow = {"prefect.resource.id": f"prefect.flow.{self.flow}", "prefect.resource.role": "flow"}
        self._emit(
            "prefect.flow-run.heartbeat",
            f"prefect.flow-run.{run}",
            {**flow, "prefect.resource.name": FLOW},
        )

    def done(self, run: str) -> None:
        """A worker says that it is done with the process of a flow run."""
        related = {
            "prefect.resource.id": f"prefect.flow-run.{run}",
            "prefect.resource.role": "flow-run",
        }
        self._emit("prefect.worker.executed-flow-run", "prefect.worker.process.one", related)

    def _emit(self, name: str, resource: str, related: dict[str, str]) -> None:
        event = {
            "id": str(uuid.uuid4()),
            "event": name,
            "occurred": datetime.datetime.now(datetime.UTC).isoformat(),
            "resource": {"prefect.resource.id": resource},
            "related": [related],
            "payload": {},
        }
        self.ask("/events", [event])

    def await_event(self, run: str) -> None:
        """Wait until the server answers with an event about a flow run that was emitted here."""
        names = {"name": ["prefect.flow-run.heartbeat", "prefect.worker.executed-flow-run"]}
        wanted = {"filter": {"event": names, "any_resource": {"id": [f"prefect.flow-run.{run}"]}}}
        until(lambda: self.ask("/events/filter", wanted)["events"])

    def state(self, run: str) -> tuple[str, str]:
        """Type and name of its state."""
        state = self.ask(f"/flow_runs/{run}", method="GET")["state"]
        return state["type"], state["name"]
