"""A draft always runs: whatever `init` writes, each question answered yes, passes `check` and ends in a release."""

from __future__ import annotations

import gzip
import json
import random
import re
from importlib import resources
from pathlib import Path

import pytest

from benchmarks.accuracy.drafts import named
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts.column_draft import MOST_VALUES
from tests.support.drafted_releases import DraftedRelease, release_by_draft
from tests.support.families import family
from tests.support.messy_tables import messy_table
from tests.support.places import DATA
from tests.support.samples import every

pytestmark = pytest.mark.system
CASES = DATA.parent / "cases"
STATSMODELS = (
    "fair/fair_pt.csv", "grunfeld/grunfeld.csv", "statecrime/statecrime.csv", "modechoice/modechoice.csv", "heart/heart.csv",
    "cancer/cancer.csv", "ccard/ccard.csv", "china_smoking/china_smoking.csv", "co2/co2.csv", "committee/committee.csv",
    "copper/copper.csv", "cpunish/cpunish.csv", "danish_data/data.csv", "elec_equip/elec_equip.csv", "elnino/elnino.csv",
    "engel/engel.csv", "fertility/fertility.csv", "interest_inflation/E6.csv", "longley/longley.csv", "anes96/anes96.csv",
    "macrodata/macrodata.csv", "nile/nile.csv", "scotland/scotvote.csv", "spector/spector.csv", "fair/fair.csv",
    "stackloss/stackloss.csv", "star98/star98.csv", "strikes/strikes.csv", "sunspots/sunspots.csv", "randhie/randhie.csv",
)  # fmt: skip
SKLEARN = (
    "iris.csv",
    "wine_data.csv",
    "breast_cancer.csv",
    "diabetes_data_raw.csv.gz",
    "digits.csv.gz",
)
SHARED = (
    "drug_deaths/drug_deaths.csv",
    "ma2019/ma2019.csv",
    "airbnb/users.csv",
    "airbnb/sessions.csv",
    "adult/adult_raw.csv",
)
OF_CASES = (
    "08/sparse.csv", "02/money.csv", "02/codes.csv", "02/dates.csv", "02/euro.csv", "02/ints.csv", "02/bools.csv",
    "02/survey.csv", "04/ambig.csv", "04/dob.csv", "04/stamps.csv", "06/tail.csv", "07/ranges.csv", "12/w80.csv",
    "13/stamps.csv", "13/tz.parquet", "14/visits.csv", "20/country.csv", "20/names.csv", "21/mar.csv", "22/t.csv",
    "22/z.csv", "26/taxis.csv", "29/s.csv",
)  # fmt: skip
_ENDED = "good|with care|not for publication"
_LEFT_OUT = "dropped|not released|privacy protects|leave the line out"


def check_release(done: DraftedRelease) -> None:
    """It ended in a release with a verdict, or its draft says at the top that nothing of the table can be counted."""
    if done.command != "init" and done.code and done.counts_nothing:
        assert (done.command, done.code) == ("check", 2)
        return
    assert done.code == 0, f"{done.command}: {done.printed}"
    verdict = json.loads((done.release / "evaluation.json").read_text())["verdict"]
    assert re.fullmatch(_ENDED, verdict["publication"])


def check_choices(done: DraftedRelease) -> None:
    """A column of many values is private with its cost in words, or left out with its reason; no list is endless."""
    columns = parse_yaml(done.draft)["columns"]
    for name, column in columns.items():
        assert len(column.get("values", ())) <= MOST_VALUES, name
    for line in done.draft.splitlines():
        if line.startswith("  ") and "{type: identifier" in line:
            assert re.search(f"# .*({_LEFT_OUT})", line), line
        if line.startswith("  ") and "domain: private}" in line.split("#")[0]:
            assert re.search(r"# .*fewer than about [0-9]+ records will be missing", line), line


def released(tmp_path: Path, table: Path) -> None:
    """Release a table by its draft, and check what the law says."""
    done = release_by_draft(tmp_path, table)
    check_release(done)
    check_choices(done)


@pytest.mark.parametrize(("package", "name"), every(18, [
    *(("statsmodels", name) for name in STATSMODELS), *(("sklearn", name) for name in SKLEARN),
]))  # fmt: skip
def test_the_draft_of_a_table_of_a_package_runs(package: str, name: str, tmp_path: Path) -> None:
    folder = resources.files(package).joinpath("datasets")
    place = (
        folder.joinpath("data", name) if package == "sklearn" else folder.joinpath(*name.split("/"))
    )
    content = place.read_bytes()
    table = tmp_path / Path(name.removesuffix(".gz")).name
    text = gzip.decompress(content) if name.endswith(".gz") else content
    if package == "sklearn" and name != "diabetes_data_raw.csv.gz":
        text = named(text, has_counts=name.endswith(".csv"))
    table.write_bytes(text)
    released(tmp_path, table)


@pytest.mark.parametrize(("folder", "name"), every(15, [
    *((CASES, name) for name in OF_CASES), *((DATA, name) for name in SHARED),
]))  # fmt: skip
def test_the_draft_of_a_test_table_runs(folder: Path, name: str, tmp_path: Path) -> None:
    if not (folder / name).is_file():
        pytest.skip(
            f"the test table {name} is not here; MARGINWEAVE_TEST_DATA names the folder of such tables"
        )
    released(tmp_path, folder / name)


@pytest.mark.parametrize("seed", every(60, range(300)))
def test_the_draft_of_a_messy_table_runs(seed: int, tmp_path: Path) -> None:
    """Gaps, codes, spellings, dates of many forms, constants, quotes, names of any kind; of one row to 900."""
    messy_table(seed).write(tmp_path / "messy.csv")
    released(tmp_path, tmp_path / "messy.csv")


@pytest.mark.parametrize("seed", every(40, range(120)))
def test_the_draft_of_several_files_runs(seed: int, tmp_path: Path) -> None:
    """Of a family made at random; the terminal says how many rows belong to nobody, and no file that is released."""
    made = family(seed)
    order = random.Random(seed).sample([*made.files], len(made.files))
    done = release_by_draft(tmp_path, *made.written(tmp_path, order))
    check_release(done)
    for name, by in made.children.items():
        rows = made.files[name].count("\n") - 1
        lost = f"{made.orphans[name]} have an id that patients has not, {made.without_id[name]} have none"
        assert f"- {name}, by {by}: of {rows} rows {lost};" in done.printed
    for name in made.below:
        assert f"- {name} is left out" in done.printed
    assert all(
        by not in parse_yaml(done.draft)["columns"]
        for by in made.children.values()
        if by != made.key
    )
