"""Releases with more combinations than are kept: a raised threshold, and cells that are not visited."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.configurations import raw
from tests.support.people_table import visits
from tests.support.release_checks import released

pytestmark = pytest.mark.system


def run(marginweave: CommandLine, path: Path) -> tuple[Path, dict[str, Any]]:
    opened = marginweave("ledger", "open", "people", "--epsilon", "9", "--delta", "1e-6")
    assert opened.returncode == 0, opened.stderr
    result = marginweave("run", path)
    assert result.returncode == 0, result.stderr
    return released(marginweave)


def lengths(folder: Path) -> Counter[int]:
    """How many combinations of each length are released."""
    return Counter(pq.read_table(folder / "aggregates.parquet")["length"].to_pylist())


def test_a_threshold_is_raised_until_what_is_kept_fits(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """30 of up to 101 pairs, and as many triples, are kept; statement and report say from what the threshold was raised."""
    settings = {"reporting_length": 3, "max_combinations": 30}
    folder, statement = run(marginweave, visits(tmp_path, aggregate=settings))
    for noise in statement["noise"][1:]:
        assert noise["raised_from"] == 1 < noise["threshold"] or noise["candidates"] <= 30
    assert statement["noise"][1]["raised_from"] == 1
    assert {row["state"] for row in statement["mechanisms"]} == {"drawn"}
    told = lengths(folder)
    assert 0 < told[2] <= 30
    assert told[3] <= 30
    report = (folder / "report.html").read_text()
    assert (
        "More than 30 combinations of 2 might have reached the threshold 1, or too many drawn"
        in report
    )


def test_pairs_of_large_domains_are_released_without_visiting_all(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Two columns of 5,000 values: 25 million candidates at most; frequent pairs are told, and no more than are kept."""
    size, rows = 5_000, 4_000
    generator = np.random.default_rng(3)
    lines = ["left,right"]
    for row in range(rows):
        left = row % 4 if row % 2 else int(generator.integers(0, size))
        lines.append(f"{left},{left}")
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    domain = {"type": "category", "values": list(range(size))}
    settings = {"reporting_length": 2, "max_combinations": 12_000}
    path = tmp_path / "people.yaml"
    changes: dict[str, Any] = {"columns": {"left": domain, "right": domain}, "aggregate": settings}
    path.write_text(
        yaml.safe_dump(
            raw(privacy__epsilon=4.0, synthesize={"records": 500}, **changes), sort_keys=False
        )
    )
    planned = marginweave("plan", path)
    assert "Combinations of 2: at most 25000000; about" in " ".join(planned.stdout.split())
    folder, statement = run(marginweave, path)
    (noise,) = statement["noise"][1:]
    assert noise["raised_from"] == 1 < noise["threshold"]
    table = pq.read_table(folder / "aggregates.parquet").to_pylist()
    pairs = {(row["value_1"], row["value_2"]): row["count"] for row in table if row["length"] == 2}
    assert 0 < len(pairs) <= 12_000
    assert all(pairs[str(v), str(v)] > 300 for v in (1, 3))


def test_too_many_values_are_refused_before_anything_is_drawn(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """17 values, of which every one may be released, where 16 are kept."""
    visits(tmp_path, aggregate={"max_combinations": 16})
    result = marginweave("run", tmp_path / "people.yaml")
    assert result.returncode == 2
    assert (
        "the columns have 17 values together, more than aggregate.max_combinations (16)"
        in result.stderr
    )
    assert "Traceback" not in result.stderr
