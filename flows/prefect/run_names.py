"""The name of the flow, and of the run that a flow run makes."""

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

_LABEL = "marginweave.run"  # of a flow run


def run_name(configuration: Path, run: str | None) -> str:
    """`run` if it is given, `<dataset>-<period>` where a schedule made the flow run, the default name otherwise.

    The period is the schedule's (`periods.period_name`), in its time zone. Of a deployed flow run, the name is a label from the
    first attempt on: a retry resumes the same release, by whatever worker, and also where the schedule or the
    configuration was changed meanwhile, which is refused then, and never a second release.

    Raises:
        InputError: the configuration breaks a rule.
    """
    if run is not None:
        return run
    deployed = deployed_run()
    if deployed is None:
        return load_configuration(configuration).default_run
    label = deployed.labels.get(_LABEL)
    return _kept(load_configuration(configuration), deployed) if label is None else str(label)


def deployed_run() -> FlowRun | None:
    """This flow run, where it is one of a deployment: in a worker, or below `marginweave serve`."""
    context = FlowRunContext.get()
    found = None if context is None else context.flow_run
    return None if found is None or found.deployment_id is None else found


def is_resumed() -> bool:
    """Whether this is a later attempt of a deployed flow run."""
    deployed = deployed_run()
    return deployed is not None and deployed.run_count > 1


def _kept(configuration: Configuration, deployed: FlowRun) -> str:
    """The name of a first attempt, kept in Prefect before anything is charged under it."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        scheduled = deployed.auto_scheduled
        name = _dated(client, configuration.dataset, deployed) if scheduled else configuration.default_run
        client.update_flow_run_labels(deployed.id, {_LABEL: name})
    deployed.labels[_LABEL] = name
    return name


def _dated(client: SyncPrefectClient, dataset: str, scheduled: FlowRun) -> str:
    """The name by the period, in the time zone of the deployment's schedules; in UTC where they have several.

    A dataset with several deployments has the name of the deployment in the place of its own, so that two schedules of a
    dataset do not collide.
    """
    assert scheduled.deployment_id is not None
    assert scheduled.expected_start_time is not None  # Prefect sets it with the first state
    schedules = [each.schedule for each in client.read_deployment_schedules(scheduled.deployment_id)]
    zones = {getattr(schedule, "timezone", None) or "UTC" for schedule in schedules}
    period = period_name(schedules, zones.pop() if len(zones) == 1 else "UTC", scheduled.expected_start_time)
    return f"{_prefix(client, dataset, scheduled.deployment_id)}-{period}"


def _prefix(client: SyncPrefectClient, dataset: str, deployment: UUID) -> str:
    """The dataset, or dataset and deployment where several deployments have the dataset as a tag."""
    of_releases = FlowFilter.model_validate({"name": {"any_": [FLOW]}})
    tagged = DeploymentFilter.model_validate({"tags": {"all_": [dataset]}})
    deployments = client.read_deployments(flow_filter=of_releases, deployment_filter=tagged)
    found = {each.id: re.sub(r"[^A-Za-z0-9._-]+", "-", each.name) for each in deployments}
    if len(found) < 2 or deployment not in found:
        return dataset
    name = found[deployment]
    if list(found.values()).count(name) > 1:  # names that differ in what no run may be called by
        name = f"{name}-{str(deployment)[:8]}"
    return name if name.startswith(dataset) else f"{dataset}-{name}"
