"""Ours against pac-synth, which runs SDS's own engine: the same file, one after the other."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy.environments import environment
from benchmarks.scale.figures import Figure, figure
from benchmarks.scale.tables import adult, seeded

NAME = "pac-synth"
ROWS, MOST = (10_000, 50_000), 50_000  # its memory grows with the rows: 1.7 GB at 50,000
REPOSITORY = Path(__file__).resolve().parents[2]
PEER = Path(__file__).with_name("peer.py")


def compared(rows: tuple[int, ...] | None, folder: Path) -> Iterator[Figure]:
    """What both take at `rows`, or at 10,000 and 50,000; a figure that says so where pac-synth cannot be installed."""
    python, table = environment(NAME, folder), adult(perturbed=0.0)
    for number in rows or ROWS:
        if number > MOST:
            continue
        columns = len(table.labels)
        if python is None:
            yield figure(
                NAME, number, columns, 3, ended=f"pip cannot install {NAME}: is there a network?"
            )
            continue
        source = folder / f"bootstrap-{number}.csv"
        configuration = source.with_suffix(".yaml")
        table.write_csv(source, number)
        configuration.write_text(
            json.dumps(table.configuration(source, number, seeded(3))), encoding="utf-8"
        )
        delta = 1 / (number * math.log(number))
        ours = _run([sys.executable, "-m", "benchmarks.scale.ours", source, configuration])
        theirs = _run([python, PEER, source, repr(delta)])
        yield figure(NAME, number, columns, 3, ours=ours, theirs=theirs)


def _run(command: list[str | Path]) -> dict[str, Any]:
    done = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, env=os.environ, text=True, check=True
    )
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts | {
        "cpu": facts["aggregate"] + facts["synthesize"],
        "beyond": facts["peak"] - facts["imports"],
    }
