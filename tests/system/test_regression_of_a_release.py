"""`marginweave.inference` on finished releases: what values count, several tables, and refusals; no server."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
import yaml
from scipy.stats import ttest_1samp
from statsmodels.discrete.discrete_model import MNLogit

from marginweave import Release
from marginweave.accounting.accounts import Account
from marginweave.base.errors import InputError
from marginweave.inference import analyse, combine, independence, regression, synthetic_sets
from marginweave.ledger import Ledger
from marginweave.released.statement import PrivacyStatement
from tests.support.command_line import CommandLine
from tests.support.configurations import quick, raw
from tests.support.people_table import people, visits
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
CLIQUES = [["sex", "region", "grade"], ["sex", "age"]]


def _open_account(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Path(alone.variables["MARGINWEAVE_LEDGER"])
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(ledger))
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(ledger).accounts.open(account, actor="steward")


def _release(alone: CommandLine, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    _open_account(alone, monkeypatch)
    return (
        run_plainly(alone.home, people(alone.home, privacy__epsilon=8.0, **changes), "r")
        / "release"
    )


def test_regressions_of_a_release(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody lacks a region: it has no such value, whose indicator the noise decides on.
    measured = {"method": "marginals", "cliques": CLIQUES}
    place = _release(alone, monkeypatch, aggregate=measured, columns__region__missing=[])
    with pytest.raises(InputError, match=r"'grade' has values without a number.*\(missing\)"):
        regression(place, "grade", ["region"])
    scores = {
        "sex": {"f": 0.0, "m": 1.0, "(missing)": 0.0},
        "grade": {f"{n}": n for n in range(1, 8)} | {"(missing)": 4},
    }
    scores["age"] = dict.fromkeys(
        PrivacyStatement.from_json((place / "privacy.json").read_bytes()).domain["age"], 1.0
    )
    scores["age"]["(missing)"] = 0.0
    found = regression(place, "sex", ["region", "grade"], kind="logistic", values=scores)
    assert [*found.table.columns] == ["estimate", "low", "high", "sd", "bins", "flag"]
    assert not found.table["bins"].any()  # every value is one number
    assert found.says.startswith(
        "Logistic regression of the population that the rows are a simple random sample of. low to"
    )
    assert "Records without a number of grade are in it as well: (missing) counts 4." in found.says
    tens = {label: 10.0 * place for place, label in enumerate(scores["age"])}
    by_age = regression(place, "sex", ["age"], kind="logistic", values={**scores, "age": tens}).says
    assert "Numbers of age were replaced by those in `values`: [0, 18) counts 0, [18, 30)" in by_age
    assert "middle of its bin. low to" not in by_age
    assert "were replaced" not in found.says  # age is not in it
    assert found.names[0] == "intercept"
    assert "region=south" in found.names
    assert "region=north" not in found.names
    assert (found.low < found.estimate).all()
    assert (found.estimate < found.high).all()
    rows = regression(
        str(place),
        "sex",
        ["region", "grade"],
        kind="logistic",
        of="table",
        values=scores,
        level=0.95,
    )
    assert np.array_equal(rows.estimate, found.estimate)
    assert (rows.table["sd"] < found.table["sd"]).all()
    for asked, message in (
        (("town", ["grade"]), "'town' is no column that was counted by itself; there are"),
        (("region", ["sex"]), "'region' has values without a number: .*say in `values`"),
        (("sex", "region"), r"^columns \(str\) must be list or tuple; write"),
        (("sex", ["region", "region"]), "named twice"),
        (
            ("sex", ["grade", "age"]),
            "in no measured set together: 'grade' and 'age'; leave columns out. Nearest sets: sex, age; sex, region, grade",
        ),
    ):
        with pytest.raises(InputError, match=message):
            regression(place, *asked, values=scores)
    given: dict[str, Any] = {"kind": "logistic", "values": scores}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kind": "logit"}, r"^kind \(logit\) must be linear or logistic$"),
        ({"of": "rows"}, r"^of \(rows\) must be population or table$"),
        ({"level": 95}, r"^level \(95\) must be between 0 and 1"),
        ({"level": 0}, r"^level \(0\) must be between 0 and 1"),
        (
            {"values": {**scores, "town": {"a": 1}}},
            "'town' is no column that was counted by itself",
        ),
        (
            {"values": {"sex": {**scores["sex"], "x": 1}}},
            "values of 'sex' names x, which it has not",
        ),
        (
            {"values": {"sex": {**scores["sex"], "f": math.nan}}},
            "values of sex must be finite numbers",
        ),
    ]
    for wrong, message in cases:
        with pytest.raises(InputError, match=message):
            regression(place, "sex", ["region"], **{**given, **wrong})
    with pytest.raises(InputError, match="count 0 or 1"):
        regression(
            place,
            "sex",
            ["region"],
            kind="logistic",
            values={"sex": {"f": 1, "m": 2, "(missing)": 0}},
        )
    with pytest.raises(InputError, match="is not the folder of a release"):
        regression(alone.home, "sex", ["region"])
    with pytest.raises(InputError, match=r"^a column \(list\) must be str; write table"):
        Release.open(place).table(["sex", "region"])  # pyright: ignore[reportArgumentType]


def _slope(rows: pd.DataFrame) -> Any:
    """What a person more of sex m adds to the mean grade, as statsmodels has it."""
    made = rows.dropna().assign(m=lambda r: (r["sex"] == "m").astype(float))
    return smf.ols("grade ~ m", made).fit(cov_type="HC0")


def test_synthetic_sets_of_a_release(
    marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number is the middle of its bin, a missing one is missing, merged values come apart; an analysis has an interval."""
    place = _release(
        marginweave, monkeypatch, aggregate={"method": "marginals", "cliques": CLIQUES}
    )
    columns = ["sex", "grade", "region"]
    some = [*synthetic_sets(place, columns, sets=5)]
    assert len(some) == 5
    assert [*some[0]] == columns
    assert not some[0].equals(some[1])
    again = synthetic_sets(place, columns, sets=5)
    assert all(one.equals(other) for one, other in zip(some, again, strict=True))
    assert set(some[0]["grade"].dropna()) <= {*map(float, range(1, 8))}
    assert set(some[0]["sex"].dropna()) == {"f", "m"}
    assert set(some[0]["region"].dropna()) == {"north", "south", "west"}
    found = analyse(place, ["sex", "grade"], _slope)
    assert found.names == ("Intercept", "m")
    # without the records that lack a value, what is asked of three columns is in no pair of them
    assert analyse(place, columns, _slope, of="table").level == 0.95
    with monkeypatch.context() as noisier:
        noisier.setattr("marginweave.inference.margins._CARRIED", 1e-6)  # as if any value were rare
        rare = analyse(place, ["sex", "grade"], _slope)
        assert rare.level == 0.95
        assert re.search(
            r"single values that are rare: sex = [fm]\. Noise", " ".join(rare.says.split())
        )
        with pytest.warns(UserWarning, match="single values that are rare"):
            synthetic_sets(place, ["sex", "grade"], sets=5)
    monkeypatch.setattr("marginweave.inference.sets._MOST_GAPS", -1.0)
    several = analyse(place, columns, _slope, of="table")
    assert several.level is None
    assert "many records have no value of sex, grade, region" in several.says
    table = analyse(place, ["sex", "grade"], _slope, of="table")
    assert (table.table["sd"] < found.table["sd"]).all()
    mean = analyse(
        place, ["grade"], lambda one: (one["grade"].mean(), one["grade"].var() / len(one))
    )
    asked = Release.open(place).query(mean="grade", of="population").iloc[0]
    assert abs(mean.estimate[0] - asked["estimate"]) < asked["high"] - asked["low"]
    assert 0.5 < (mean.high - mean.low)[0] / (asked["high"] - asked["low"]) < 2
    for wrong, message in (
        ({"sets": 4}, r"^sets \(4\) must be a whole number in \[5, 1000\]$"),
        ({"sets": 7.5}, r"^sets \(7.5\) must be"),
        ({"seed": -1}, r"^seed \(-1\) must be"),
        ({"columns": "sex"}, r"^columns \(str\) must be list or tuple; write"),
        ({"of": "rows"}, r"^of \(rows\) must be population or table$"),
        ({"columns": []}, "no measured set together"),
        (
            {"columns": ["grade", "age"]},
            "in no measured set together: 'grade' and 'age'; leave columns out. Nearest",
        ),
        ({"columns": ["sex", "sex"]}, "named twice"),
    ):
        with pytest.raises(InputError, match=message):
            synthetic_sets(place, **{"columns": columns, **wrong})
    to = marginweave.home.with_name("several")
    named = ("--column", "sex", "--column", "grade", "--to", str(to))
    done = marginweave("synthesize", "r", "--sets", "5", *named)
    assert done.returncode == 0, done.stderr
    assert str(to) in done.stdout.replace("\n", "")
    assert sorted(one.name for one in to.iterdir()) == [f"set-0{n}.csv" for n in range(1, 6)]
    assert [*pd.read_csv(to / "set-01.csv")] == ["sex", "grade"]
    for wrong in (named[:4], ("--sets", "5", "--records", "5", *named), ("--sets", "5", *named)):
        assert marginweave("synthesize", "r", *wrong).returncode == 2


def test_rows_of_one_person_are_kept_together(
    marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default numbers are of the population of persons: wider than of rows, never refused for several rows a person."""
    ledger = Path(marginweave.variables["MARGINWEAVE_LEDGER"])
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(ledger))
    unit = {"column": "person", "max_records": 3}
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="subject:person",
        neighbors="add-remove",
    )
    Ledger.create(ledger).accounts.open(account, actor="steward")
    measured = {"method": "marginals", "cliques": [["sex", "grade"], ["region", "grade"]]}
    config = visits(
        marginweave.home,
        privacy__epsilon=8.0,
        privacy__unit=unit,
        aggregate=measured,
        columns__grade__missing=[],
    )
    place = run_plainly(marginweave.home, config, "r") / "release"
    scores = {"sex": {"(missing)": 0.5, "f": 0, "m": 1}}
    found, table = (
        regression(place, "grade", ["sex"], of=of, values=scores).table
        for of in ("population", "table")
    )
    assert (found["sd"] > 1.5 * table["sd"]).all()
    sets, of_table = (
        analyse(place, ["sex", "grade"], _slope, of=of).table for of in ("population", "table")
    )
    assert (sets["sd"] > 1.5 * of_table["sd"]).all()
    tested = independence(place, "sex", "grade")
    assert tested.p >= independence(place, "sex", "grade", of="table").p
    # the code of cells that are not as declared is no grade
    assert tested.degrees_of_freedom == (3 - 1) * (7 - 1)
    assert (
        "the persons are a simple random sample of, with at most 3 rows each. Rows of one person are kept"
        in tested.says
    )
    shown = marginweave("table", "r", "sex", "grade")
    assert "Test of independence that knows the noise: p = " in " ".join(shown.stdout.split())
    assert "takes their noise for association" in " ".join(shown.stdout.split())
    of_file = json.loads(marginweave("table", "r", "sex", "grade", "--json").stdout)
    assert of_file["independence"]["p"] == tested.p
    assert len(of_file["counts"]) == len([*Release.open(place).query(by=["sex", "grade"]).index])
    apart = json.loads(marginweave("table", "r", "sex", "region", "--json").stdout)["independence"]
    assert [*apart] == ["says"]
    assert apart["says"].startswith(
        "No test of independence: sex, region are in no measured set together; nearest: sex, grade"
    )
    refused = marginweave(
        "synthesize",
        "r",
        "--sets",
        "5",
        "--of",
        "rows",
        "--to",
        str(marginweave.home.with_name("x")),
    )
    assert "--of (rows) must be population or table" in refused.stderr
    for wrong, message in (
        (("sex", "sex"), "it takes two columns"),
        (("sex", "town"), "'town' was not counted by itself"),
    ):
        with pytest.raises(InputError, match=message):
            independence(place, *wrong)


def _odd_names(place: Path) -> Path:
    """A table whose columns and values read like parts of a coefficient's name, with a number that has a code."""
    rng, size = np.random.default_rng(6), 500
    amounts = rng.integers(0, 100, size).astype(str)
    frame = pd.DataFrame(
        {
            "intercept": np.where(rng.random(size) < 0.1, "999", amounts),
            "a=b": rng.choice(["c", "d"], size),
            "a": rng.choice(["b", "b=c", "d or e"], size),
            "cost": rng.integers(0, 1000, size),
        }
    )
    frame.to_csv(place / "people.csv", index=False)

    def number(most: int, bins: list[int]) -> dict[str, Any]:
        return {"type": "number", "bounds": [0, most], "bins": bins, "decimals": 0, "missing": []}

    columns: dict[str, Any] = {
        "intercept": {**number(100, [0, 20, 40, 60, 80, 100]), "codes": {"999": "refused"}},
        "a=b": {"type": "category", "values": ["c", "d"], "missing": []},
        "a": {"type": "category", "values": ["b", "b=c", "d or e"], "missing": []},
        "cost": number(1000, [0, 500, 1000]),
    }
    changes = {"columns": columns, "aggregate": {"method": "marginals", "cliques": {"all": 2}}}
    path = place / "people.yaml"
    path.write_text(yaml.safe_dump(quick(raw(privacy__epsilon=8.0, **changes)), sort_keys=False))
    return path


def test_names_middles_of_bins_and_codes(
    marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coefficients have names of their own, and say what bins may do; a number with codes stays one; --where finds columns."""
    _open_account(marginweave, monkeypatch)
    place = run_plainly(marginweave.home, _odd_names(marginweave.home), "r") / "release"
    counted = {"intercept": {"refused": 50.0}}
    found = regression(place, "cost", ["intercept", "a=b", "a"], of="table", values=counted)
    assert found.names == (
        "intercept",
        '"intercept"',
        '"a=b"=d',
        'a="b=c"',
        'a="d or e"',
    )
    assert found.says.startswith(
        "Linear regression of the rows themselves, with every number at the middle of its bin. low to"
    )
    # two bins of 0 to 499 and 500 to 1000, with values that may all lie at one end
    narrow = regression(place, "cost", ["a=b"], of="table").table
    assert narrow["bins"].iloc[1] == pytest.approx(500, rel=0.02)
    is_moved = narrow["bins"] > 10 * (narrow["high"] - narrow["low"])
    assert (narrow["flag"] == np.where(is_moved, "do not use", "")).all()
    (one, *_) = synthetic_sets(place, ["intercept", "cost"], sets=5)
    assert one["intercept"].dtype == np.float64
    assert {*one["intercept"].dropna()} <= {9.5, 29.5, 49.5, 69.5, 90.0}
    assert 0.02 < one["intercept"].isna().mean() < 0.3  # refused
    slope = analyse(
        place, ["intercept", "cost"], lambda rows: smf.ols("cost ~ intercept", rows).fit()
    )
    assert slope.names == ("Intercept", "intercept")
    counts = [
        json.loads(marginweave("query", "r", "--where", where, "--json").stdout)[0]["estimate"]
        for where in ("a=b = c", "a = b=c", "a=b=c")
    ]
    by_b = Release.open(place).query(where={"a=b": "c"})["estimate"].to_list()
    by_a = Release.open(place).query(where={"a": "b=c"})["estimate"].to_list()
    assert counts == [*by_b, *by_a, *by_b]


def test_of_sets_that_the_rows_chose_nothing_is_claimed_about_a_population(
    marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a share, a mean, a test, a regression, or several tables; of the rows, and of single columns, as ever."""
    rounds = {"method": "marginals", "cliques": {"adaptive": 2, "rounds": 3, "batch": 2}}
    place = _release(marginweave, monkeypatch, aggregate=rounds)
    statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
    first, second = next(m.attributes for m in statement.marginals or () if len(m.attributes) == 2)
    with pytest.raises(
        InputError, match=r'^of="population" is not possible: .* ask of="table", or'
    ):
        independence(place, first, second)
    assert independence(place, first, second, of="table").of == "table"
    shown = marginweave("table", "r", first, second)
    assert "of the rows themselves: whether" in " ".join(shown.stdout.split())
    release = Release.open(place)
    value = {name: labels[0] for name, labels in statement.domain.items()}
    alone, pair = (
        release.query(where={first: value[first]}, share=True, of="population", **by).iloc[0]
        for by in ({}, {"by": second})
    )
    assert alone["level"] == 0.95
    assert math.isnan(pair["level"])
    assert "they depend in these rows: nothing says" in pair["flag"]
    rows = release.query(where={first: value[first]}, share=True, by=second).iloc[0]
    assert rows["level"] == 0.95
    assert not any("nothing says" in one["flag"] for one in (alone, rows))
    text = marginweave(
        "query",
        "r",
        "--where",
        f"{first} = {value[first]}",
        "--by",
        second,
        "--share",
        "--of",
        "population",
    )
    assert "no coverage is claimed" in " ".join(text.stdout.split())
    means = analyse(place, [first, second], _lengths)
    assert means.level is None
    assert means.says.startswith("No coverage is claimed: ")
    assert [*means.table["flag"]] == ["no coverage"]
    with pytest.warns(UserWarning, match="^No coverage is claimed: "):
        synthetic_sets(release, [first, second], sets=5)
    assert analyse(release, [first], _lengths).level == 0.95
    assert analyse(place, [first, second], _lengths, of="table").level == 0.95
    to = str(marginweave.home.with_name("several"))
    done = marginweave(
        "synthesize", "r", "--sets", "5", "--column", first, "--column", second, "--to", to
    )
    assert "No coverage is claimed: " in " ".join(done.stdout.split())
    scores: dict[str, dict[str, float]] = {}
    for name in (first, second):
        labels = (*statement.domain[name], "(missing)")
        scores[name] = {label: float(number) for number, label in enumerate(labels)}
    asked = regression(release, first, [second], values=scores)
    assert asked.level is None
    assert all(asked.table["flag"])
    assert "No coverage is claimed: " in asked.says
    of_rows = regression(place, first, [second], of="table", values=scores)
    assert of_rows.level == 0.95
    assert "No coverage" not in of_rows.says


def _lengths(rows: pd.DataFrame) -> tuple[float, float]:
    """A mean and its variance, of the first column as texts."""
    lengths = rows.iloc[:, 0].astype(str).str.len()
    return float(lengths.mean()), float(lengths.var() / len(rows)) + 1e-9


def test_no_regression_without_a_model(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    place = _release(alone, monkeypatch, synthesize__method="aggregate-seeded")
    with pytest.raises(InputError, match=r"has no model\.parquet, which a regression needs"):
        regression(place, "sex", ["region"])
    with pytest.raises(InputError, match=r"has no model\.parquet, which sets of records need"):
        synthetic_sets(place, ["sex"])


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([(1.0, 2.0)], "takes the results of at least 5 tables, and got 1"),
        ([(1.0, 2.0), *[([1.0, 2.0], [1.0, 1.0])] * 5], "not of the same coefficients"),
        ([(math.nan, 2.0)] * 5, "no finite number"),
        ([(1.0, -2.0)] * 5, "negative variance"),
        ([([1.0, 2.0], [[1.0, 0.5], [0.0, 1.0]])] * 5, "not symmetric"),
        ([(1.0, [2.0, 3.0])] * 5, "which do not go together"),
        ([([], [])] * 5, "which do not go together"),
        (
            [(pd.Series([1.0, 2.0], ["a", "b"]), pd.Series([1.0, 2.0], ["b", "a"]))] * 5,
            "other names than its estimates",
        ),
        ([1.0] * 5, r"must have params and cov_params\(\), or be a pair"),
        ([("a", "b")] * 5, r"must have params and cov_params\(\), or be a pair"),
        ([ttest_1samp([1.0, 2.0], 0)] * 5, r"must have params and cov_params\(\), or be a pair"),
    ],
)
def test_results_that_cannot_be_combined(results: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        combine(results)
    with pytest.raises(InputError, match="level"):
        combine([(1.0, 2.0)] * 5, level=95)


def test_coefficients_of_several_equations_keep_their_names() -> None:
    rng = np.random.default_rng(3)
    results = [
        MNLogit(rng.integers(0, 3, 90), pd.DataFrame({"x": rng.normal(size=90)})).fit(disp=0)
        for _ in range(5)
    ]
    found = combine(results)
    assert found.names == tuple(map(str, results[0].cov_params().index))
    assert np.isclose(found.estimate[1], np.mean([one.params.to_numpy()[0, 1] for one in results]))
