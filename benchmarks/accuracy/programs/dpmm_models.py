"""dpmm's MST, AIM or PrivBayes on a table: python dpmm_models.py TASK.json, where dpmm is and nothing of this project.

Every column is public codes, so that its binning, which takes budget of its own, is switched off; the rest is as it comes.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline  # pyright: ignore[reportMissingImports] - in another environment

MODELS = {"MST": MSTPipeline, "AIM": AIMPipeline, "PrivBayes": PrivBayesPipeline}


def main() -> None:
    """Read the table, write the synthetic one."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with Path(task["table"]).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    domain = task["domain"]
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    numbers = {name: {value: code for code, value in enumerate(domain[name])} for name in header}
    frame = pd.DataFrame(
        {name: [numbers[name][value] for value in columns[name]] for name in header}
    )
    model = MODELS[task["model"]](
        epsilon=task["epsilon"], delta=task["delta"], disable_processing=True, n_jobs=1
    )
    model.fit(frame, domain={name: len(domain[name]) for name in header})
    made = model.generate(n_records=task["records"])
    with Path(task["output"]).open("w", encoding="utf-8", newline="") as file:
        texts = [[domain[name][int(code)] for code in made[name]] for name in header]
        csv.writer(file).writerows([header, *zip(*texts, strict=True)])


if __name__ == "__main__":
    main()
