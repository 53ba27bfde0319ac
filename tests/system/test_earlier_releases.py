"""An earlier release of the same rows is used again: for nothing, with its noise, and only where it is what was published."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from marginweave.accounting.accounts import Account
from marginweave.base.errors import EXIT_BAD_INPUT, InputError
from marginweave.configuration.load import load_configuration, parse_configuration
from marginweave.estimate.earlier import with_earlier
from marginweave.estimate.marginals import compression_of, measured_marginals
from marginweave.flows.cli.app import app
from marginweave.forecast.account import account_forecast
from marginweave.forecast.earlier import earlier_forecast
from marginweave.inference import regression
from marginweave.ledger import Ledger
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.publish.reader import PublishedRelease
from marginweave.released.earlier import drawn_again, usable_marginals
from marginweave.runs.preparation import check_request
from marginweave.runs.request import Request, read_request
from marginweave.verify.files import audit_files
from tests.support import noisy_marginals
from tests.support.configurations import BASE, raw
from tests.support.fixed_noise import drawn_facts, fixed_noise
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
MARGINALS = {"aggregate": {"method": "marginals", "cliques": {"all": 2}, "compress": "none"}}
SAME = "the extract of 1 March: both runs read the file with the checksum in the register"
FIRST = "runs/first/release"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With a ledger of two accounts, and the release of a run `first` of 300 people."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger" / "ledger.sqlite"))
        ledger = Ledger.create(home / "ledger" / "ledger.sqlite")
        for name in ("people", "others"):
            account = Account(
                dataset=name,
                epsilon=Decimal(9),
                delta=Decimal("1e-4"),
                unit="row",
                neighbors="add-remove",
            )
            ledger.accounts.open(account, actor="steward")
        run_plainly(home, people(home, 300, **MARGINALS), "first")
        yield home


def asked(home: Path, release: str = FIRST, **changes: Any) -> Path:
    """A configuration that names an earlier release."""
    return people(
        home, 300, **{**MARGINALS, "known": [{"release": release, "same_rows": SAME}], **changes}
    )


def requested(home: Path, path: Path) -> Request:
    """What has passed all that is refused before anything is charged."""
    request = read_request(path, run="another", source=None, home=home)
    check_request(request)
    return request


def test_no_draw_depends_on_an_earlier_release(home: Path) -> None:
    """Under the same bits all is drawn alike; what is fitted to has the mean and noise of both, and other records follow."""
    with fixed_noise():
        run_plainly(home, people(home, 300, **MARGINALS), "plain")
        run_plainly(home, asked(home), "again")
    plain, again = home / "runs/plain/release", home / "runs/again/release"
    drawn = [drawn_facts(place, "marginals") for place in (plain, again)]
    assert drawn[0] == drawn[1]
    assert (plain / "aggregates.csv").read_bytes() != (again / "aggregates.csv").read_bytes()
    for place in (plain, again):
        head = pq.read_table(place / "aggregates.parquet")["note"][0].as_py()
        assert ("this row, the number of records, is of this release alone" in head) == (
            place == again
        )
    cells = [
        pq.read_table(home / f"runs/{run}/release/measurements.parquet").to_pydict()
        for run in ("first", "again")
    ]
    noise = [np.array(one["deviation"]) ** -2.0 for one in cells]
    mean = (noise[0] * cells[0]["count"] + noise[1] * cells[1]["count"]) / (noise[0] + noise[1])
    published = PublishedRelease.read(again)
    assert published.marginals is not None
    assert np.allclose(np.concatenate([m.counts.ravel() for m in published.marginals.pooled]), mean)
    pooled = np.concatenate(
        [np.full(m.counts.size, m.deviation) for m in published.marginals.pooled]
    )
    assert np.allclose(pooled, (noise[0] + noise[1]) ** -0.5)
    stated = {
        place: json.loads((place / "evaluation.json").read_text())["bounds"]["marginals"]
        for place in (plain, again)
    }
    deviations = [[bound["deviation"] for bound in stated[place]] for place in (plain, again)]
    assert deviations[0] == deviations[1]  # bounds are of the counts of this release alone
    said = json.loads((again / "privacy.json").read_text())
    assert [(one["run"], one["same_rows"]) for one in said["earlier"]] == [("first", SAME)]
    assert "Counts of run first are used again" in said["composition"]
    assert not any(_names_the_first(plain).values())
    assert all(_names_the_first(again).values())
    for name in ("privacy.json", "measurements.parquet"):
        assert (again / f"earlier-1-{name}").read_bytes() == (home / FIRST / name).read_bytes()
    location = home / "ledger" / "ledger.sqlite"
    keys = load_key(location, {}, "")
    audit_files(home, audit_ledger(location, keys), keys, example=False)


def _names_the_first(place: Path) -> dict[str, bool]:
    """Whether each promise of a release says that it is of what the release adds to run first."""
    not_covered = json.loads((place / "privacy.json").read_text())["not_covered"]
    croissant = json.loads((place / "croissant.json").read_text())
    report = (place / "report.html").read_text()
    return {
        "not covered": any("What the counts of run first tell" in one for one in not_covered),
        "description": "beside what the counts of run first tell" in croissant["description"],
        "citation": "beside run first)" in croissant["citeAs"],
        "observer": "from what this release adds to the counts of run first" in report,
    }


def test_cells_that_an_earlier_release_found_are_found_again(home: Path) -> None:
    """However little noise this one has bought: 90 of 300 cells are not as declared, and records have as many empty ones."""
    config = people(home, 300, **MARGINALS, dataset="others", privacy__epsilon=5.0, missing=[])
    rows = (home / "people.csv").read_text().splitlines()
    changed = [",".join(["not said", *row.split(",")[1:]]) for row in rows[1:91]]
    (home / "people.csv").write_text("\n".join([rows[0], *changed, *rows[91:]]) + "\n")
    run_plainly(home, config, "found")
    again = {
        "known": [{"release": "runs/found/release", "same_rows": SAME}],
        "privacy__epsilon": 0.05,
    }
    table = (home / "people.csv").read_text()
    little = people(home, 300, **{**MARGINALS, "dataset": "others", "missing": [], **again})
    (home / "people.csv").write_text(table)
    place = run_plainly(home, little, "little") / "release"
    (cells,) = (
        one
        for one in json.loads((place / "privacy.json").read_text())["undeclared"]
        if one["attribute"] == "sex"
    )
    assert (cells["found"], cells["kept"]) == (True, True), cells
    assert abs(cells["count"] - 90) <= 6 * cells["deviation"] + 1  # false alarm 2e-9
    empty = pq.read_table(place / "synthetic.parquet")["sex"].null_count
    # seven deviations of noise and sampling; none without what the earlier release knows
    assert 30 < empty < 150


def test_plan_says_what_is_used_and_what_it_is_worth(home: Path) -> None:
    request = requested(home, asked(home))
    first, second = map(str, earlier_forecast(request))
    assert re.search(
        r"run first: 4 single columns \(sd [\d.]+ to [\d.]+\), 6 sets of 2 columns \(sd [\d.]+ to [\d.]+\); free",
        first,
    )
    own, both = map(float, re.findall(r"[\d.]+", second))
    assert both == pytest.approx(own / 2**0.5, rel=0.01)  # as much budget as now


def test_the_digest_is_that_of_the_files_and_not_of_their_place(home: Path, tmp_path: Path) -> None:
    here = load_configuration(asked(home))
    shutil.copytree(home / FIRST, tmp_path / "copy")
    there = load_configuration(asked(home, str(tmp_path / "copy")))
    assert (here.written_digest, here.digest) == (there.written_digest, there.digest)
    requested(home, asked(home, str(tmp_path / "copy")))
    stated = tmp_path / "copy" / "privacy.json"
    stated.write_bytes(stated.read_bytes() + b"\n")
    assert (
        load_configuration(asked(home, str(tmp_path / "copy"))).written_digest
        != here.written_digest
    )


@pytest.mark.parametrize("file", ["privacy.json", "measurements.parquet"])
def test_what_is_not_in_the_ledger_is_refused(file: str, home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / FIRST, tmp_path / "copy")
    changed = tmp_path / "copy" / file
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(
        InputError, match=f"run first was not published with this {file}"
    ) as refused:
        requested(home, asked(home, str(tmp_path / "copy")))
    assert refused.value.exit_code == EXIT_BAD_INPUT
    planned = read_request(
        asked(home, str(tmp_path / "copy")), run="another", source=None, home=home
    )
    with pytest.raises(InputError, match=f"run first was not published with this {file}"):
        account_forecast(planned)
    # no line of a plan stands before its refusal
    said = CliRunner().invoke(app, ["plan", str(planned.path), "--home", str(home)])
    assert (said.exit_code, said.stdout) == (EXIT_BAD_INPUT, "")
    stated = json.loads((home / FIRST / "privacy.json").read_text())
    (tmp_path / "copy" / "privacy.json").write_text(
        json.dumps({**stated, "release": "of another ledger"})
    )
    with pytest.raises(
        InputError, match="run first is not a release of account people in the ledger"
    ):
        requested(home, asked(home, str(tmp_path / "copy")))


AGE = BASE["columns"]["age"]
TWICE = [{"release": FIRST, "same_rows": SAME}] * 2
SUBJECT = {"column": "person", "max_records": 1}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "account": (
        {"dataset": "others"},
        "is charged to account 'people' and this release to 'others'",
    ),
    "unit": (
        {"privacy__unit": SUBJECT, "columns__person": {"type": "identifier"}},
        "records are chosen by chance",
    ),
    "neighbors": ({"privacy__neighbors": "replace-one"}, "has privacy.neighbors 'add-remove'"),
    "bins": (
        {"columns__age": {**AGE, "bins": [0, 18, 40, 65, 100]}},
        r"declares 'age' differently \(column, values\)",
    ),
    "missing": (
        {"columns__age": {**AGE, "missing": ["", "-1"]}},
        r"declares 'age' differently \(column, missing\)",
    ),
    "rules": (
        {"structure": {"forbidden": [{"sex": "f", "region": "west"}]}},
        r"declares '(sex|region)' differently \(structure, repair\)",
    ),
    "capped Delta_k": (
        {"aggregate": {"method": "k-tuples", "percentile": 90}},
        r"needs aggregate: \{method: marginals\}",
    ),
    "sampled": ({"resize": {"records": 300}, "missing": None}, "records are chosen by chance"),
    "nothing shared": (
        {"columns": {"weight": AGE, "height": AGE}},
        "has no marginal whose columns are all declared here",
    ),
    "twice": ({"known": TWICE}, "names an earlier release twice"),
    "no words": ({"known": [{"release": FIRST}]}, "known, entry 1: same_rows is required"),
    "a draft": (
        {"known": [{"release": FIRST, "same_rows": SAME, "confirm": True}]},
        "known, entry 1 was drafted and waits for confirmation",
    ),
    "no folder": (
        {"known": [{"release": "runs/first", "same_rows": SAME}]},
        "must be the folder of a published release",
    ),
    "a misspelt key": (
        {"known": [{"release": FIRST, "same_row": SAME}]},
        "unknown key known, entry 1: same_row; did you mean same_rows",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_before_anything_is_charged(case: str, home: Path) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as refused:
        requested(home, asked(home, **changes))
    assert refused.value.exit_code == EXIT_BAD_INPUT
    assert not (home / "runs" / "another").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"resize": {"records": 300}, "missing": None},
            "counted records that were chosen by chance",
        ),
        (
            {"privacy__unit": SUBJECT, "columns__person": {"type": "identifier"}},
            "has privacy.unit 'subject:person'",
        ),
    ],
)
def test_a_release_of_other_records_is_refused(
    changes: dict[str, Any], words: str, home: Path
) -> None:
    """What that release did with its rows stands in its own configuration."""
    stated = PublishedRelease.read(home / FIRST).statement
    theirs = parse_configuration(raw(**{**MARGINALS, **changes}))
    other = stated.model_copy(update={"configuration": theirs.canonical()})
    ours = parse_configuration(raw(**MARGINALS))
    assert usable_marginals(ours, stated)
    with pytest.raises(InputError, match=words):
        usable_marginals(ours, other)


IMPUTE = {"impute": {"distribution": "uniform"}}


@pytest.mark.parametrize(
    ("changes", "used"),
    [
        ({"columns__sex": {**BASE["columns"]["sex"], **IMPUTE}}, {"region", "age", "grade"}),
        (
            {"columns__signs": {"type": "set", "values": ["a", "b", "c"], "max_values": 2}},
            {*BASE["columns"]},
        ),
        (
            {
                "columns__sex": {**BASE["columns"]["sex"], **IMPUTE},
                "structure": {"forbidden": [{"sex": "f", "region": "west"}]},
            },
            {"age", "grade"},
        ),
    ],
)
def test_what_chance_puts_in_a_cell_or_leaves_there_is_not_pooled(
    changes: dict[str, Any], used: set[str], home: Path
) -> None:
    """Two releases of the same rows count other values there, and in columns that rules tie to them."""
    ours = parse_configuration(raw(**{**MARGINALS, **changes}))
    names = [attribute.name for attribute in ours.attributes]
    stated = PublishedRelease.read(home / FIRST).statement
    one = next(iter(stated.marginals or ()))
    pairs = [(name,) for name in names] + list(itertools.combinations(names, 2))
    marginals = tuple(one.model_copy(update={"attributes": pair}) for pair in pairs)
    same = stated.model_copy(update={"configuration": ours.canonical(), "marginals": marginals})
    found = usable_marginals(ours, same)
    assert {m.attributes for m in found} == {pair for pair in pairs if used.issuperset(pair)}
    assert drawn_again(ours) == {*names} - used


def test_what_is_not_used_is_named_and_rules_that_draw_values_are_refused(
    home: Path, tmp_path: Path
) -> None:
    """A release of rows with imputed cells, and one of rows of which those that break a rule get a value by chance."""
    sex, grade = ({**BASE["columns"][name], "missing": []} for name in ("sex", "grade"))
    imputed = {**MARGINALS, "columns__sex": {**sex, **IMPUTE}}
    ruled = {
        **MARGINALS,
        "columns__sex": sex,
        "columns__grade": grade,
        "structure": {"forbidden": [{"sex": "f", "grade": 1}]},
    }
    for run, changes in (("imputed", imputed), ("ruled", ruled)):
        folder = home / run
        folder.mkdir()
        run_plainly(home, people(folder, 300, **changes), run)
    known = [{"release": str(home / "runs" / "imputed" / "release"), "same_rows": SAME}]
    request = requested(home, people(tmp_path, 300, **imputed, known=known))
    assert any(
        str(line).startswith("Not used of that release: sex, as chance decides")
        for line in earlier_forecast(request)
    )
    known = [{"release": str(home / "runs" / "ruled" / "release"), "same_rows": SAME}]
    with pytest.raises(
        InputError,
        match="counted grade, sex with rows that break a rule, which get a value by chance",
    ):
        requested(home, people(tmp_path, 300, **ruled, known=known))


def test_columns_may_be_left_out_added_and_reordered(home: Path) -> None:
    """The tables of columns that are in both are used, over the order of the new release."""
    columns = {name: BASE["columns"][name] for name in ("grade", "region", "sex")}
    path = asked(home, columns={"size": {"type": "category", "values": ["s", "m", "l"]}, **columns})
    found = load_configuration(path)
    drawn = noisy_marginals.marginals(found, sd=5.0)
    tables = with_earlier(
        drawn,
        found,
        found,
        lambda name: (home / FIRST / name.removeprefix("earlier-1-")).read_bytes(),
    )
    first = PublishedRelease.read(home / FIRST).marginals
    assert first is not None
    sums = {tuple(first.domain.names[a] for a in m.attributes): m for m in first.larger}
    found_alone = {m.attributes: m for m in tables.pooled}
    assert {*found_alone} == {(0,), (1,), (2,), (3,), (0, 1), (1, 2), (1, 3), (2, 3), (1, 2, 3)}
    assert np.allclose(found_alone[1, 3].counts, sums["sex", "grade"].counts.T)
    assert found_alone[1, 3].deviation == pytest.approx(sums["sex", "grade"].deviation)


def test_merged_values_are_told_apart_by_both_releases(home: Path) -> None:
    """What is merged follows from this draw alone; the shares of its values, and of earlier tables, from pooled counts."""
    found = load_configuration(asked(home, aggregate={**MARGINALS["aggregate"], "compress": 3.0}))
    drawn = noisy_marginals.marginals(found, sd=100.0)
    alone = compression_of(drawn, found)[1]
    tables = with_earlier(
        drawn,
        found,
        found,
        lambda name: (home / FIRST / name.removeprefix("earlier-1-")).read_bytes(),
    )
    first = PublishedRelease.read(home / FIRST).marginals
    assert first is not None
    assert any(size < len(codes) for size, codes in zip(alone.sizes, alone.codes, strict=True))
    together = compression_of(tables, found)[1]
    for a, (now, then) in enumerate(zip(drawn.one_way, first.one_way, strict=True)):
        precision = now.deviation**-2 + then.deviation**-2
        mean = (now.counts * now.deviation**-2 + then.counts * then.deviation**-2) / precision
        assert np.allclose(together.counts[a], mean)
        assert np.array_equal(together.codes[a], alone.codes[a])
        assert tables.measured[0][a].deviation == pytest.approx(precision**-0.5)
        assert np.allclose(
            measured_marginals(tables, together)[a].counts,
            np.bincount(alone.codes[a], weights=mean),
        )


def test_a_private_domain_is_left_out(home: Path) -> None:
    path = asked(home, columns__town={"type": "category", "domain": "private"})
    request = read_request(path, run="another", source=None, home=home)
    assert [len(earlier.marginals) for earlier in request.earlier] == [10]
    assert "4 single columns" in str(earlier_forecast(request)[0])


def test_a_regression_uses_what_an_earlier_release_measured(home: Path) -> None:
    """Also where estimates leave out the code of cells that are not as declared, which tables of both releases have."""
    changes = {"columns__region__missing": [], "columns__grade__missing": []}
    first = run_plainly(home, people(home, 300, **MARGINALS, **changes), "alone") / "release"
    path = asked(home, "runs/alone/release", description="second", **changes)
    second = run_plainly(home, path, "together") / "release"
    scores = {"sex": {"f": 0.0, "m": 1.0, "(missing)": 0.0}}
    alone, together = (
        regression(place, "grade", ["sex"], values=scores, of="table").table
        for place in (first, second)
    )
    assert (together["sd"] < alone["sd"]).all()


def test_a_release_that_uses_one_of_other_rows_is_not_for_publication(home: Path) -> None:
    """The register moved: all live in one region now, and the verdict says that the rows are others."""
    run_plainly(home, people(home, 300, **MARGINALS, privacy__epsilon=2.5), "before")
    path = asked(home, "runs/before/release", description="moved", privacy__epsilon=2.5)
    table = home / "people.csv"
    whole = table.read_text()
    table.write_text(whole.replace(",south,", ",north,").replace(",west,", ",north,"))
    try:
        verdict = json.loads(
            (run_plainly(home, path, "moved") / "release" / "evaluation.json").read_text()
        )["verdict"]
    finally:
        table.write_text(whole)
    assert verdict["publication"] == "not for publication"
    assert verdict["says"][0].startswith(
        "Counts of region in the earlier release that is used again differ by more than noise"
    )
