"""How a release that is finished already ends: as finished, whatever the ledger can say then."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import Flow

from marginweave.base.errors import BudgetError
from marginweave.flows.prefect import records as prefect_records
from marginweave.released.manifest import RunState
from marginweave.runs.preparation import internal_evaluation_due
from marginweave.runs.retention import list_runs
from tests.support.configurations import FAIR


class Gone:
    """A run whose ledger cannot be opened any more."""

    manifest = SimpleNamespace(release="one")

    @property
    def ledger(self) -> Any:
        raise BudgetError("the ledger cannot be used")


def test_a_finished_release_is_told_as_finished_where_the_ledger_has_gone_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, told = import_module("marginweave.flows.release"), []
    monkeypatch.setattr(prefect_records, "emit_event", lambda event, **_: told.append(event))
    # it would make this process one that cannot be traced
    monkeypatch.setattr(flow, "prepare_worker_process", lambda: None)
    monkeypatch.setattr(flow, "prepare_run", lambda _: (Gone(), RunState.FINISHED))
    monkeypatch.setattr(flow, "end_dead_attempts", lambda _: None)
    monkeypatch.setattr(flow, "compare_where_due", lambda *_: None)
    path = tmp_path / "fair.yaml"
    path.write_text(FAIR.format(execution="", epsilon="1"))
    state = flow.release.fn(str(path), run="fair", home=str(tmp_path))
    assert state.data == str(tmp_path / "runs" / "fair" / "release")
    assert told == ["marginweave.release.finished"]


def test_a_scheduled_run_over_the_same_table_ends_as_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is prepared: it has no manifest, and Prefect nothing but the place of the reason."""
    flow, told = import_module("marginweave.flows.release"), []
    monkeypatch.setattr(prefect_records, "emit_event", lambda event, **_: told.append(event))
    monkeypatch.setattr(flow, "prepare_worker_process", lambda: None)
    monkeypatch.setattr(flow, "unchanged_since", lambda _: "the-night-before")
    path = tmp_path / "fair.yaml"
    path.write_text(FAIR.format(execution="unchanged: skip", epsilon="1"))
    state = flow.release.fn(str(path), run="fair", home=str(tmp_path))
    reason = tmp_path / "runs" / "fair" / "internal" / "skipped.txt"
    assert "the-night-before" in reason.read_text()
    assert (state.name, state.data, told) == (
        "Skipped",
        str(reason),
        ["marginweave.release.skipped"],
    )
    assert "the-night-before" not in str(state.message)
    assert [run.state for run in list_runs(tmp_path)] == ["skipped"]


@pytest.mark.parametrize("waiting", [None, "another release"])
def test_an_internal_evaluation_waits_for_a_decision_on_the_same_people(
    tmp_path: Path, waiting: str | None
) -> None:
    reference: Any = SimpleNamespace(
        folder=SimpleNamespace(
            read_manifest=lambda: SimpleNamespace(state=RunState.FINISHED, dataset="people"),
            internal_evaluation=tmp_path / "evaluation.json",
            internal_report=tmp_path / "report.html",
        ),
        configuration=SimpleNamespace(evaluate=SimpleNamespace(internal=True)),
        ledger=SimpleNamespace(approvals=SimpleNamespace(awaited={"people": waiting}.get)),
    )
    assert internal_evaluation_due(reference) is (waiting is None)


def test_parameters_reach_prefect_as_they_would_without_us(tmp_path: Path) -> None:
    """A text, a number or nothing each: what Prefect makes of these, with all of FastAPI, is the same."""
    flow = import_module("marginweave.flows.release")
    given = {"configuration": str(tmp_path), "run": None, "warn_at": 0.8}
    assert set(given) <= set(flow.release.parameters.properties)
    assert flow.release.serialize_parameters(given) == Flow.serialize_parameters(
        flow.release, given
    )
    kinds = {
        kind["type"]
        for parameter in flow.release.parameters.properties.values()
        for kind in parameter.get("anyOf", [parameter])
    }
    assert kinds == {"string", "number", "null"}
