"""docs/soak.md: what the soak has found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.places import REPOSITORY

HEAD = """# Soak: releases for hours while things fail

For operators: do scheduled releases survive faults, and what grows? Written by `python -m benchmarks.soak --write`. Five
datasets, each released on a schedule, by one worker of three processes; Prefect and the ledger on PostgreSQL; two cores.
Processes that end are started again after three seconds, as systemd does. Faults come at random moments, every kind as often
as the others, and end after the first part of the time. Prefect keeps flow runs and events for an hour. Afterwards the
ledger is verified, and every release and folder is looked at; flow runs, every ten minutes while Prefect has them.

| | |
| --- | --- |
"""
GROWTH = """
## Growth

Least squares over the samples of every {seconds} seconds of the quiet part, which begins five minutes after the last fault and
lasted {minutes:.0f} minutes: megabytes an hour, with twice the standard error that blocks of a tenth of the time give. The
ledger, the runs, one line of log for each step, and Prefect's database until it has held an hour of releases grow with what
they keep; what else grows would be a leak.

| megabytes | at the beginning | at the end | slope, MB an hour |
| --- | --- | --- | --- |
"""


def written(place: Path) -> str:
    """Write the page; its path."""
    path = REPOSITORY / "docs" / "soak.md"
    path.write_text(
        page([json.loads(line) for line in (place / "figures.jsonl").read_text().splitlines()])
    )
    return str(path)


def page(lines: list[dict[str, Any]]) -> str:
    """The page of what was noted."""
    samples = [line for line in lines if line["kind"] == "sample"]
    (end,) = [line for line in lines if line["kind"] == "end"][-1:]
    faults = Counter(line["fault"] for line in lines if line["kind"] == "fault")
    hours = _hours(samples)
    facts = {
        "scheduled releases": end["releases"],
        "hours": f"{hours[-1]:.1f}",
        "faults": sum(faults.values()),
        "flow runs looked at, before Prefect forgot them": end["flow_runs"],
        "releases that needed more than one attempt": end["resumed"],
        "most attempts of one": end["most attempts"],
        "not finished, charged twice, or begun again after their end": end["wrong"],
    }
    kinds = "".join(f"| {kind} | {number} |\n" for kind, number in sorted(faults.items()))
    names = [name for name in samples[0] if name not in ("time", "kind", "started", "ended")]
    quiet = np.array([sample["time"] for sample in samples]) > _last_fault(lines) + 300
    growth = "".join(
        _growth(name, hours[quiet], np.array([one[name] for one in samples])[quiet])
        for name in names
    )
    head = GROWTH.format(seconds=20, minutes=60 * float(np.ptp(hours[quiet])))
    table = "".join(f"| {name} | {value} |\n" for name, value in facts.items())
    return f"{HEAD}{table}\n| fault | times |\n| --- | --- |\n{kinds}{head}{growth}"


def _last_fault(lines: list[dict[str, Any]]) -> float:
    return max((float(line["time"]) for line in lines if line["kind"] == "fault"), default=0.0)


def _hours(samples: list[dict[str, Any]]) -> np.ndarray:
    """Hours of each sample, without the gaps between two parts of a soak that was stopped."""
    times = np.array([sample["time"] for sample in samples])
    steps = np.diff(times, prepend=times[0])
    return np.cumsum(np.where(steps > 600, 0, steps)) / 3600


def _growth(name: str, hours: np.ndarray, values: np.ndarray) -> str:
    kept = values > 0
    if kept.sum() < 20:
        return f"| {name} | {values[0]:.1f} | {values[-1]:.1f} | |\n"
    slopes = [
        np.polyfit(hours[part], values[part], 1)[0] for part in _without(np.flatnonzero(kept), 10)
    ]
    slope = np.polyfit(hours[kept], values[kept], 1)[0]
    # jackknife over blocks
    error = float(np.sqrt(9 / 10 * np.sum((np.array(slopes) - np.mean(slopes)) ** 2)))
    return f"| {name} | {values[kept][0]:.1f} | {values[kept][-1]:.1f} | {slope:+.1f} ± {2 * error:.1f} |\n"


def _without(kept: np.ndarray, blocks: int) -> list[np.ndarray]:
    return [np.setdiff1d(kept, block) for block in np.array_split(kept, blocks)]
