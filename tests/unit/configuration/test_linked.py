"""Linked tables are declared in one way, and what cannot be one is refused in a sentence with its key."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.configuration.yaml_source import parse_yaml
from tests.support.linked_tables import HOSPITAL, hospital


def changed(**changes: Any) -> dict[str, Any]:
    """The hospital with changes: a path with `__` for the dot, None removes the key."""
    raw = copy.deepcopy(HOSPITAL)
    for path, value in changes.items():
        *above, last = path.split("__")
        place: dict[str, Any] = raw
        for key in above:
            place = place[key]
        place[last] = value
        if value is None:
            del place[last]
    return raw


STAYS = "tables__stays__"
REFUSED = [
    (
        {f"{STAYS}columns__days__bounds": [0, 14]},
        "tables.stays.columns.days must have bounds that hold those of columns.longest: bounds: [0, 60]",
    ),
    (
        {f"{STAYS}columns__admitted__bounds": ["2024-03-01", "2025-03-31"]},
        "tables.stays.columns.admitted must have bounds that hold those of columns.first: bounds: [2024-01-01, 2025-03-31]",
    ),
    (
        {"columns__longest__decimals": 1},
        "tables.stays.columns.days must have decimals: 1, or none, as columns.longest has",
    ),
    (
        {"columns__emergency__outside": "error"},
        "columns.emergency must not have outside: error, as its cells follow from rows",
    ),
    (
        {"privacy__unit": "row"},
        "tables needs the column that says whose row it is: privacy: {unit:",
    ),
    (
        {"aggregate": {"method": "k-tuples"}},
        "aggregate: {method: k-tuples} must not stand beside tables",
    ),
    (
        {
            "known": [
                {
                    "columns": ["sex"],
                    "table": [["f", 3], ["m", 4]],
                    "from": "other-source",
                    "public": "x",
                }
            ]
        },
        "known must not stand beside tables",
    ),
    ({"columns__stays": None}, "tables.stays.derive.stays must be declared under columns, too"),
    (
        {"columns__stays": {"type": "boolean"}},
        "columns.stays must be a number with decimals: 0, as count gives",
    ),
    (
        {"columns__emergency": {"type": "category", "values": ["a"]}},
        "columns.emergency must be a boolean, as any gives",
    ),
    (
        {
            "columns__first": {
                "type": "datetime",
                "bounds": ["2024-01-01", "2024-12-31"],
                "bins": "month",
            }
        },
        "columns.first must be a date, as smallest gives",
    ),
    ({"missing": []}, 'columns.longest needs missing: [""], as largest gives no value'),
    (
        {f"{STAYS}columns__kind": None},
        "tables.stays.derive names 'kind', which is not among its columns",
    ),
    (
        {f"{STAYS}columns__kind": {"type": "category", "domain": "private"}},
        "tables.stays.columns.kind must be a category, boolean, number or date with public",
    ),
    (
        {
            f"{STAYS}columns__kind": {
                "type": "category",
                "values": ["planned", "emergency", "birth"],
                "outside": "error",
            }
        },
        "tables.stays.columns.kind must not have impute, or outside: error",
    ),
    (
        {
            f"{STAYS}columns__kind": {
                "type": "category",
                "values": ["planned", "emergency", "birth", ""],
            }
        },
        "tables.stays.columns.kind declares '' as a value and as missing",
    ),
    ({f"{STAYS}by": ""}, "tables.stays.by must not be empty"),
    ({f"{STAYS}derive": {}}, "tables.stays needs at_most, with which its rows are counted, or"),
    ({f"{STAYS}beside": ["sex"]}, "tables.stays.beside needs at_most"),
    ({f"{STAYS}share": 0.2}, "tables.stays.share needs at_most"),
    (
        {
            f"{STAYS}at_most": 2,
            f"{STAYS}share": 0.9,
            "tables__more": {
                "source": "m.csv",
                "at_most": 2,
                "columns": {"a": {"type": "boolean"}},
            },
        },
        "tables must leave something of the budget for the source; the shares of counted tables are 0.2, 0.9",
    ),
    ({f"{STAYS}at_most": 0}, "tables.stays.at_most (0) must be"),
    (
        {f"{STAYS}at_most": 3, "privacy__unit": {"column": "patient", "max_records": 2}},
        "tables.stays.at_most needs one row of the source for each patient: privacy: {unit: {column: patient, max_records: 1}}",
    ),
    (
        {f"{STAYS}at_most": 3, "privacy__unit": {"column": "patient", "join": True}},
        "tables.stays.at_most needs one row of the source for each patient",
    ),
    (
        {
            f"{STAYS}at_most": 3,
            "privacy__delta": 0,
            "aggregate": {"method": "marginals", "cliques": {"all": 2}, "noise": "laplace"},
        },
        "tables.stays.at_most needs a privacy.delta above 0",
    ),
    (
        {f"{STAYS}at_most": 3, f"{STAYS}beside": ["sex", "age"]},
        "tables.stays.beside names 'age', which is no counted column of the source",
    ),
    (
        {f"{STAYS}at_most": 3, f"{STAYS}columns__ward": {"type": "category", "domain": "private"}},
        "tables.stays.columns.ward must be a category, boolean, number or date with public",
    ),
    (
        {"tables__more": {"source": "more.csv", "at_most": 2}},
        "tables.more.at_most needs columns: those of the table that are counted",
    ),
    (
        {f"{STAYS}structure": {"ordered": [{"columns": ["admitted", "discharged"]}]}},
        "tables.stays.structure needs at_most, with which rows are counted",
    ),
    (
        {
            f"{STAYS}at_most": 3,
            f"{STAYS}structure": {"sum": [{"column": "days", "of": ["a", "b"]}]},
        },
        "tables.stays.structure.sum must not be used: rows of linked tables have forbidden",
    ),
    (
        {f"{STAYS}at_most": 3, f"{STAYS}structure": {"ordered": [{"columns": ["days", "sex"]}]}},
        "tables.stays.structure names 'sex', which is not among columns",
    ),
    (
        {f"{STAYS}at_most": 3, f"{STAYS}structure": {"forbidden": [{"kind": "x", "days": "99"}]}},
        "tables.stays.structure",
    ),
    (
        {f"{STAYS}derive__emergency": "some"},
        "tables.stays.derive.emergency (some) must be count, or a mapping such as",
    ),
    (
        {f"{STAYS}derive__emergency": {"any": {"kind": "x"}}},
        "tables.stays.derive.emergency names 'x', which is no value of column 'kind'",
    ),
    (
        {f"{STAYS}derive__emergency": {"any": {"kind": ""}}},
        "tables.stays.derive.emergency has a condition on 'kind' that no value meets",
    ),
    (
        {f"{STAYS}derive__emergency": {"any": {"days": {"from": 7}}}},
        "tables.stays.derive.emergency has a range of column 'days' that ends inside a bin",
    ),
    (
        {f"{STAYS}derive__emergency": {"any": {}}},
        "tables.stays.derive.emergency.any must not be empty",
    ),
    (
        {f"{STAYS}derive__emergency": {"ani": {"kind": "birth"}}},
        "unknown key tables.stays.derive.emergency.ani; did you mean any?",
    ),
    (
        {f"{STAYS}derive__longest": {"largest": "kind"}},
        "tables.stays.derive.longest.largest must name a number or a date",
    ),
    (
        {f"{STAYS}derive__longest": {"largest": "days", "smallest": "days"}},
        "tables.stays.derive.longest ({largest: days, smallest: days}) must have one of",
    ),
    (
        {f"{STAYS}derive__stays": {"any": {"kind": "birth"}, "where": {"kind": "birth"}}},
        "tables.stays.derive.stays ({any: {kind: birth}, where: {kind: birth}}) must have where",
    ),
    (
        {f"{STAYS}derive__readmitted": {"within": "30 days", "from": "admitted"}},
        "tables.stays.derive.readmitted ({within: 30 days, from: admitted}) must have from and to",
    ),
    (
        {f"{STAYS}derive__readmitted": {"within": "a month", "from": "admitted", "to": "admitted"}},
        "tables.stays.derive.readmitted.within (a month) must be a number of days",
    ),
    (
        {f"{STAYS}derive__readmitted": {"within": "30 days", "from": "days", "to": "admitted"}},
        "tables.stays.derive.readmitted needs two columns of dates",
    ),
    (
        {"tables__more": {"source": "more.csv", "derive": {"stays": "count"}}},
        "tables.stays.derive.stays is derived twice",
    ),
    ({"tables__more/less": {"source": "more.csv", "derive": {"sex": "count"}}}, "tables.more/less"),
    (
        {
            "structure": {
                "determined": [
                    {"column": "emergency", "by": "sex", "mapping": {"f": True}, "default": False}
                ]
            }
        },
        "tables.stays.derive.emergency must be a counted column",
    ),
    ({"tables": []}, "tables ([]) must be a mapping"),
    ({"resize": {"records": 10}}, "resize must not stand beside tables"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[m[:40] for _, m in REFUSED])
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_configuration(changed(**changes))
    assert str(refusal.value).startswith(message)


def test_tables_with_a_number_of_rows_have_synthetic_ones() -> None:
    """Those that are counted, derive a number of rows, and belong to records of a mixture."""
    stays = {**HOSPITAL["tables"]["stays"], "at_most": 3}
    marginals = {"aggregate": {"method": "marginals"}}
    config = hospital(**marginals, synthesize={"method": "mixture"}, tables={"stays": stays})
    assert dict(config.recorded_tables) == {"stays": "stays"}
    assert config.key_of("stays") == "patient_id"
    assert [*config.of_rows("stays").columns] == ["kind", "days", "admitted", "discharged"]
    gum = hospital(**marginals, synthesize={"method": "gum"}, tables={"stays": stays})
    assert not gum.recorded_tables
    derived = {name: rule for name, rule in stays["derive"].items() if name != "stays"}
    no_number = {"stays": {**stays, "derive": derived}}
    without = hospital(**marginals, synthesize={"method": "mixture"}, tables=no_number)
    assert not without.recorded_tables
    assert not hospital().recorded_tables


def test_both_forms_have_one_digest() -> None:
    """As a mapping, as a file, and as the canonical text that a manifest has."""
    config = hospital()
    lines = [f"{key}: {yaml_line(value, below=key)}" for key, value in HOSPITAL.items()]
    read = parse_configuration(parse_yaml("\n".join(lines)))
    assert read.written_digest == config.written_digest
    assert read.digest == config.digest
    assert Configuration.from_canonical(config.canonical()).digest == config.digest


def test_texts_of_conditions_are_as_written() -> None:
    """A code such as 01, or no, is no number and no Boolean; a table and a derived column may have any name."""
    text = """
dataset: d
source: people.csv
privacy: {epsilon: 1, delta: 1e-6, unit: {column: id, max_records: 1}}
columns: {columns: {type: boolean}, source: {type: number, bounds: [0, 9], bins: 3, decimals: 0}}
tables:
  values:
    source: v.csv
    columns: {missing: {type: category, values: [01, 1, no]}}
    derive: {columns: {any: {missing: [01, no]}}, source: count}
"""
    config = parse_configuration(parse_yaml(text))
    assert config.derived["columns"][1].conditions == {"missing": ("01", "no")}
    assert (config.tables or {})["values"].by is None
    assert config.stored_names == ("id",)


def test_answers_and_numbers_of_rows_always_have_a_value() -> None:
    """So no table has a cell for a missing one, also of joined rows; 0 can be declared missing.

    A number of rows reads no cell, and is always as declared.
    """
    for unit in ({"max_records": 1}, {"join": True}):
        privacy = {"epsilon": 1, "delta": 1e-6, "unit": {"column": "patient", **unit}}
        config = hospital(privacy=privacy)
        optional = {attribute.name for attribute in config.attributes if attribute.optional}
        assert optional - {"sex"} == {"longest", "first"}
        assert config.undeclared[-4:] == ("emergency", "longest", "first", "readmitted")
        plain = config.with_undeclared(config.undeclared).attributes
        gaps = {attribute.name: len(attribute.gaps) for attribute in plain}
        assert [gaps[name] for name in ("stays", "emergency", "longest")] == [0, 1, 2]
    column = {**HOSPITAL["columns"]["stays"], "bins": [0, 2, 6], "missing": ["0"]}
    config = hospital(columns={**HOSPITAL["columns"], "stays": column})
    assert config.lacks_values("stays")


def test_a_configuration_without_tables_has_no_key_of_them() -> None:
    without = {key: value for key, value in HOSPITAL.items() if key != "tables"}
    config = parse_configuration(without)
    assert "tables" not in config.canonical()
    assert "tables" not in config.written
    assert config.stored_names == config.source_names
