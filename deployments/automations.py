"""Tell somebody how releases end: automations of a Prefect server.

    read -rs MARGINWEAVE_WEBHOOK_URL; read -rs MARGINWEAVE_MAIL_URL
    export MARGINWEAVE_WEBHOOK_URL MARGINWEAVE_MAIL_URL && python deployments/automations.py

Both addresses (https://..., mailtos://...) come from the environment, as they may hold a password; either may be absent.
PREFECT_API_URL says which server.
Run it again after a change: automations and blocks of the same names are replaced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from uuid import UUID

from prefect.automations import Automation, EventTrigger, Posture
from prefect.blocks.core import Block
from prefect.blocks.notifications import SlackWebhook
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events.actions import CallWebhook, SendNotification
from prefect.types import SecretDict
from pydantic import SecretStr

from marginweave.flows.prefect.records import ReleaseEvent
from marginweave.flows.prefect.run_names import FLOW

BLOCK = "marginweave"
NO_WORKER = "prefect.work-pool.not-ready"
LATE, CRASHED, CANCELLED = (
    f"prefect.flow-run.{state}" for state in ("Late", "Crashed", "Cancelled")
)
FLOW_RUNS: dict[str, str | list[str]] = {"prefect.resource.id": "prefect.flow-run.*"}
WELL = {ReleaseEvent.FINISHED, ReleaseEvent.SKIPPED}  # nobody has to look
OF_RELEASES: dict[str, str | list[str]] = {
    "prefect.resource.role": "flow",
    "prefect.resource.name": FLOW,
}

# Prefect's own events are told by name only: their payload holds the message of a state.
OWN = '{"event": "{{ event.event }}", "run": "{{ event.resource.name }}", "details": {{ event.payload | tojson }}}'
PREFECTS = '{"event": "{{ event.event }}", "run": "{{ event.resource.name }}", "deployment": "{{ deployment.name }}"}'
POOLS = '{"event": "{{ event.event }}", "pool": "{{ event.resource.name }}"}'


def own_events(*events: ReleaseEvent) -> EventTrigger:
    """Fires at each of the events that a release emits."""
    return EventTrigger(
        expect={event.value for event in events},
        match=FLOW_RUNS,
        posture=Posture.Reactive,
        threshold=1,
    )


def state_events(*events: str) -> EventTrigger:
    """Fires at each of Prefect's own events about a flow run of ours."""
    return EventTrigger(
        expect=set(events),
        match=FLOW_RUNS,
        match_related=OF_RELEASES,
        posture=Posture.Reactive,
        threshold=1,
    )


def pool_events() -> EventTrigger:
    """Fires when a work pool has lost its last worker: it has ended, hangs, or does not reach the server."""
    return EventTrigger(
        expect={NO_WORKER},
        match={"prefect.resource.id": "prefect.work-pool.*"},
        posture=Posture.Reactive,
        threshold=1,
    )


def saved(block: Block) -> UUID:
    """Id of the block, in the place of the one of its name."""
    identity = block.save(BLOCK, overwrite=True)
    if not isinstance(identity, UUID):
        raise TypeError("a block is saved by a coroutine only where an event loop runs")
    return identity


def by_webhook(url: str) -> Iterator[Automation]:
    """POSTs one line of JSON for every event."""
    block = saved(
        Webhook(
            url=SecretStr(url),
            method="POST",
            headers=SecretDict({"Content-Type": "application/json"}),
        )
    )
    yield Automation(
        name="marginweave: webhook, releases",
        trigger=own_events(*ReleaseEvent),
        actions=[CallWebhook(block_document_id=block, payload=OWN)],
    )
    yield Automation(
        name="marginweave: webhook, late, crashed or cancelled",
        trigger=state_events(LATE, CRASHED, CANCELLED),
        actions=[CallWebhook(block_document_id=block, payload=PREFECTS)],
    )
    yield Automation(
        name="marginweave: webhook, no worker",
        trigger=pool_events(),
        actions=[CallWebhook(block_document_id=block, payload=POOLS)],
    )


def by_mail(url: str) -> Iterator[Automation]:
    """Writes a mail when somebody should look; `url` is one of Apprise, such as mailtos://USER:PASSWORD@HOST?to=ADDRESS.

    Prefect has no block for SMTP. That for Slack hands what is no address of Slack's to Apprise as it is, mail included.
    """
    block = saved(SlackWebhook(url=SecretStr(url)))
    subject = "{{ event.event }}: {{ event.resource.name }}"
    yield Automation(
        name="marginweave: mail, releases",
        trigger=own_events(*(event for event in ReleaseEvent if event not in WELL)),
        actions=[SendNotification(block_document_id=block, subject=subject, body=OWN)],
    )
    yield Automation(
        name="marginweave: mail, late or crashed",
        trigger=state_events(LATE, CRASHED),
        actions=[SendNotification(block_document_id=block, subject=subject, body=PREFECTS)],
    )
    yield Automation(
        name="marginweave: mail, no worker",
        trigger=pool_events(),
        actions=[SendNotification(block_document_id=block, subject=subject, body=POOLS)],
    )


def is_present(prefix: str) -> bool:
    """Whether the server has automations whose names begin so."""
    with get_client(sync_client=True) as client:
        automations = client.read_automations()
    return any(automation.name.startswith(prefix) for automation in automations)


def replace(automations: list[Automation]) -> None:
    """Create automations in the place of those of the same names."""
    for automation in automations:
        with get_client(sync_client=True) as client:
            for older in client.read_automations_by_name(automation.name):
                client.delete_automation(older.id)
        automation.create()
        print(f"made: {automation.name}")  # noqa: T201 - a command


def main() -> None:
    """Create what the environment gives an address for, and say what was left as it was."""
    ways = {
        "webhook": ("MARGINWEAVE_WEBHOOK_URL", by_webhook),
        "mail": ("MARGINWEAVE_MAIL_URL", by_mail),
    }
    if not any(os.environ.get(variable) for variable, _ in ways.values()):
        sys.exit("no alert was made: export MARGINWEAVE_WEBHOOK_URL, MARGINWEAVE_MAIL_URL or both")
    for way, (variable, automations_of) in ways.items():
        url = os.environ.get(variable)
        if url:
            replace(list(automations_of(url)))
            continue
        has_older = is_present(f"marginweave: {way}")
        state = "earlier ones were left as they were" if has_older else "there are none"
        print(f"no alerts by {way} were made, as {variable} is not set; {state}")  # noqa: T201
    print("try them: marginweave alert")  # noqa: T201


if __name__ == "__main__":
    main()
