"""The golden shapes: small releases that together pass every kind of draw and every method, and the table they are of."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from marginweave.accounting.accounts import Account
from marginweave.configuration.release import Configuration
from tests.support.configurations import quick, raw

_HIDDEN = {"type": "category", "domain": "private"}
_TUPLES = {"method": "k-tuples", "reporting_length": 2}
_MARGINALS = {"method": "marginals"}
SHAPES: dict[str, dict[str, Any]] = {
    "k-tuples": {"aggregate": _TUPLES, "columns__town": _HIDDEN},
    "aggregate-seeded": {
        "aggregate": {
            **_TUPLES,
            "reporting_length": 3,
            "sigma": "long",
            "thresholds": {"adaptive": {2: 0.1, 3: 1}},
        },
        "synthesize": {"method": "aggregate-seeded"},
        "privacy__unit": {"column": "person", "max_records": 3},
        "structure": {"forbidden": [{"sex": "f", "region": "west"}]},
    },
    "gum": {
        "aggregate": _TUPLES,
        "synthesize": {"method": "gum"},
        "privacy__neighbors": "replace-one",
    },
    "selected marginals": {
        "aggregate": _MARGINALS,
        "privacy__unit": {"column": "person", "join": True},
    },
    "all marginals": {
        "aggregate": {**_MARGINALS, "cliques": {"all": 2}},
        "columns__town": _HIDDEN,
        "synthesize__method": "gum",
    },
    "Laplace": {
        "aggregate": {**_MARGINALS, "cliques": {"all": 2}, "noise": "laplace"},
        "privacy__delta": 0,
    },
    "sets and rules": {
        "aggregate": {**_MARGINALS, "cliques": {"all": 2}},
        "columns__town": {"type": "set", "values": ["T0", "T1", "T2", "T3"], "max_values": 2},
        "structure": {
            "forbidden": [
                {"sex": "f", "region": ["south", "west"]},
                {"sex": "m", "region": ["north", "west"]},
            ]
        },
    },
    "rounds": {"aggregate": {**_MARGINALS, "cliques": {"adaptive": 2, "rounds": 3, "batch": 2}}},
    "private bounds": {
        "columns__age": {
            "type": "number",
            "bounds": "private",
            "within": [0, 200],
            "bins": 4,
            "decimals": 0,
        },
        "columns__sex": {
            "type": "category",
            "values": ["f", "m"],
            "impute": {"weights": {"f": 1, "m": 1}},
        },
    },
}


def write_people(place: Path, shape: str) -> Path:
    """Write the table and the configuration of `shape` into `place`, and return the configuration's path.

    The table has 400 visits of 150 people, some of whom have no name; some regions are missing or not declared.
    """
    generator = np.random.default_rng(11)
    lines = ["person,sex,region,age,grade,town"]
    for _ in range(400):
        person = generator.integers(0, 150)
        name = "" if person % 50 == 0 else f"p{person}"
        region = ["north", "south", "west", "", "moon"][
            generator.choice(5, p=[0.4, 0.3, 0.2, 0.05, 0.05])
        ]
        age = 20 + (7 * person) % 70 + generator.integers(0, 5)
        grade = generator.integers(1, 8)
        lines.append(f"{name},{'fm'[person % 2]},{region},{age},{grade},T{(person + grade) % 4}")
    (place / "people.csv").write_text("\n".join(lines) + "\n")
    path = place / "people.yaml"
    changes = {
        "privacy__epsilon": 8.0,
        "privacy__delta": 1e-5,
        "synthesize__seed": 4,
        **SHAPES[shape],
    }
    path.write_text(yaml.safe_dump(quick(raw(**changes)), sort_keys=False))
    return path


def account_of(configuration: Configuration) -> Account:
    """Return an account that holds the release of a shape twice over."""
    return Account(
        dataset="people",
        epsilon=Decimal(20),
        delta=Decimal(str(2 * configuration.privacy.delta)),
        unit=configuration.privacy.unit_key,
        neighbors=configuration.privacy.neighbors,
    )
