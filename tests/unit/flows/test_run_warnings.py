"""What `run` says at a terminal before anything is charged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from marginweave.flows.check import table
from marginweave.flows.cli import run
from marginweave.runs.request import Request
from tests.support.configurations import configuration


@pytest.mark.parametrize(
    ("rows", "told"), [(None, ()), (12_000, ("is large for 12,000 rows", "delta: 7e-07"))]
)
def test_a_large_delta_is_told_before_the_charge(
    rows: int | None,
    told: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside ids that repeat, which are another warning."""
    monkeypatch.setattr(table, "id_warnings", lambda _: ["ids repeat"])
    request = cast(
        "Any",
        SimpleNamespace(
            configuration=configuration(rows=rows), path=SimpleNamespace(name="a.yaml")
        ),
    )
    run._warn(cast("Request", request))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "ids repeat. See marginweave check a.yaml"
    assert len(lines) == 1 + len(told)
    assert all(text in line for text, line in zip(told, lines, strict=False))
