"""A test alert: sent once, and what happened to it at each automation that waits for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from marginweave.base.errors import InputError, StageError
from marginweave.flows.prefect import alerts
from marginweave.flows.prefect.alerts import send_test_alert
from marginweave.flows.prefect.records import ReleaseEvent

URL = "http://127.0.0.1:4200/api"


def automation(name: str, *expected: str, enabled: bool = True) -> Any:
    trigger = SimpleNamespace(expect=set(expected))
    return SimpleNamespace(id=uuid.uuid4(), name=name, enabled=enabled, trigger=trigger)


class Server:
    """A Prefect server with automations, of which those in `endings` act on an alert."""

    def __init__(self, automations: list[Any], endings: dict[str, str]) -> None:
        self.automations = automations
        self.endings = endings
        self.sent: list[str] = []

    def read_automations(self) -> list[Any]:
        return self.automations

    def request(self, method: str, path: str, json: list[dict[str, Any]]) -> None:
        assert (method, path) == ("POST", "/events")
        self.sent += [event["event"] for event in json]

    def read_events(self, wanted: Any, limit: int) -> Any:
        assert limit <= 50  # Prefect refuses more
        assert self.sent
        events = [
            SimpleNamespace(
                resource=SimpleNamespace(id=f"prefect.automation.{one.id}"),
                event=f"prefect.automation.action.{self.endings[one.name]}",
            )
            for one in self.automations
            if one.name in self.endings
        ]
        assert {one.resource.id for one in events} <= {*wanted.any_resource.id}
        return SimpleNamespace(events=events)


def send(monkeypatch: pytest.MonkeyPatch, server: Any) -> list[str]:
    @contextmanager
    def client(**_: object) -> Iterator[Any]:
        yield server

    monkeypatch.setattr(alerts, "get_client", client)
    return [str(outcome) for outcome in send_test_alert(URL, patience=0.1)]


def test_each_automation_says_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    test = ReleaseEvent.TEST.value
    server = Server(
        [
            automation("webhook", test),
            automation("mail", test),
            automation("slow", test),
            automation("off", test, enabled=False),
            automation("late releases", "prefect.flow-run.Late"),
        ],
        {"webhook": "executed", "mail": "failed"},
    )
    assert send(monkeypatch, server) == [
        "webhook: delivered",
        "mail: not delivered; the server's events say why",
        "slow: no answer in time",
    ]
    assert server.sent == [test]


def test_without_an_automation_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server([automation("late releases", "prefect.flow-run.Late")], {})
    with pytest.raises(InputError, match=r"no automation .* deployments/automations\.py"):
        send(monkeypatch, server)
    assert server.sent == []


def test_a_server_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def read_automations(self) -> list[Any]:
            raise httpx.ConnectError("refused")

    with pytest.raises(StageError, match=f"no Prefect server answers at {URL}"):
        send(monkeypatch, Away())
