"""`marginweave query` and `table` on releases that exist, as a reader of them types it; no ledger, no server, no source."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from marginweave.estimate.intervals import censored_bound
from marginweave.publish.reader import FittedRelease, PublishedRelease
from tests.support.command_line import CommandLine
from tests.support.finished_runs import finished_home

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of a release of marginals and of one of k-tuples."""
    home = finished_home(tmp_path_factory.mktemp("finished"))
    return {
        file.parent.parent.name: file.parent
        for file in sorted(home.glob("runs/*/release/privacy.json"))
    }


def test_answers_from_a_folder_alone(marginweave: CommandLine, releases: dict[str, Path]) -> None:
    for kind, place in releases.items():
        copy = shutil.copytree(place, marginweave.home / kind)
        total = marginweave("query", copy, "--json")
        assert total.returncode == 0, total.stderr
        (answer,) = json.loads(total.stdout)
        assert answer["low"] <= answer["estimate"] <= answer["high"]
        assert (answer["how"], answer["level"], answer["flag"]) == ("measured", 0.95, "")
        assert "\nall records" in marginweave("query", copy).stdout
        column = next(iter(json.loads((copy / "privacy.json").read_text())["domain"]))
        shown = marginweave("table", copy, column)
        assert shown.returncode == 0, shown.stderr
        assert all(len(line) <= 100 for line in shown.stdout.splitlines())
        listed = marginweave("query", copy, "--by", column, "--level", ".8", "--csv")
        rows = list(csv.DictReader(io.StringIO(listed.stdout)))
        assert len(rows) > 1
        assert {row["level"] for row in rows if row["estimate"]} == {"0.8"}
        assert column in rows[0]
        if kind == "marginals":
            other = [*json.loads((copy / "privacy.json").read_text())["domain"]][1]
            asked = f"{column} = {rows[0][column]}"
            shares = marginweave("query", copy, "--where", asked, "--by", other, "--share")
            assert f"A share is the part of its group that meets: {asked}." in shares.stdout, (
                shares.stderr
            )
        refused = marginweave("query", copy, "--weight", "grade")
        assert (refused.returncode, refused.stderr[:39]) == (
            2,
            "marginweave: --weight is not possible: ",
        )
        refused = marginweave("query", copy, "--where", "nothing = 1")
        assert refused.returncode == 2
        assert refused.stderr.startswith("marginweave: 'nothing' is no column that was counted")
        assert "Traceback" not in refused.stderr


def test_an_answer_inside_measured_sets_loads_nothing_that_takes_longer_than_it(
    alone: CommandLine, releases: dict[str, Path]
) -> None:
    """Beside numpy and pyarrow. Each of these libraries takes a quarter of a second and more."""
    query = alone.command("query", str(releases["marginals"]), "--by", "sex")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *query],
        cwd=alone.home,
        env=alone.variables,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow" in imported
    assert not imported & {"numba", "pandas", "prefect", "scipy", "sqlalchemy", "pyarrow.dataset"}


def test_answers_have_the_model_that_was_released(releases: dict[str, Path]) -> None:
    """`FittedRelease` reads no consistent counts, and has the same model but for the last digits of the number of records."""
    fitted = FittedRelease.read(releases["marginals"])
    published = PublishedRelease.read(releases["marginals"])
    assert fitted is not None
    assert published.mixture is not None
    assert fitted.mixture.total == pytest.approx(published.mixture.total, rel=1e-12)
    assert np.array_equal(fitted.mixture.weights, published.mixture.weights)
    shares = zip(fitted.mixture.shares, published.mixture.shares, strict=True)
    assert all(np.array_equal(one, other) for one, other in shares)
    assert fitted.configuration == published.configuration
    assert FittedRelease.read(releases["k-tuples"]) is None


def test_a_combination_that_was_not_released_has_an_upper_end(
    marginweave: CommandLine, releases: dict[str, Path]
) -> None:
    """No estimate, and 0 to what its threshold leaves open: that of the smallest part that was not released, or of itself.

    Of 35 combinations of some 6 records each, noise of deviation 15 leaves one below the threshold of 1, but for once in 10
    million times.
    """
    place = releases["k-tuples"]
    statement = json.loads((place / "privacy.json").read_text())
    ends = {
        censored_bound(n[kind], n["deviation"])
        for n in statement["noise"]
        for kind in ("threshold", "private_threshold")
    }
    found = json.loads(marginweave("query", place, "--by", "age", "--by", "grade", "--json").stdout)
    hidden = [
        answer
        for answer in found
        if answer["estimate"] is None and answer["flag"].startswith("not released")
    ]
    assert hidden
    assert {answer["low"] for answer in hidden} == {0}
    assert {answer["high"] for answer in hidden} <= ends
    assert "at most" in marginweave("table", place, "age", "grade").stdout


def test_a_folder_without_a_release_is_told_which_one_has_it(
    marginweave: CommandLine, releases: dict[str, Path], tmp_path: Path
) -> None:
    release = releases["marginals"]
    for place in (release.parent, release.parent / "internal", release / "privacy.json"):
        refused = marginweave("query", place)
        assert refused.returncode == 2
        assert refused.stderr == (
            f"marginweave: {place} is not the folder of a release, which has a file privacy.json; {release} is one\n"
        )
    gone = marginweave("table", tmp_path / "gone", "sex")
    assert (
        gone.returncode,
        "gone does not exist: give the folder of a release" in gone.stderr,
    ) == (2, True)


def test_all_refused_questions_of_a_file_are_named_and_none_is_answered(
    marginweave: CommandLine, releases: dict[str, Path], tmp_path: Path
) -> None:
    release = releases["marginals"]
    first, second = [*json.loads((release / "privacy.json").read_text())["domain"]][:2]
    file = tmp_path / "questions.yaml"
    file.write_text(
        f"questions:\n- {{by: {first}}}\n- {{by: nothing}}\n- {{level: 3}}\n- {{by: '{first},{second}'}}\n"
    )
    refused = marginweave("query", release, "--file", file)
    assert (refused.returncode, refused.stdout) == (2, "")
    lines = [line.removeprefix("marginweave: ") for line in refused.stderr.splitlines()]
    assert lines[0].startswith(
        "question 2 ({by: nothing}): 'nothing' is no column that was counted"
    )
    assert lines[1] == "question 3 ({level: 3}): level (3) must be below 1"
    ways = f"query --by {first} --by {second}, table {first} {second}, or in a file by: [{first}, {second}]"
    columns = f"{first},{second}"
    assert lines[2:] == [
        f"question 4 ({{by: {columns}}}): {columns!r} are several columns, which are named one by one: {ways}",
        "3 of 4 questions were refused, and none is answered: correct them",
    ]
