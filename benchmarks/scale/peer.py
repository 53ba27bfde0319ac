"""pac-synth on a CSV file: python peer.py FILE DELTA, in an environment that holds pac-synth and nothing of this project.

Prints one JSON line: CPU seconds of the table's conversion, of fit and of as many rows as the file has, and the megabytes
of the process after its imports and at most.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path


def memory(what: str, pid: int | str = "self") -> float:
    """Megabytes of a process by the kernel's book: `VmRSS` now, `VmHWM` at most so far; 0 of one that has ended."""
    try:
        lines = (
            Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        )
    except OSError:
        return 0.0
    return next(
        (int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(f"{what}:")), 0.0
    )


def main() -> None:
    """Measure and print."""
    from pacsynth import (  # pyright: ignore[reportMissingImports] - in another environment
        Dataset,
        DpAggregateSeededParametersBuilder,
        DpAggregateSeededSynthesizer,
    )

    imports = memory("VmRSS")
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    begun = time.process_time()
    dataset = Dataset(rows)
    converted = time.process_time()
    parameters = (
        DpAggregateSeededParametersBuilder()
        .reporting_length(3)
        .epsilon(4.0)
        .delta(float(sys.argv[2]))
        .build()
    )
    synthesizer = DpAggregateSeededSynthesizer(parameters)
    synthesizer.fit(dataset)
    fitted = time.process_time()
    made = synthesizer.sample(len(rows) - 1)
    sampled = time.process_time()
    facts = {
        "convert": converted - begun,
        "aggregate": fitted - converted,
        "synthesize": sampled - fitted,
    }
    facts |= {"records": len(made) - 1, "imports": imports, "peak": memory("VmHWM")}
    print(json.dumps(facts))  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    main()
