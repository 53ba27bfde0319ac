"""`marginweave serve`: schedules for one machine, with a Prefect server that lives as long as the service."""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from marginweave.base.errors import InputError
from marginweave.configuration.load import load_configuration
from marginweave.runs.home import service_directory
from marginweave.runs.lookup import exclusive_lock

from .prefect.environment import SERVICE, SERVICE_TERMINAL
from .prefect.run_names import FLOW

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

_PATIENCE = timedelta(minutes=2)  # a runner asks its server every ten seconds which runs are due
_INTERRUPTED = "The process of this run ended with the service before; the service resumes it."


def check_times(cron: str, zone: str) -> None:
    """Refuse a cron expression, or a time zone, that cannot be read; raises InputError."""
    # Prefect warns of its home, which exists only after the service has started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from prefect.client.schemas.schedules import CronSchedule

    try:
        CronSchedule(cron=cron)
    except ValueError:
        raise InputError(
            f"--cron ({cron}) must be a cron expression, such as '30 1 * * *'"
        ) from None
    try:
        CronSchedule(cron=cron, timezone=zone)
    except ValueError:
        raise InputError(
            f"--timezone ({zone}) must be the name of a time zone, such as Europe/Oslo"
        ) from None


@dataclass(frozen=True)
class ServedDataset:
    """A dataset, its configuration, and the cron expression of its releases."""

    name: str
    configuration: Path
    cron: str


def served_datasets(
    configurations: Sequence[Path], crons: Sequence[str]
) -> tuple[ServedDataset, ...]:
    """Return the datasets of configurations, one for each: an account has one release at a time.

    Args:
        configurations: Configuration files.
        crons: One cron expression for all of them, or one for each, in order.

    Raises:
        InputError: a configuration breaks a rule, two are for the same dataset, or there is another number of expressions.
    """
    if len(crons) not in {1, len(configurations)}:
        raise InputError(
            f"--cron is given {len(crons)} times for {len(configurations)} configurations; give it once for all, or once for "
            "each, in their order"
        )
    paths: dict[str, Path] = {}
    for path in configurations:
        dataset = load_configuration(path).dataset
        if dataset in paths:
            raise InputError(
                f"{path} and {paths[dataset]} are both for dataset {dataset}; serve one of them"
            )
        paths[dataset] = path.resolve()
    all_crons = list(crons) * len(paths) if len(crons) == 1 else crons
    return tuple(
        ServedDataset(name, path, cron)
        for (name, path), cron in zip(paths.items(), all_crons, strict=True)
    )


def serve_releases(
    datasets: Sequence[ServedDataset],
    zone: str,
    home: Path,
    port: int | None,
    say: Callable[[str], None],
) -> None:
    """Release each dataset at the scheduled times, until stopped; runs that the last service left unfinished come first.

    Args:
        datasets: what is released, and when.
        zone: the time zone of their times.
        home: the folder of `runs/`, and of Prefect's database, so that the schedule survives a restart.
        port: port of Prefect's pages on loopback; None: no pages.
        say: takes a line for the operator.

    Raises:
        StageError: another service has the home, or Prefect's server does not start.
    """
    from marginweave.ledger import ledger_location
    from marginweave.runs.metrics import write_metrics

    from .prefect.session import prefect_session

    place = service_directory(home)
    with (
        exclusive_lock(place / "serve.lock", f"{home} is served by another process"),
        prefect_session(home, place, port),
    ):
        write_metrics(home, ledger_location(os.environ))
        deployments = [_deployment(dataset, zone, home) for dataset in datasets]
        _resume_interrupted([dataset.name for dataset in datasets])
        _run_until_stopped(deployments, say)


def _run_until_stopped(deployments: list[RunnerDeployment], say: Callable[[str], None]) -> None:
    """Run due releases, and resume those whose process vanishes, until a signal ends this process and its children.

    The schedules stay: a release that is due while no service runs starts late, with the next service.
    """
    from prefect.runner import Runner

    from .prefect.supervisor import HEARTBEAT_SECONDS, supervise

    class Service(Runner):
        """A runner that leaves SIGTERM to us: the handler of Prefect 3.8 never waits for the processes that it starts."""

        def handle_sigterm(self, *_: object) -> None:
            """Do nothing: `obey_signals` ends the process."""

    os.environ[SERVICE] = str(os.getpid())
    if sys.stdout.isatty():
        os.environ[SERVICE_TERMINAL] = "1"
    # Releases report by themselves; Prefect's log is a file.
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    runner = Service(pause_on_shutdown=False, heartbeat_seconds=HEARTBEAT_SECONDS)

    def is_polling_or_starting() -> bool:
        return runner.last_polled is None or datetime.now(UTC) - runner.last_polled < _PATIENCE

    run_in_context = contextvars.copy_context().run  # Prefect's settings belong to a context
    arguments = (supervise, threading.Event(), say, is_polling_or_starting)
    supervisor = threading.Thread(
        target=run_in_context, args=arguments, daemon=True, name="supervisor"
    )
    supervisor.start()
    for deployment in deployments:
        runner.add_deployment(deployment)
    asyncio.run(runner.start())


def _deployment(dataset: ServedDataset, zone: str, home: Path) -> RunnerDeployment:
    from prefect.deployments.runner import RunnerDeployment
    from prefect.schedules import Cron
    from prefect.types.entrypoint import EntrypointType

    from . import release

    return RunnerDeployment.from_flow(
        release,
        name=dataset.name,
        schedule=Cron(dataset.cron, timezone=zone),
        parameters={"configuration": str(dataset.configuration), "home": str(home)},
        tags=["marginweave", dataset.name],
        concurrency_limit=1,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _resume_interrupted(datasets: list[str]) -> None:
    """Set the releases that the last service left in progress to AwaitingRetry, so that the runner starts them again."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, FlowFilter, FlowRunFilter
    from prefect.states import AwaitingRetry

    with get_client(sync_client=True) as client:
        interrupted = client.read_flow_runs(
            flow_filter=FlowFilter.model_validate({"name": {"any_": [FLOW]}}),
            deployment_filter=DeploymentFilter.model_validate({"name": {"any_": datasets}}),
            flow_run_filter=FlowRunFilter.model_validate(
                {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}
            ),
        )
        for run in interrupted:
            client.set_flow_run_state(run.id, AwaitingRetry(message=_INTERRUPTED), force=True)
