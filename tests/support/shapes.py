"""Releases of every kind of draw, small enough to be made in a second: what is killed, and what faults are injected into."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.configurations import PRIVATE
from tests.support.kills import Victim
from tests.support.people_table import people

SHAPES: dict[str, dict[str, Any]] = {
    "k-tuples": {"aggregate__reporting_length": 2, "columns__region": PRIVATE},
    "marginals": {"aggregate__method": "marginals", "columns__region": PRIVATE},
    "Laplace": {
        "privacy__delta": 0,
        "aggregate": {"method": "marginals", "cliques": {"all": 2}, "noise": "laplace"},
    },
    "rounds": {
        "aggregate__method": "marginals",
        "aggregate__cliques": {"adaptive": 2, "rounds": 3, "batch": 2},
    },
    "private bounds": {
        "aggregate__reporting_length": 2,
        "columns__region": PRIVATE,
        "columns__age": {"type": "number", "bounds": "private", "within": [0, 200], "bins": 4},
    },
}
NewVictim = Callable[..., Victim]


def victims(place: Path) -> NewVictim:
    """Makes victims in homes of their own: of k-tuples, whose private files are kept, but for what is changed."""
    numbers = itertools.count()

    def make(shape: str | None = None, **changes: object) -> Victim:
        home = place / f"home-{next(numbers)}"
        home.mkdir()
        usual = {"aggregate__reporting_length": 2} if shape is None else SHAPES[shape]
        settings = {**usual, "publish__keep_private": True, **changes}
        return Victim(
            home=home,
            config=people(home, 40, **settings),
            delta="0" if shape == "Laplace" else "1e-4",
        )

    return make


def configured_victims(place: Path, **settings: object) -> NewVictim:
    """A factory of runs that can be killed, with `settings` unless a run changes them."""
    numbers = itertools.count()

    def make(rows: int = 300, **changes: object) -> Victim:
        home = place / f"home-{next(numbers)}"
        home.mkdir()
        usual = {"privacy__epsilon": 4.0, "publish__keep_private": True, **settings}
        return Victim(home=home, config=people(home, rows, **{**usual, **changes}))

    return make
