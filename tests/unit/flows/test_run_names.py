"""The name of a run is that of its flow run's first attempt, whatever is edited or rescheduled before the next one."""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.client import orchestration
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.schedules import CronSchedule

from marginweave.flows.prefect import run_names
from marginweave.flows.prefect.run_names import run_name
from marginweave.flows.prefect.schedules import Schedule
from tests.support.configurations import FAIR

DUE = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)


class Server:
    """What a Prefect server keeps of one flow run between its attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
        self.facts = {
            "id": uuid.uuid4(),
            "flow_id": uuid.uuid4(),
            "expected_start_time": DUE,
            **facts,
        }
        self.labels: dict[str, str] = {"prefect.flow.id": "a flow"}
        self.zones = ["Europe/Oslo"]
        self.deployments: list[SimpleNamespace] = []
        monkeypatch.setattr(orchestration, "get_client", lambda **_: nullcontext(self))
        monkeypatch.setattr(run_names, "FlowRunContext", SimpleNamespace(get=self.context))

    def context(self) -> SimpleNamespace:
        return SimpleNamespace(flow_run=FlowRun(**self.facts, labels=dict(self.labels)))

    def read_deployment_schedules(self, _: object) -> list[SimpleNamespace]:
        made = [CronSchedule(cron="30 0 * * *", timezone=zone) for zone in self.zones]
        return [SimpleNamespace(id=uuid.uuid4(), schedule=each) for each in made]

    def read_deployments(self, **_: object) -> list[SimpleNamespace]:
        return self.deployments

    def update_flow_run_labels(self, _: object, labels: dict[str, str]) -> None:
        self.labels |= labels


def written(home: Path, epsilon: str) -> Path:
    path = home / "fair.yaml"
    path.write_text(FAIR.format(execution="", epsilon=epsilon))
    return path


@pytest.mark.parametrize("by_schedule", [True, False])
def test_a_retry_keeps_the_name_of_the_first_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_schedule: bool
) -> None:
    """Started by a schedule or by hand: neither an edited configuration nor a changed schedule makes a second release."""
    server = Server(monkeypatch, deployment_id=uuid.uuid4(), auto_scheduled=by_schedule)
    first = run_name(written(tmp_path, "1"), None)
    assert (first == "fair-2026-11-21") is by_schedule
    # as `plan --schedule` says
    assert Schedule("30 0 * * *", "Europe/Oslo").run_name("fair", DUE) == "fair-2026-11-21"
    assert server.labels["marginweave.run"] == first
    server.zones = ["America/New_York"]
    assert run_name(written(tmp_path, "2"), None) == first
    assert run_name(written(tmp_path, "2"), "typed") == "typed"
    assert server.labels["marginweave.run"] == first


def test_without_a_deployment_the_name_is_that_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(monkeypatch)
    first = run_name(written(tmp_path, "1"), None)
    assert run_name(written(tmp_path, "2"), None) != first
    assert "marginweave.run" not in server.labels


def test_two_deployments_of_a_dataset_do_not_share_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Due in the same minute, each release is named by its deployment; a name that says the dataset says it once."""
    own, other, path = uuid.uuid4(), uuid.uuid4(), written(tmp_path, "1")
    names = set()
    for deployment in (own, other):
        server = Server(monkeypatch, deployment_id=deployment, auto_scheduled=True)
        server.deployments = [
            SimpleNamespace(id=own, name="fair-nightly"),
            SimpleNamespace(id=other, name="for the ministry"),
        ]
        names.add(run_name(path, None))
    assert names == {"fair-nightly-2026-11-21", "fair-for-the-ministry-2026-11-21"}


@pytest.mark.parametrize(
    "names", [("nightly", "for the ministry"), ("fair nightly", "fair-nightly")]
)
def test_names_of_deployments_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """Also where they differ in what no run may be called by."""
    ids, path = (uuid.uuid4(), uuid.uuid4()), written(tmp_path, "1")
    found = set()
    for deployment in ids:
        server = Server(monkeypatch, deployment_id=deployment, auto_scheduled=True)
        server.deployments = [
            SimpleNamespace(id=i, name=name) for i, name in zip(ids, names, strict=True)
        ]
        found.add(run_name(path, None))
    assert len(found) == 2


def test_the_same_clock_in_two_time_zones_is_two_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, found = written(tmp_path, "1"), set()
    for hour in (23, 5):  # 00:30 in Oslo on the 21st, and in New York
        due = datetime(2026, 11, 20 + (hour < 12), hour, 30, tzinfo=UTC)
        server = Server(
            monkeypatch, deployment_id=uuid.uuid4(), auto_scheduled=True, expected_start_time=due
        )
        server.zones = ["Europe/Oslo", "America/New_York"]
        found.add(run_name(path, None))
    assert found == {"fair-2026-11-20-2330", "fair-2026-11-21-0530"}
