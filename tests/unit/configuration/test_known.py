"""Known tables are declared in one way, and what cannot be one is refused by its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from marginweave.base.errors import InputError
from marginweave.configuration.load import load_configuration, resolve
from marginweave.configuration.release import Configuration
from marginweave.forecast.noise import known_forecast
from marginweave.measurements.split import plan_budget
from marginweave.publish.statement import promise
from tests.support.configurations import configuration, raw
from tests.support.published import FACTS

KNOWN: dict[str, Any] = {
    "columns": ["region", "sex"],
    "table": [["north", "f", 5], ["south", "f", 6], ["west", "m", 7], ["", "m", 2]],
    "others": 0,
    "from": "other-source",
    "public": "the census",
}
ONE = {"others": 0, "from": "other-source", "public": "-"}


def known(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**KNOWN, **changes}.items() if value is not None}


def test_values_become_codes_in_the_order_of_the_columns() -> None:
    """Whatever order the table names them in; a text that means "no value" is the last code."""
    (totals,) = configuration(known=[KNOWN]).totals
    assert (totals.attributes, totals.sizes) == ((0, 1), (3, 4))
    assert totals.counts == {(0, 0): 5, (0, 1): 6, (1, 2): 7, (1, 3): 2}


def test_a_number_is_named_by_its_bins() -> None:
    (totals,) = configuration(known=[{**ONE, "columns": ["age"], "table": [["[0, 18)", 7]]}]).totals
    assert totals.counts == {(0,): 7}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_file_is_the_table_that_one_would_type(tmp_path: Path, encoding: str) -> None:
    """Its columns are found by name; a changed count is another configuration, as with a changed code list."""
    lines = ["n;sex;else;region", "5;f;x;north", "6;f;x;south", "7;m;;west", "2;m;x;", ""]
    (tmp_path / "totals.csv").write_text("\n".join(lines), encoding=encoding)
    place = tmp_path / "people.yaml"
    place.write_text(
        yaml.safe_dump(
            raw(known=[known(table={"file": "totals.csv", "count": "n"})]), sort_keys=False
        )
    )
    found = load_configuration(place)
    assert found.totals[0].counts == configuration(known=[KNOWN]).totals[0].counts
    again = Configuration.from_canonical(found.canonical())
    assert (again.digest, again.totals) == (found.digest, found.totals)
    (tmp_path / "totals.csv").write_text("\n".join(lines).replace("7", "8"), encoding=encoding)
    assert load_configuration(place).written_digest != found.written_digest


def test_words_of_a_table_survive_yaml(tmp_path: Path) -> None:
    """`no` and `01` are values as they are written, as below `values`."""
    place = tmp_path / "people.yaml"
    columns = "columns: {a: {type: category, values: [no, 01], missing: []}}"
    table = "known: [{columns: [a], table: [[no, 3], [01, 4]], from: other-source, public: a list}]"
    place.write_text(
        f"dataset: d\nsource: d.csv\nprivacy: {{epsilon: 1, delta: 1e-6, unit: row}}\n{columns}\n{table}\n"
    )
    assert load_configuration(place).totals[0].counts == {(0,): 3, (1,): 4}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"others": None},
            r"known, entry 1: table does not list \[f, west\]: list every combination, or say others: 0",
        ),
        ({"from": None}, "known, entry 1: from is required"),
        (
            {"from": "elsewhere"},
            r"known, entry 1: from \(elsewhere\) must be other-source or these-rows",
        ),
        ({"public": None}, "known, entry 1: public is required"),
        ({"form": "other-source"}, "unknown key known, entry 1: form; did you mean from"),
        ({"columns": ["sex", "sex"]}, "known, entry 1: columns names a column twice"),
        (
            {"columns": ["sex", "town"]},
            "known, entry 1: columns names 'town', which is not among columns",
        ),
        (
            {"columns": ["sex", "private"]},
            "known, entry 1: columns names 'private', which must be a column",
        ),
        (
            {"columns": ["sex", "bought"]},
            "known, entry 1: columns names 'bought', which must be a column",
        ),
        (
            {"columns": ["sex", "signs"]},
            "known, entry 1: columns names 'signs', which must be a column",
        ),
        ({"table": []}, "known, entry 1: table must not be empty"),
        (
            {"table": [["f", "north"]]},
            "known, entry 1: table has the row .*, which must be a value of each of region, sex, then",
        ),
        (
            {"table": [["north", "x", 3]]},
            "known, entry 1: table has 'x', which is no value of 'sex'; its values: f, m",
        ),
        (
            {"table": [["north", "f", 3], ["north", " f", 4]]},
            r"known, entry 1: table has \[north,  f\] twice",
        ),
        (
            {"table": [["north", "f", "1,200"]]},
            "known, entry 1: table has the count '1,200', which must be a number",
        ),
        (
            {"table": [["north", "f", -1]]},
            "known, entry 1: table has the count '-1', which must be a number",
        ),
        (
            {"table": [["north", "f", 1.5]]},
            "known, entry 1: table has the count 1.5, which is not exact: say its sd",
        ),
        ({"table": [["north", "f", 0]]}, "known, entry 1: table must have a count above 0"),
        ({"table": {"file": "x.csv"}}, "known, entry 1: table .* must be a list of rows"),
        ({"sd": 0}, r"known, entry 1: sd \(0\) must be positive"),
    ],
)
def test_what_is_no_table_is_refused(changes: dict[str, Any], why: str) -> None:
    more = {
        "columns__private": {"type": "category", "domain": "private"},
        "columns__bought": {"type": "number", "bounds": "private", "within": [0, 9], "bins": 2},
        "columns__signs": {"type": "set", "values": ["x"], "max_values": 1},
    }
    with pytest.raises(InputError, match=why):
        configuration(**more, known=[known(**changes)])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            {"columns": ["sex"], "table": [["f", 11], ["m", 8]]},
            "add up to 20 and 19, which must be the same",
        ),
        ({"columns": ["sex"], "table": [["f", 12], ["m", 8]]}, "whose sums over sex differ"),
        ({"columns": ["sex"], "table": [["f", 12], ["m", 8]], "sd": 2}, None),
        ({"columns": ["sex"], "table": [["f", 11], ["m", 9]]}, None),
    ],
)
def test_exact_tables_have_to_agree(other: dict[str, Any], why: str | None) -> None:
    if why is None:
        configuration(known=[KNOWN, {**ONE, **other}])
        return
    with pytest.raises(InputError, match=why):
        configuration(known=[KNOWN, {**ONE, **other}])


def test_records_that_go_on_until_counts_are_used_up_add_up_to_nothing() -> None:
    for settings in ({"records": "exhaust"}, {"relax": False}):
        with pytest.raises(InputError, match="must be left out beside an exact known table"):
            configuration(known=[KNOWN], synthesize={"method": "aggregate-seeded", **settings})
    configuration(
        known=[known(sd=3)], synthesize={"method": "aggregate-seeded", "records": "exhaust"}
    )
    with pytest.raises(InputError, match="more than the 100000000 that can be made"):
        configuration(known=[known(table=[["north", "f", 10**9]])])


@pytest.mark.parametrize("aggregate", [{}, {"method": "k-tuples"}, {"method": "marginals"}])
def test_nothing_that_is_drawn_depends_on_them(aggregate: dict[str, Any]) -> None:
    """Neither what `auto` chooses nor any draw of the plan."""
    plain, told = (configuration(aggregate=aggregate, known=tables) for tables in (None, [KNOWN]))
    assert plan_budget(told) == plan_budget(plain)
    chosen = [resolve(raw(aggregate=aggregate, known=tables)) for tables in (None, [KNOWN])]
    assert chosen[0]["aggregate"] == chosen[1]["aggregate"]


def test_what_is_known_of_these_rows_is_told() -> None:
    """An exact table is an invariant; one with noise is not covered either; another source's is an assumption."""
    noisy = {
        **ONE,
        "columns": ["age"],
        "table": [["[0, 18)", 7]],
        "sd": 4,
        "from": "these-rows",
        "public": "a paper",
    }
    config = configuration(
        known=[
            known(**{"from": "these-rows"}),
            noisy,
            {**ONE, "columns": ["grade"], "table": [["1", 20]]},
        ]
    )
    told = promise(config, plan_budget(config), FACTS)
    assert [dict(one) for one in told.invariants or ()] == [
        {"attributes": ("region", "sex"), "records": 20, "published": "the census"}
    ]
    assert (
        "The counts of region, sex (exact; the census) were made from these rows"
        in told.not_covered[-2]
    )
    assert (
        "The counts of age (standard deviation 4; a paper) were made from these rows"
        in told.not_covered[-1]
    )
    assert told.assumptions[-1] == "The counts of grade (exact; -) were not made from these rows."
    said = [str(sentence) for sentence in known_forecast(config)]
    assert "an invariant, which privacy.json lists: the guarantee does not cover it" in said[0]
    assert said[-1] == "Exact known tables hold in the synthetic records, of which there will be 20"
    plain = promise(configuration(), plan_budget(configuration()), FACTS)
    assert plain.invariants is None
    assert list(known_forecast(configuration())) == []
