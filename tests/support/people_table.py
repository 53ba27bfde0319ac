"""The table of most system tests, with its configuration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
