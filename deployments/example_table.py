"""Write the table of `marginweave example`, which is made up: python deployments/example_table.py."""

from pathlib import Path

import numpy as np
import pandas as pd

PLACE = (
    Path(__file__).resolve().parents[1] / "src" / "marginweave" / "front" / "example" / "visits.csv"
)
ROWS = 5000


def visits() -> pd.DataFrame:
    """First visits to a clinic, one a patient: smoking falls with age, diagnoses and costs follow from both."""
    rng = np.random.default_rng(7)
    age = np.clip(np.round(rng.gamma(9, 5.2, ROWS)), 18, 99).astype(int)
    region = rng.choice(["north", "south", "west"], ROWS, p=[0.5, 0.3, 0.2])
    smokes = rng.random(ROWS) < 0.45 - age / 300
    lungs = 0.08 + 0.3 * smokes
    heart = 0.02 + 0.5 * np.clip((age - 40) / 60, 0, 1)
    chance = rng.random(ROWS)
    diagnosis = np.select(
        [chance < lungs, chance < lungs + heart, chance < lungs + heart + 0.25],
        ["lungs", "heart", "bones"],
        "other",
    )
    cost = rng.lognormal(5 + 0.5 * (diagnosis == "heart") + age / 150, 0.6)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], ROWS, p=[0.6, 0.4]),
            "region": region,
            "age": age,
            "smokes": np.where(smokes, "yes", "no"),
            "diagnosis": diagnosis,
            "cost": np.minimum(cost.round(), 5000).astype(int),
        }
    )


if __name__ == "__main__":
    visits().to_csv(PLACE, index=False)
