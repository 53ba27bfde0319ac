"""The tables of most system tests: one of people and one of their visits, each with its configuration, and a frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from tests.support.configurations import quick, raw


def people(place: Path, rows: int = 400, **changes: object) -> Path:
    """A configuration and its table in `place`; with fewer rows a length can be left without candidates, and cost less.

    Records are of the usual method, but for a model that is fitted in no time.
    """
    generator = np.random.default_rng(5)
    lines = ["sex,region,age,grade"]
    for _ in range(rows):
        sex, region = generator.choice(["f", "m"]), generator.choice(["north", "south", "west"])
        lines.append(f"{sex},{region},{generator.integers(0, 100)},{generator.integers(1, 8)}")
    (place / "people.csv").write_text("\n".join(lines) + "\n")
    path = place / "people.yaml"
    path.write_text(yaml.safe_dump(quick(raw(**changes)), sort_keys=False))
    return path


def visits(place: Path, rows: int = 900, **changes: Any) -> Path:
    """A table of visits of 300 people, some of them unnamed, and a configuration."""
    generator = np.random.default_rng(7)
    lines = ["person,sex,region,age,grade,town"]
    for _ in range(rows):
        person = generator.integers(0, 300)
        name = "" if person % 50 == 0 else f"person-{person}"
        sex, region = "fm"[person % 2], ["north", "south", "west"][person % 3]
        lines.append(
            f"{name},{sex},{region},{20 + person % 60},{generator.integers(1, 8)},T{person % 4}"
        )
    (place / "people.csv").write_text("\n".join(lines) + "\n")
    path = place / "people.yaml"
    path.write_text(yaml.safe_dump(quick(raw(**changes)), sort_keys=False))
    return path


def people_frame(rows: int = 200) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "grade": [i % 7 + 1 for i in range(rows)],
            "sex": ["f", "m"] * (rows // 2),
            "region": pd.Categorical((["north", "south", "west", None, "north"] * rows)[:rows]),
            "age": [float(i % 90) for i in range(rows)],
            "ignored": range(rows),
        }
    )
