"""A test alert, which takes the way of real ones: an event, the automations that wait for it, and their actions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.events.filters import EventFilter
from prefect.events.schemas.events import Event, Resource

from marginweave.base.errors import InputError, StageError

from .records import ReleaseEvent

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_DELIVERED = "prefect.automation.action.executed"
_FAILED = "prefect.automation.action.failed"
_PATIENCE = 30.0  # seconds; Prefect's server acts within two
_PAUSE = 0.5
_PAGE = 50  # as many events as the server sends at a time


@dataclass(frozen=True)
class AlertOutcome:
    """What happened to the test alert of one automation; `ending` is the name of Prefect's event on it, if there was one."""

    automation: str
    ending: str | None

    @property
    def is_delivered(self) -> bool:
        """Return whether the receiver has taken the alert."""
        return self.ending == _DELIVERED

    def __str__(self) -> str:
        words = {_DELIVERED: "delivered", _FAILED: "not delivered; the server's events say why"}
        return f"{self.automation}: {words.get(self.ending or '', 'no answer in time')}"


def send_test_alert(url: str, patience: float = _PATIENCE) -> list[AlertOutcome]:
    """Send a test alert through the automations of the server at `url`, and return what happened to each.

    Raises:
        InputError: no automation waits for it.
        StageError: the server does not answer.
    """
    try:
        with get_client(sync_client=True) as client:
            names = _waiting(client)
            if not names:
                raise InputError(
                    f"no automation of {url} sends alerts of releases: make them with deployments/automations.py"
                )
            begun = datetime.now(UTC)
            _emit(client)
            endings = _await(client, names, begun, patience)
    except (HTTPError, RuntimeError):  # the latter where no server listens
        raise StageError(f"no Prefect server answers at {url}") from None
    return [AlertOutcome(name, endings.get(identity)) for identity, name in names.items()]


def _waiting(client: SyncPrefectClient) -> dict[str, str]:
    """Return the names of the automations that act on a test alert, by their resource in events."""
    names = {}
    for automation in client.read_automations():
        expected = getattr(automation.trigger, "expect", ())
        if automation.enabled and ReleaseEvent.TEST in expected:
            names[f"prefect.automation.{automation.id}"] = automation.name
    return names


def _emit(client: SyncPrefectClient) -> None:
    """Send the event of a flow run that does not exist, in the form of those of releases."""
    resource = {
        "prefect.resource.id": f"prefect.flow-run.{uuid.uuid4()}",
        "prefect.resource.name": "test",
    }
    event = Event(
        event=ReleaseEvent.TEST.value,
        resource=Resource.model_validate(resource),
        payload={"run": "test"},
    )
    client.request("POST", "/events", json=[event.model_dump(mode="json")])


def _await(
    client: SyncPrefectClient, names: Mapping[str, str], begun: datetime, patience: float
) -> dict[str, str]:
    """Return how the action of each automation has ended since `begun`, as far as it has within `patience` seconds."""
    conditions = {
        "occurred": {"since": begun},
        "event": {"name": [_DELIVERED, _FAILED]},
        "any_resource": {"id": list(names)},
    }
    endings: dict[str, str] = {}
    deadline = time.monotonic() + patience
    while len(endings) < len(names) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        wanted = EventFilter.model_validate(conditions)  # it ends at the moment when it is made
        for event in client.read_events(wanted, limit=_PAGE).events:
            if event.resource.id in names:
                endings[event.resource.id] = event.event
    return endings
