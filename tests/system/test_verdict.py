"""What a release is good for is said everywhere that somebody looks, and a table of noise is not published by mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.configurations import quick, raw

pytestmark = pytest.mark.system
COLUMNS = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "region": {"type": "category", "values": list("abcdefg")},
    "grade": {"type": "category", "values": [1, 2, 3, 4, 5]},
}

LARGE: dict[str, Any] = {
    "region": {"type": "category", "values": list("abcdefghijklmnopqrst")},
    "grade": {"type": "category", "values": list(range(1, 21))},
}


def write(place: Path, rows: int, columns: dict[str, Any] = COLUMNS) -> Path:
    rng = np.random.default_rng(11)
    lines = [
        f"{rng.choice(['f', 'm'])},{rng.choice(list('aaaaabcdefg'))},{rng.integers(1, 6)}"
        for _ in range(rows)
    ]
    (place / "t.csv").write_text("\n".join(["sex,region,grade", *lines]) + "\n")
    path = place / "t.yaml"
    marginals = {
        "aggregate": {"method": "marginals", "cliques": {"all": 2}},
        "synthesize": {"method": "gum"},
    }
    made = raw(columns=columns, source="t.csv", dataset="t", missing=[], **marginals)
    path.write_text(yaml.safe_dump(quick(made), sort_keys=False))
    return path


def test_a_table_of_69_rows_is_not_for_publication(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """At epsilon 1, over three columns and their pairs.

    A column of 20 values at so few rows is twice as noisy as "not for" asks: 69 more records would have to come out of the
    noise, whose deviation in the number of records is below 10.
    """
    cli = marginweave
    assert cli("ledger", "open", "t", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    path = write(tmp_path, 69, COLUMNS | LARGE)
    assert cli("check", path).returncode == 0
    done = cli("run", path, "--run", "first")
    assert done.returncode == 0, done.stderr
    release = cli.home / "runs" / "first" / "release"
    said = json.loads(done.stdout.splitlines()[-1])["verdict"]
    assert said["publication"] == "not for publication"
    assert json.loads((release / "privacy.json").read_text())["verdict"] == said
    found = json.loads((release / "evaluation.json").read_text())["verdict"]
    assert {key: found[key] for key in said} == said
    page = (release / "report.html").read_text()
    assert page.index("Verdict: not for publication") < page.index(
        "What you may conclude, and what not"
    )
    assert "Verdict: not for publication" in cli("evaluate", "first").stdout
    refused = cli("publish", "first", "--to", tmp_path / "out")
    assert (refused.returncode, (tmp_path / "out").exists()) == (2, False)
    sentence, *points = refused.stderr.splitlines()
    assert "run first is not for publication, for what its verdict says" in sentence
    assert sentence.endswith("add --even-so")
    assert [point.removeprefix("  - ") for point in points] == said["says"]
    assert cli("publish", "first", "--to", tmp_path / "out", "--even-so").returncode == 0


def test_a_column_that_nobody_read_is_doubted_where_nobody_watches(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """A code list of other codes: no cell is as declared, which every file of the release says, and the run does not stop.

    In a column that can be missing 44 % have decimal commas: that does not stop a run, and the count of the missing shows it.
    """
    cli = marginweave
    columns = {
        **COLUMNS,
        "region": {"type": "category", "values": [f"region {code}" for code in "abcdefg"]},
    }
    path = write(tmp_path, 6000, columns)
    content = yaml.safe_load(path.read_text().replace("epsilon: 1.0", "epsilon: 20.0"))
    content["columns"]["cost"] = {"type": "number", "bounds": [0, 90], "bins": 3, "missing": [""]}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    head, *rows = (tmp_path / "t.csv").read_text().splitlines()
    costs = ('"1,5"' if i % 25 < 11 else str(i % 90) for i in range(len(rows)))
    (tmp_path / "t.csv").write_text(
        "\n".join([f"{head},cost", *map(",".join, zip(rows, costs, strict=True))]) + "\n"
    )
    assert cli("ledger", "open", "t", "--epsilon", "20", "--delta", "1e-6").returncode == 0
    done = cli("run", path, "--run", "first", "--yes")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])["verdict"]
    assert any("cost is missing in at least 4" in line for line in said["says"])
    (told,) = (
        line for line in said["says"] if "of region were not among the declared values" in line
    )
    assert told.startswith("About 100 % (")
    assert said["publication"] == "not for publication"
    release = cli.home / "runs" / "first" / "release"
    pages = ("report.html", "explore.html", "evaluation.json", "privacy.json", "croissant.json")
    assert [
        name
        for name in pages
        if "of region were not among the declared values" not in (release / name).read_text()
    ] == []


def test_a_column_that_is_declared_to_be_mostly_empty_is_published(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """A cause of death, of which the register says that the living have none; and two columns that are even."""
    cli, rng = marginweave, np.random.default_rng(5)
    died = rng.choice(["", "", "", "", "", "", "", "cancer", "heart"], 5000)
    lines = [f"{rng.choice(['f', 'm'])},{rng.choice(list('nsw'))},{cause}" for cause in died]
    (tmp_path / "t.csv").write_text("\n".join(["sex,region,died", *lines]) + "\n")
    causes = {
        "type": "category",
        "values": ["cancer", "heart"],
        "missing": [""],
        "public": "register; empty: alive",
    }
    columns = {
        "sex": COLUMNS["sex"],
        "region": {"type": "category", "values": list("nsw")},
        "died": causes,
    }
    made = raw(columns=columns, source="t.csv", dataset="t", missing=[], rows=5000)
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(quick(made), sort_keys=False))
    assert cli("ledger", "open", "t", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    done = cli("run", path, "--run", "first")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])["verdict"]
    assert any("died is missing in at least 7" in line for line in said["says"])
    assert said["publication"] != "not for publication"
    copied = cli("publish", "first", "--to", tmp_path / "out")
    assert copied.returncode == 0, copied.stderr
