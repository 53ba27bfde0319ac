"""Runs whose noise is the same whatever else differs, and what a release tells of its draws."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

from marginweave.mechanisms import randomness
from marginweave.mechanisms.randomness import DrawBits


def _bits(*, seed: bytes, context: tuple[str | int, ...], tainted: bool) -> DrawBits:
    """Noise that is a function of the number of its draw alone."""
    return DrawBits(seed=bytes(len(seed)), context=context[1:2], tainted=tainted)


@contextmanager
def fixed_noise() -> Iterator[None]:
    with mock.patch.object(randomness, "DrawBits", _bits), mock.patch("secrets.token_bytes", bytes):
        yield


def drawn_facts(place: Path, method: str) -> dict[str, Any]:
    """What a release tells of its draws: parameters, noisy counts, and the number of records."""
    statement = json.loads((place / "privacy.json").read_text())
    told = {
        key: statement.get(key)
        for key in ("mechanisms", "noise", "marginals", "domain", "guarantee")
    }
    whole = pq.read_table(place / "aggregates.parquet").slice(0, 1).to_pylist()[0]
    assert whole["length"] == 0
    told["records"] = {key: whole[key] for key in ("count", "noise_sd", "low", "high")}
    if method in {"marginals", "rounds"}:
        told["cells"] = pq.read_table(place / "measurements.parquet").to_pydict()
    else:
        with (place / "aggregates.csv").open() as lines:
            told["counts"] = [
                {k: v for k, v in row.items() if k not in ("adjusted", "note")}
                for row in csv.DictReader(lines)
            ]
    return told
