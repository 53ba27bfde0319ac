"""Releases that stay what they are, byte for byte, while the code is moved: under noise that a draw's number determines.

`python -m pytest tests/system/test_golden_releases.py -m "long or not long" --write-golden FOLDER` writes the digests anew, and
the files that they are of into the folder, to be compared. Versions, digests, names and moments are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml

from marginweave.schemas.ledger.accounts import Account
from marginweave.tasks.accounting.plan.resolve import parse_configuration
from marginweave.tasks.ledger import Ledger
from marginweave.tasks.mechanisms import randomness
from marginweave.tasks.mechanisms.laplace import DiscreteLaplace
from marginweave.tasks.mechanisms.randomness import DrawBits
from tests.support.configurations import quick, raw
from tests.support.plain_runs import run_plainly
from tests.support.release_checks import unpacked

pytestmark = [pytest.mark.system, pytest.mark.long]  # another processor may compute other last digits
GOLDEN = Path(__file__).parents[1] / "data" / "golden_releases.json"
HIDDEN = {"type": "category", "domain": "private"}
TUPLES = {"method": "k-tuples", "reporting_length": 2}
MARGINALS = {"method": "marginals"}
SHAPES: dict[str, dict[str, Any]] = {
    "k-tuples": {"aggregate": TUPLES, "columns__town": HIDDEN, "evaluate__paid": {"share": 0.1}},
    "aggregate-seeded": {
        "aggregate": {**TUPLES, "reporting_length": 3, "sigma": "long", "thresholds": "progressive"},
        "synthesize": {"method": "aggregate-seeded"},
        "privacy__unit": {"column": "person", "max_records": 3},
        "structure": {"forbidden": [{"sex": "f", "region": "west"}]},
    },
    "nothing made up": {"aggregate": {**TUPLES, "fabrication": "none"}, "privacy__accountant": "zcdp"},
    "gum": {"aggregate": TUPLES, "synthesize": {"method": "gum"}, "privacy__neighbors": "replace-one"},
    "selected marginals": {"aggregate": MARGINALS, "privacy__unit": {"column": "person", "join": True}},
    "all marginals": {
        "aggregate": {**MARGINALS, "cliques": {"all": 2}},
        "columns__town": HIDDEN,
        "privacy__accountant": "joint",
        "synthesize__method": "gum",
    },
    "Laplace": {"aggregate": {**MARGINALS, "cliques": {"all": 2}, "noise": "laplace"}, "privacy__delta": 0},
    "sets and groups": {
        "aggregate": {**MARGINALS, "cliques": {"all": 2}},
        "columns__town": {"type": "set", "values": ["T0", "T1", "T2", "T3"], "max_values": 2},
        "structure": {
            "grouped": [{"name": "who", "columns": ["sex", "region"], "combinations": [["f", "north"], ["m", "south"]]}]
        },
    },
    "rounds": {"aggregate": {**MARGINALS, "cliques": {"adaptive": 2, "rounds": 3, "batch": 2}}},
    "private bounds": {
        "columns__age": {"type": "number", "bounds": "private", "within": [0, 200], "bins": 4, "decimals": 0},
        "columns__sex": {"type": "category", "values": ["f", "m"], "impute": {"weights": {"f": 1, "m": 1}}},
    },
}  # fmt: skip
# What another commit, machine or moment makes another.
LONG = re.compile(rb"\b\d\.\d{7,}(?:e-?\d+)?\b")
CHANGING = re.compile(
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{64}\b|\b0\.\d\.\d\b"
    rb"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[0-9.,+:Z]*|\b2\d{3}-\d\d-\d\d\b|code [0-9a-f]{8,}"
)


def _bits(*, seed: bytes, context: tuple[str | int, ...], tainted: bool) -> DrawBits:
    """Noise that is a function of the number of its draw alone."""
    return DrawBits(seed=bytes(len(seed)), context=context[1:2], tainted=tainted)


def _laplace(_noise: DiscreteLaplace, sizes: list[int], _epsilons: Any) -> list[Any]:
    return [np.arange(size, dtype=np.int64) % 7 - 3 for size in sizes]


@contextmanager
def _known_secrets() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(randomness, "DrawBits", _bits))
        stack.enter_context(mock.patch.object(DiscreteLaplace, "presample", _laplace))
        stack.enter_context(mock.patch("secrets.token_bytes", bytes))
        yield


def _table(place: Path, **changes: Any) -> Path:
    """Visits of 150 people, some of whom are not named and some of whose values are missing or outside."""
    generator = np.random.default_rng(11)
    lines = ["person,sex,region,age,grade,town"]
    for _ in range(400):
        person = generator.integers(0, 150)
        name = "" if person % 50 == 0 else f"p{person}"
        region = ["north", "south", "west", "", "moon"][generator.choice(5, p=[0.4, 0.3, 0.2, 0.05, 0.05])]
        age, grade = 20 + (7 * person) % 70 + generator.integers(0, 5), generator.integers(1, 8)
        lines.append(f"{name},{'fm'[person % 2]},{region},{age},{grade},T{(person + grade) % 4}")
    (place / "people.csv").write_text("\n".join(lines) + "\n")
    path = place / "people.yaml"
    wide = {"privacy__epsilon": 8.0, "privacy__delta": 1e-5, "synthesize__seed": 4}
    path.write_text(yaml.safe_dump(quick(raw(**{**wide, **changes})), sort_keys=False))
    return path


def _released(home: Path, shape: str, patch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a release, without what changes."""
    place = home / "ledger" / "ledger.sqlite"
    patch.setenv("MARGINWEAVE_LEDGER", str(place))
    config = _table(home, **SHAPES[shape])
    asked = parse_configuration(yaml.safe_load(config.read_text()))
    account = Account(
        dataset="people",
        epsilon=Decimal(20),
        delta=Decimal(str(2 * asked.privacy.delta)),
        unit=asked.privacy.unit_key,
        neighbors=asked.privacy.neighbors,
    )
    Ledger.create(place).accounts.open(account, actor="steward")
    with _known_secrets():
        folder = run_plainly(home, config, "r") / "release"
    files = {path.name: path for path in folder.iterdir() if path.suffix != ".parquet"}
    bare = {
        name: unpacked(name, path.read_bytes()).replace(str(home).encode(), b"HOME") for name, path in files.items()
    }
    found = {name: CHANGING.sub(b"*", content) for name, content in bare.items()}
    return {**found, "evaluation.json": LONG.sub(_shorter, found["evaluation.json"])}


def _shorter(number: re.Match[bytes]) -> bytes:
    """What a fit says of itself is of 32 bits, and differs from one kind of processor to another."""
    return f"{float(number[0]):.4g}".encode()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_release_is_what_it_was(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """Every published file."""
    found = _released(tmp_path, shape, monkeypatch)
    assert {"aggregates.csv", "synthetic.csv", "privacy.json", "evaluation.json", "report.html"} <= found.keys()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(found.items())}
    kept = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if written := pytestconfig.getoption("write_golden"):
        place = Path(written) / shape
        place.mkdir(parents=True, exist_ok=True)
        for name, content in found.items():
            (place / name).write_bytes(content)
        GOLDEN.write_text(json.dumps({**kept, shape: digests}, indent=1, sort_keys=True) + "\n")
        return
    assert {name for name in digests if kept[shape].get(name) != digests[name]} == set()
    assert digests.keys() == kept[shape].keys()
