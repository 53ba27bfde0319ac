"""Two tables as a newcomer would release them: what `init` drafts, each question answered, is released and not misleading."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from pathlib import Path

import pytest
import yaml
from statsmodels.datasets import anes96

from marginweave.configuration.load import load_configuration
from marginweave.configuration.yaml_source import parse_yaml
from tests.support.command_line import CommandLine
from tests.support.configurations import quick
from tests.support.drafts import answered
from tests.support.samples import every

pytestmark = pytest.mark.system
Rows = list[list[str]]


def survey(place: Path) -> Rows:
    """944 answers of an election survey; the population of the place is as skewed as populations are."""
    with (Path(anes96.__file__).parent / "anes96.csv").open(newline="") as file:
        rows = [*csv.reader(file, delimiter="\t", quotechar="'")]
    place.write_text("\n".join(map(",".join, rows)) + "\n")
    return rows


def visits(place: Path) -> Rows:
    """6,000 visits as a German hospital has them: semicolons, decimal commas, days first, ICD codes, a number a row."""
    rng, rows = random.Random(5), [["Nr", "Geschlecht", "Diagnose", "Aufnahme", "Tage", "Kosten"]]
    for i in range(6000):
        diagnosis = rng.choices(["I10", "E11.9", "J45.0", "S72.0"], [4, 3, 2, 1])[0]
        day = f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.202{rng.randint(1, 4)}"
        stay, cost = (
            int(rng.expovariate(0.3)),
            f"{rng.lognormvariate(7, 0.8):.2f}".replace(".", ","),
        )
        rows.append([str(70001 + i), rng.choice("mmww"), diagnosis, day, str(stay), cost])
    place.write_text("\n".join(map(";".join, rows)) + "\n", encoding="utf-16")
    return rows


@pytest.mark.parametrize(
    ("table", "rows", "dropped", "doubted"),
    every(2, [(survey, "944", set(), {"popul"}), (visits, None, {"Nr"}, set())]),
    ids=["survey", "visits"],
)
def test_a_draft_that_is_answered_is_no_trap(
    marginweave: CommandLine, table: object, rows: str | None, dropped: set[str], doubted: set[str]
) -> None:
    """Every column is read, each is as near as the verdict says, and a mean that is not near has a doubt.

    The distance (TVD) of a column of K values is a sum of K terms of noise, beside the expected one; three times that and .05
    is beyond seven of their standard deviations, here.
    """
    cli, place = marginweave, marginweave.home / "t.yaml"
    read = table(cli.home / "t.csv")  # pyright: ignore[reportCallIssue]
    assert cli("init", "t.csv").returncode == 0
    text = answered(place.read_text(), '"the data guide"') + (f"rows: {rows}\n" if rows else "")
    place.write_text(yaml.safe_dump(quick(parse_yaml(text)), sort_keys=False))
    assert cli("check", "t.yaml").returncode == 0
    assert cli("ledger", "open", "t", "--for", "t.yaml").returncode == 0
    done = cli("run", "t.yaml", "--run", "r")
    assert done.returncode == 0, done.stderr
    release = cli.home / "runs" / "r" / "release"
    verdict = json.loads((release / "evaluation.json").read_text())["verdict"]
    columns = load_configuration(place).columns
    with (release / "synthetic.csv").open(newline="") as file:
        made = list(csv.DictReader(file))
    assert set(made[0]) == set(read[0]) - dropped
    errors = {tuple(row["attributes"]): row["error"] for row in verdict["sets"]}
    for j, name in enumerate(read[0]):
        if name in dropped:
            continue
        before, after = [row[j] for row in read[1:]], [row[name] for row in made]
        if columns[name].type == "category":
            one, other = Counter(before), Counter(after)
            tvd = sum(abs(one[v] / len(before) - other[v] / len(after)) for v in one | other) / 2
            assert tvd < 3 * errors[name,] + 0.05, name
        elif columns[name].type == "number":
            means = [
                sum(float(text.replace(",", ".")) for text in texts) / len(texts)
                for texts in (before, after)
            ]
            is_doubted = any(f"the mean of {name} (" in said for said in verdict["says"])
            assert is_doubted or abs(means[1] / means[0] - 1) < 0.3, name
            assert is_doubted is (name in doubted), name
