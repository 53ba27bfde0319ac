"""pac-synth on a table: python pac_synth.py TASK.json, in an environment that holds pac-synth and nothing of this project.

Its parameters are those it comes with, but for what the task names. Every value is given a letter in front, since "0" means
to pac-synth what an empty text does: no attribute.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pacsynth  # pyright: ignore[reportMissingImports] - in another environment


def main() -> None:
    """Read the table, write the synthetic one."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with Path(task["table"]).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    pacsynth.set_number_of_threads(task["threads"])
    builder = (
        pacsynth.DpAggregateSeededParametersBuilder().epsilon(task["epsilon"]).delta(task["delta"])
    )
    synthesizer = pacsynth.DpAggregateSeededSynthesizer(
        builder.reporting_length(task["reporting_length"]).build()
    )
    synthesizer.fit(
        pacsynth.Dataset([header, *([value and f"v{value}" for value in row] for row in rows)])
    )
    named, *made = synthesizer.sample(task["records"])
    order = [named.index(name) for name in header]
    with Path(task["output"]).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([row[i][1:] for i in order] for row in made)])


if __name__ == "__main__":
    main()
