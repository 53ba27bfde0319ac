"""NAPSU-MQ of twinify on samples of three columns: python napsu_mq.py TASK.json, where twinify is and nothing of this project.

As its authors have it (Raisa, Jalko, Kaski and Honkela 2023, section 5.1): the table of all columns is measured, 100 tables
of synthetic rows are drawn from the posterior, and a logistic regression of each is combined by Rubin's rules.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import d3p.random  # pyright: ignore[reportMissingImports] - in another environment
import numpy as np
import pandas as pd
from twinify.napsu_mq.napsu_mq import NapsuMQModel  # pyright: ignore[reportMissingImports]
from twinify.napsu_mq.rubins_rules import non_negative_conf_int  # pyright: ignore[reportMissingImports]


def logistic(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their variances of the last column on an intercept and the others, by Newton's method."""
    values = table.to_numpy().astype(float)
    design, target = np.column_stack([np.ones(len(values)), values[:, :-1]]), values[:, -1]
    found, curvature = np.zeros(design.shape[1]), np.eye(design.shape[1])
    for _ in range(25):
        share = 1 / (1 + np.exp(-design @ found))
        curvature = (design * (share * (1 - share))[:, None]).T @ design
        found = found + np.linalg.solve(curvature, design.T @ (target - share))
    return found, np.diag(np.linalg.inv(curvature))


def main() -> None:
    """Write the interval of each coefficient, and the seconds, of every sample."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    names, found = task["columns"], []
    for number, rows in enumerate(task["samples"]):
        began = time.process_time()
        frame = pd.DataFrame(rows, columns=names).astype("category")
        fitting, drawing = d3p.random.split(d3p.random.PRNGKey(number), 2)
        model = NapsuMQModel(column_feature_set=[])
        result = model.fit(
            frame, fitting, task["epsilon"], task["delta"], query_sets=[tuple(names)]
        )
        tables = result.generate(drawing, task["tables"], len(rows), single_dataframe=False)
        fits = np.array([logistic(table) for table in tables])
        ends = [
            non_negative_conf_int(q, u, task["level"], len(rows), len(rows))
            for q, u in fits.transpose(2, 1, 0)
        ]
        found.append(
            {"ends": [list(map(float, end)) for end in ends], "cpu": time.process_time() - began}
        )
        Path(task["output"]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
