"""Names of the flow, and of the run that a flow run makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.client.schemas.filters import DeploymentFilter, FlowFilter
from prefect.context import FlowRunContext

from marginweave.configuration.load import load_configuration

from .periods import period_name

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

    from marginweave.configuration.release import Configuration

FLOW = "marginweave release"  # the name of the flow: automations match it

_LABEL = "marginweave.run"  # label of a flow run that has the name of its run


def run_name(configuration: Path, run: str | None) -> str:
    """Return `run`, if not None; `<dataset>-<period>` if a schedule made the flow run; the default name otherwise.

    The period is the schedule's (`periods.period_name`), in its time zone. A deployed flow run has the name as a label from its
    first attempt on. So a retry resumes the same release on any worker. Where schedule or configuration were changed in the
    meantime, the retry is refused, and never makes a second release.

    Raises:
        InputError: the configuration breaks a rule.
    """
    if run is not None:
        return run
    deployed = deployed_run()
    if deployed is None:
        return load_configuration(configuration).default_run
    label = deployed.labels.get(_LABEL)
    return (
        _choose_name(load_configuration(configuration), deployed) if label is None else str(label)
    )


def deployed_run() -> FlowRun | None:
    """Return this flow run if it belongs to a deployment, in a worker or below `marginweave serve`; else None."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.deployment_id is None:
        return None
    return context.flow_run


def is_resumed() -> bool:
    """Return whether this is a later attempt of a deployed flow run."""
    deployed = deployed_run()
    return deployed is not None and deployed.run_count > 1


def _choose_name(configuration: Configuration, deployed: FlowRun) -> str:
    """Return the name for a first attempt, and store it in Prefect as a label before anything is charged under it."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        name = configuration.default_run
        if deployed.auto_scheduled:
            name = _name_with_period(client, configuration.dataset, deployed)
        client.update_flow_run_labels(deployed.id, {_LABEL: name})
    deployed.labels[_LABEL] = name
    return name


def _name_with_period(client: SyncPrefectClient, dataset: str, scheduled: FlowRun) -> str:
    """Return the name by the period, in the time zone of the deployment's schedules; in UTC if they have several zones.

    For a dataset with several deployments it has the name of the deployment too, so that two schedules of a dataset do not
    collide.
    """
    assert scheduled.deployment_id is not None
    assert scheduled.expected_start_time is not None  # Prefect sets it with the first state
    deployment_schedules = client.read_deployment_schedules(scheduled.deployment_id)
    schedules = [deployment_schedule.schedule for deployment_schedule in deployment_schedules]
    zones = {getattr(schedule, "timezone", None) or "UTC" for schedule in schedules}
    zone = zones.pop() if len(zones) == 1 else "UTC"
    period = period_name(schedules, zone, scheduled.expected_start_time)
    return f"{_prefix(client, dataset, scheduled.deployment_id)}-{period}"


def _prefix(client: SyncPrefectClient, dataset: str, deployment_id: UUID) -> str:
    """Return the dataset, or dataset and deployment if several deployments have the dataset as a tag."""
    of_releases = FlowFilter.model_validate({"name": {"any_": [FLOW]}})
    tagged = DeploymentFilter.model_validate({"tags": {"all_": [dataset]}})
    deployments = client.read_deployments(flow_filter=of_releases, deployment_filter=tagged)
    names = {
        deployment.id: re.sub(r"[^A-Za-z0-9._-]+", "-", deployment.name)
        for deployment in deployments
    }
    if len(names) < 2 or deployment_id not in names:
        return dataset
    name = names[deployment_id]
    # names that differ only in characters that no run's name may have
    if list(names.values()).count(name) > 1:
        name = f"{name}-{str(deployment_id)[:8]}"
    return name if name.startswith(dataset) else f"{dataset}-{name}"
