"""Lines that Prefect logs while a session lasts are in its file alone."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker

from marginweave.flows.prefect.session import log_to


@pytest.mark.parametrize(
    "name", ["prefect.flow_runs", EventsWorker.__name__, APILogWorker.__name__]
)
def test_no_line_of_prefect_is_on_the_terminal(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not those of its workers either, which say how many items are left when a run is stopped on a busy machine."""
    place = tmp_path / "prefect.log"
    with log_to(place):
        logging.getLogger(name).warning("5 items remaining")
    assert "5 items remaining" in place.read_text()
    assert capfd.readouterr().err == ""
