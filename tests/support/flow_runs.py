"""Flow runs of one deployment of releases, made through Prefect's API: no process runs them."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

from marginweave.flows.prefect.run_names import FLOW
from tests.support.prefect_api import ask


class FlowRuns:
    """Makes flow runs of a new deployment on the server at a URL, and changes and reads their states."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.flow = self.ask("/flows/", {"name": FLOW})["id"]
        self.deployment = self.ask("/deployments/", {"name": uuid.uuid4().hex, "flow_id": self.flow})["id"]

    def ask(self, path: str, body: Any = None, method: str = "POST") -> Any:
        return ask(self.server, path, body, method)

    def run(self, *states: str, deployed: bool = True) -> str:
        """A flow run that has gone through the states."""
        deployment = self.deployment if deployed else None
        content = {"flow_id": self.flow, "deployment_id": deployment, "name": uuid.uuid4().hex}
        made: str = self.ask("/flow_runs/", {**content, "state": {"type": "PENDING"}})["id"]
        for state in states:
            self.set(made, state)
        return made

    def set(self, run: str, state: str) -> None:
        self.ask(f"/flow_runs/{run}/set_state", {"state": {"type": state}, "force": True})

    def heartbeat(self, run: str) -> None:
        """A sign of life, as Prefect's engine sends it."""
        event = {
            "id": str(uuid.uuid4()),
            "event": "prefect.flow-run.heartbeat",
            "occurred": datetime.datetime.now(datetime.UTC).isoformat(),
            "resource": {"prefect.resource.id": f"prefect.flow-run.{run}"},
            "related": [
                {
                    "prefect.resource.id": f"prefect.flow.{self.flow}",
                    "prefect.resource.role": "flow",
                    "prefect.resource.name": FLOW,
                }
            ],
            "payload": {},
        }
        self.ask("/events", [event])

    def state(self, run: str) -> tuple[str, str]:
        """Type and name of its state."""
        state = self.ask(f"/flow_runs/{run}", method="GET")["state"]
        return state["type"], state["name"]
