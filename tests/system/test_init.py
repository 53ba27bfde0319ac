"""`marginweave init` as a command: a private file, a silent terminal, and a draft that nothing runs until it is confirmed."""

from __future__ import annotations

import csv
import json
import random
import re
import stat
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command_line import CommandLine
from tests.support.drafts import answered

pytestmark = pytest.mark.system
MARKER = "xq7marker"


@pytest.fixture
def table(marginweave: CommandLine) -> Path:
    """A table whose only tell-tale values are seen once, in a short list, a long one, a number and an ignored column."""
    lines = [f"sex,town,income,{MARKER}name,"]
    for i in range(7200):  # each town is in 120 rows: a private domain releases it
        lines.append(
            f"{MARKER if i == 7 else 'f'},{MARKER}{i % 60},{7717 if i == 9 else i % 120},{i // 120 % 2},{i}"
        )
    path = marginweave.home / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_draft_is_private_silent_and_never_overwritten(
    marginweave: CommandLine, table: Path
) -> None:
    result = marginweave("init", "visits.csv")
    assert result.returncode == 0, result.stderr
    place = marginweave.home / "visits.yaml"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert MARKER in place.read_text()
    steps = [
        *(
            "answer the 5 questions",
            "marginweave check visits.yaml",
            "marginweave ledger open visits --for visits.yaml",
        ),
        *("marginweave plan visits.yaml", "marginweave run visits.yaml"),
    ]
    assert re.findall(r"^  \d\. (.*?)(?: marked.*|   #.*)?$", result.stdout, re.MULTILINE) == steps
    for word in (MARKER, "7717", "8000", "sex", "town"):
        assert word not in result.stdout + result.stderr
    before = place.read_text()
    again = marginweave("init", "visits.csv")
    assert again.returncode == 2
    assert "visits.yaml exists already and is not overwritten" in again.stderr
    assert place.read_text() == before
    assert marginweave("init", "visits.csv", "--output", "other.yaml").returncode == 0


def test_nothing_runs_a_draft_before_each_line_is_confirmed_or_private(
    marginweave: CommandLine, table: Path
) -> None:
    """Line by line: the last one that waits is refused like the first; then the plan is made, without reading the data."""
    assert marginweave("init", "visits.csv").returncode == 0
    place = marginweave.home / "visits.yaml"
    lines = place.read_text().splitlines(keepends=True)
    waiting = [
        i for i, line in enumerate(lines) if "confirm: true" in line and not line.startswith("#")
    ]
    assert len(waiting) >= 5
    for i in waiting:
        for command in ("run", "plan"):
            refused = marginweave(command, "visits.yaml")
            assert refused.returncode == 2
            assert "waits for confirmation" in refused.stderr
            assert MARKER not in refused.stderr.replace(f"{MARKER}name", "")
        lines[i] = answered(lines[i], '"questionnaire, page 3"')
        place.write_text("".join(lines))
    planned = marginweave("plan", "visits.yaml")
    assert planned.returncode == 0, planned.stderr


def test_what_is_public_is_printed_as_an_assumption(marginweave: CommandLine, table: Path) -> None:
    cli = marginweave
    assert cli("init", "visits.csv").returncode == 0
    place = cli.home / "visits.yaml"
    lines = [
        "  sex: {type: category, domain: private, confirm: true}"
        if line.startswith("  sex:")
        else line
        for line in answered(place.read_text(), '"questionnaire, page 3"').splitlines()
    ]
    place.write_text("\n".join(lines) + "\n")
    assert cli("ledger", "open", "visits", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    result = cli("run", "visits.yaml", "--run", "first")
    assert result.returncode == 0, result.stderr
    statement = json.loads((cli.home / "runs" / "first" / "release" / "privacy.json").read_text())
    said = (
        "What the configuration says of column 'income' is public knowledge: questionnaire, page 3."
    )
    assert said in statement["assumptions"]
    kept = "Kind and form of column 'sex' were drafted from the data and are taken for public knowledge."
    assert kept in statement["assumptions"]
    assert not any(
        "'town'" in line and "questionnaire" in line for line in statement["assumptions"]
    )


def related(rows: int) -> list[dict[str, str]]:
    """Trips: times in order, a total of three parts, and packs of smokers alone; a few rows are wrong.

    That a zone lies in a borough is no rule of the draft: it would list the zones, whose domain is private.
    """
    rng = random.Random(26)
    trips: list[dict[str, str]] = []
    for row in range(rows):
        # Four zones are frequent enough to be released.
        zone = rng.choice([3, 30, 50, 70]) if row % 3 else rng.randrange(80)
        start = datetime(2024, 3, 1) + timedelta(seconds=rng.randrange(86400 * 28))  # noqa: DTZ001
        end = start + timedelta(seconds=rng.randrange(60, 7200))
        parts = [
            rng.randrange(250, 9000),
            rng.choice([0, rng.randrange(900)]),
            rng.choice([0, 0, rng.randrange(100, 2000)]),
        ]
        smoker = rng.random() < 0.3
        trips.append(
            {
                "pickup": str(end if row % 300 == 0 else start),
                "dropoff": str(start if row % 300 == 0 else end),
                **dict(
                    zip(
                        ("fare", "tip", "tolls"),
                        (f"{cents / 100:.2f}" for cents in parts),
                        strict=True,
                    )
                ),
                "total": f"{sum(parts) / 100:.2f}",
                "zone": f"z{zone:02d}",
                "borough": f"b{zone // 20}",
                "smoker": "yes" if smoker else "no",
                "packs": str(rng.randrange(1, 30)) if smoker else "",
            }
        )
    return trips


def broken_by(trip: dict[str, str]) -> set[str]:
    """The relations that a row breaks."""
    cents = {name: round(100 * float(trip[name])) for name in ("fare", "tip", "tolls", "total")}
    conditions = {
        "times": trip["pickup"].replace("T", " ") > trip["dropoff"].replace("T", " "),
        "sum": cents["fare"] + cents["tip"] + cents["tolls"] != cents["total"],
        "packs": (trip["smoker"] == "yes") != bool(trip["packs"]),
    }
    return {name for name, is_broken in conditions.items() if is_broken}


def test_no_relation_that_was_found_is_broken_in_the_records(marginweave: CommandLine) -> None:
    """Every question answered yes, at epsilon 1; `init` says how many rows break a relation, and the draft does not."""
    cli = marginweave
    trips = related(3000)
    with (cli.home / "trips.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, trips[0])
        writer.writeheader()
        writer.writerows(trips)
    drafted = cli("init", "trips.csv")
    assert drafted.returncode == 0, drafted.stderr
    assert "`dropoff` is never before `pickup`: 10 of 3,000 rows break it" in drafted.stdout
    place = cli.home / "trips.yaml"
    draft = place.read_text()
    assert (
        drafted.stdout.count("rows break it")
        == draft.partition("structure:")[2].count("confirm: true")
        == 3
    )
    assert "rows break it" not in draft
    place.write_text(answered(draft, "the tariff"))
    assert cli("check", "trips.yaml").returncode == 0
    assert cli("ledger", "open", "trips", "--for", "trips.yaml").returncode == 0
    done = cli("run", "trips.yaml", "--run", "first")
    assert done.returncode == 0, done.stderr
    with (cli.home / "runs" / "first" / "release" / "synthetic.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    assert len(records) > 2000
    broken = Counter(name for record in records for name in broken_by(record))
    assert all(count <= 0.01 * len(records) for count in broken.values()), broken


def test_a_file_in_another_form(marginweave: CommandLine) -> None:
    """Encoding and delimiter are recognised unless they are given, and the draft says them."""
    (marginweave.home / "t.csv").write_bytes("stadt;name\nKöln;a\nBonn;b\n".encode("latin-1"))
    refused = marginweave("init", "t.csv", "--encoding", "utf-8")
    assert refused.returncode == 2
    assert "is not written in utf-8" in refused.stderr
    for arguments, encoding in (
        ((), "windows-1252"),
        (("--encoding", "latin-1", "--delimiter", "semicolon"), "latin-1"),
    ):
        result = marginweave("init", "t.csv", "--output", f"{encoding}.yaml", *arguments)
        assert result.returncode == 0, result.stderr
        text = (marginweave.home / f"{encoding}.yaml").read_text()
        assert f"source: {{file: t.csv, encoding: {encoding}, delimiter: semicolon}}" in text
        assert "Köln" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["init"], "FILE"),
        (["init", "absent.csv"], "does not exist"),
        (
            ["init", "visits.csv", "--encoding", "utf-7"],
            "--encoding must be utf-8, utf-16, latin-1 or windows-1252",
        ),
        (
            ["init", "visits.csv", "--delimiter", ":"],
            "--delimiter must be comma, semicolon, tab or pipe",
        ),
        (["init", "visits.csv", "--output", "no/where.yaml"], "no is not a folder"),
        (["init", "visits.csv", "./visits.csv"], "a file is named twice"),
        (["init", "visits.csv", "absent.csv"], "source (absent.csv) does not exist"),
        (["init", "visits.csv", "b.csv", "--dictionary", "c.csv"], "--dictionary describes the"),
    ],
)
def test_a_slip_in_the_command(
    marginweave: CommandLine, table: Path, arguments: list[str], words: str
) -> None:
    result = marginweave(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_column_without_text_stops_neither_init_nor_check(marginweave: CommandLine) -> None:
    """A duration of Parquet is drafted as an identifier, which no command reads."""
    waits = [timedelta(minutes=i) for i in range(60)]
    table = pa.table({"sex": ["f", "m"] * 30, "wait": pa.array(waits, pa.duration("us"))})
    pq.write_table(table, marginweave.home / "t.parquet")
    assert marginweave("init", "t.parquet").returncode == 0
    place = marginweave.home / "t.yaml"
    place.write_text(answered(place.read_text(), "the questionnaire"))
    checked = marginweave("check", "t.yaml")
    assert checked.returncode == 0, checked.stderr
