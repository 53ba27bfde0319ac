"""Every rule of a configuration is refused with one sentence that names the key."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import parse_yaml
from tests.support.configurations import configuration, raw

SEEDED = {"synthesize__method": "aggregate-seeded"}
REFUSED = [
    (
        {"privacy__delta": 0.0011},
        "privacy has delta (0.0011) above 0.001: with that probability all may be disclosed",
    ),
    (
        {"privacy__delta": 0.0011, "privacy__weak_delta": " "},
        "privacy has weak_delta without a reason",
    ),
    ({"privacy__epsilon": 0}, "privacy.epsilon (0) must be positive"),
    ({"privacy__epsilon": -1.0}, "privacy.epsilon (-1.0) must be positive"),
    ({"privacy__epsilon": math.nan}, "privacy.epsilon (nan) must be finite"),
    ({"privacy__epsilon": math.inf}, "privacy.epsilon (inf) must be finite"),
    ({"privacy__epsilon": True}, "privacy.epsilon (true) must be a number"),
    ({"privacy__epsilon": None}, "privacy.epsilon is required"),
    ({"privacy__delta": 0}, "privacy.delta (0) must be positive where k-tuples are counted"),
    ({"privacy__delta": 1}, "privacy.delta (1) must be below 1"),
    ({"privacy__delta": None}, "privacy.delta is required"),
    ({"privacy__unit": None}, "privacy.unit is required"),
    (
        {"privacy__unit": "person"},
        "privacy.unit (person) must be row, {column: ID, max_records: N} or {column: ID, join",
    ),
    ({"privacy__unit": {"column": "id"}}, "privacy.unit needs either max_records"),
    (
        {"privacy__unit": {"column": "id", "max_record": 3}},
        "unknown key privacy.unit.max_record; did you mean max_records?",
    ),
    ({"privacy__epsilo": 1}, "unknown key privacy.epsilo; did you mean epsilon?"),
    ({"aggregates": {}}, "unknown key aggregates; did you mean aggregate?"),
    ({"privacy__neighbors": "both"}, "privacy.neighbors (both) must be add-remove or replace-one"),
    (
        {"aggregate__reporting_length": 5},
        "aggregate.reporting_length (5) must be at most the number of columns (4)",
    ),
    ({"aggregate__reporting_length": 0}, "aggregate.reporting_length (0) must be at least 1"),
    (
        {"aggregate__sigma": [1, 1]},
        "aggregate.sigma has 2 proportions; it must have one a length (3)",
    ),
    ({"aggregate__count_share": 0}, "aggregate.count_share (0) must be positive"),
    ({"aggregate__percentile": 100}, "aggregate.percentile (100) must lie in [1, 100), or be none"),
    (
        {"aggregate__thresholds": "some"},
        "aggregate.thresholds (some) must be {fixed: …} or {adaptive: …}",
    ),
    (
        {"aggregate__thresholds": "minimize"},
        "aggregate.thresholds: minimize is gone: write thresholds: {adaptive:",
    ),
    ({"aggregate__fabrication": "none"}, "aggregate.fabrication is gone: leave it out;"),
    ({"aggregate__on_overflow": "stop"}, "aggregate.on_overflow is gone: leave it out;"),
    (
        {"aggregate__thresholds": {"fixed": {"4": 3}}},
        "aggregate.thresholds names length 4; the reporting length is 3",
    ),
    ({"aggregate__split": "shares"}, "aggregate.split is gone: leave it out;"),
    (
        {"structure": {"grouped": []}},
        "structure.grouped is gone: forbid the combinations that cannot be",
    ),
    ({"structure": {"at_most": []}}, "structure.at_most is gone: forbid the combinations of bins"),
    (
        {"columns__age__bins": {"quantiles": 4}},
        "columns.age.bins.quantiles is gone: write a list of edges",
    ),
    ({"structure": {"repair": "drop"}}, "structure.repair is gone: leave it out;"),
    ({"privacy__accountant": "gdp"}, "privacy.accountant is gone: leave it out;"),
    ({"columns": {}}, "columns must not be empty"),
    (
        {"columns__age__bins": [0, 30, 18, 100]},
        "columns.age has bins out of order: 30 is before 18",
    ),
    (
        {"columns__age__bins": [0, 18, 99]},
        "columns.age has bins that do not begin and end at its bounds",
    ),
    (
        {"columns__age__bounds": [100, 0]},
        "columns.age has bounds (100, 0): the minimum must be below the maximum",
    ),
    ({"columns__age__bins": 0}, "columns.age.bins (0) must be between 1 and 100000"),
    (
        {"columns__age__bins": 300},
        "columns.age has a bin, [0.333333333333, 0.666666666667), without any number",
    ),
    (
        {"columns__age__decimals": 15},
        "columns.age has decimals (15), which must lie between 0 and 12 for its bounds",
    ),
    (
        {"columns__age": {"type": "number", "bins": [0, 1e16]}},
        "columns.age has an edge beyond 2^53",
    ),
    (
        {"columns__sex__values": []},
        "columns.sex needs values (its public domain) or domain: private",
    ),
    ({"columns__sex__values": ["1", "1.0"]}, "columns.sex declares a value twice: '1' and '1.0'"),
    ({"columns__sex__domain": "private"}, "columns.sex has both values and domain: private"),
    (
        {"columns__sex__type": "text"},
        "columns.sex.type (text) must be category, boolean, number, date, datetime, set, ",
    ),
    ({"columns__sex__valeus": ["f"]}, "unknown key columns.sex.valeus; did you mean values?"),
    ({"columns__age__value": 3}, "unknown key columns.age.value"),
    (
        {"columns__age__confirm": True},
        "columns.age was drafted from the data and waits for confirmation: write public:",
    ),
    (
        {"columns__age__impute": "median"},
        "columns.age.impute (median) must not be the median of the column",
    ),
    (
        {"columns__age__impute": {"distribution": "gaussian", "mean": "x", "deviation": 1}},
        "columns.age.impute.mean (x) must be a number",
    ),
    (
        {"columns__age__impute": {"weight": {"1": 1}}},
        "columns.age.impute ({weight: {1: 1}}) must be {distribution:",
    ),
    ({"source": ""}, "source.file () must not be empty"),
    (
        {"source": ["a.csv", "b.csv"]},
        "source ([a.csv, b.csv]) must be one table, such as the one with a row a person",
    ),
    (
        {"source": {"file": "a.csv", "encoding": "utf-7"}},
        "source.encoding (utf-7) must be utf-8, utf-16, latin-1 or windows",
    ),
    (
        {"source": {"file": "a.csv", "delimiter": ";"}},
        "source.delimiter (;) must be comma, semicolon, tab or pipe",
    ),
    (
        {"source": {"file": "a.csv", "delimeter": "tab"}},
        "unknown key source.delimeter; did you mean delimiter?",
    ),
    ({"source": None}, "source is required"),
    ({"columns__sex__type": None}, "columns.sex.type is required"),
    ({"columns__sex__missing": ["f"]}, "columns.sex declares 'f' as a value and as missing"),
    ({"synthesize__records": 1e30}, "synthesize.records (1e+30) must lie in [0, 100000000]"),
    ({**SEEDED, "synthesize__scale": 1e30}, "synthesize.scale (1e+30) must be at most 100"),
    (
        {"privacy__epsilon": None, "privacy__epsilom": 1},
        "unknown key privacy.epsilom; did you mean epsilon?",
    ),
    (
        {**SEEDED, "synthesize__records": "all"},
        "synthesize.records (all) must be count, exhaust or a whole number",
    ),
    ({"synthesize__records": 1.5}, "synthesize.records (1.5) must be count, 4x or a whole number"),
    (
        {"synthesize__records": "exhaust"},
        "synthesize.records (exhaust) must be count, 4x or a whole number",
    ),
    ({"dataset": "../x"}, "dataset (../x) must be 1 to 64 letters"),
]


LINKED = "tables cannot be joined row by row. Name the table with a row a person as source"
HOUSEHOLDS = "households are not supported: their members are not kept together in synthetic records. To protect whole"
WEIGHTS = "survey weights are not supported: every record counts once. Declare the weight as a number column"
UNSUPPORTED = [
    ({"weights": "PWGTP"}, f"weights: {WEIGHTS}"),
    ({"columns__age__weight": True}, f"columns.age.weight: {WEIGHTS}"),
    ({"join": {"on": "id"}}, f"join: {LINKED}"),
    ({"source": {"file": "a.csv", "join": "b.csv"}}, f"source.join: {LINKED}"),
    ({"household": "HID"}, f"household: {HOUSEHOLDS}"),
    ({"privacy__household": "HID"}, f"privacy.household: {HOUSEHOLDS}"),
    ({"privacy__unit": "household"}, f"privacy.unit.household: {HOUSEHOLDS}"),
    ({"privacy__unit": {"household": "HID"}}, f"privacy.unit.household: {HOUSEHOLDS}"),
]


@pytest.mark.parametrize(("changes", "message"), UNSUPPORTED, ids=[m[:20] for _, m in UNSUPPORTED])
def test_what_is_not_supported_says_what_to_do_instead(changes: dict, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_configuration(raw(**changes))
    assert str(refusal.value).startswith(message)


def test_the_sentences_of_the_refusals_can_be_followed() -> None:
    """What they advise is accepted; and a column may have any of these names."""
    assert (
        configuration(privacy__unit={"column": "ID", "join": True}).privacy.unit_key == "subject:ID"
    )
    assert (
        configuration(
            privacy__unit={"column": "HOUSEHOLD", "max_records": 8}
        ).privacy.stability.records
        == 8
    )
    names = {
        name: {"type": "number", "bounds": [0, 9], "bins": 3}
        for name in ("weights", "household", "join", "sources")
    }
    assert configuration(columns=names).names == tuple(names)


def test_a_source_has_one_canonical_form() -> None:
    """The path alone is as good as the mapping; a declared encoding or delimiter is read back and counts in the digest."""
    plain, mapped = (
        configuration(),
        configuration(source={"file": "people.csv", "encoding": "utf-8"}),
    )
    assert (plain == mapped, plain.digest == mapped.digest) == (True, True)
    other = configuration(source={"file": "people.csv", "delimiter": "semicolon"})
    assert Configuration.from_canonical(other.canonical()) == other
    assert other.digest != plain.digest


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_a_broken_rule_is_named(changes: dict, message: str) -> None:
    mapping = {**raw(), "columns": {}} if changes == {"columns": {}} else raw(**changes)
    with pytest.raises(InputError) as refusal:
        parse_configuration(mapping)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "where aggregate is left to auto"),
        (
            {"aggregate": {"method": "auto"}, "synthesize__method": "gum"},
            "where aggregate is left to auto",
        ),
        ({"synthesize__method": "aggregate-seeded"}, "with synthesize.method: aggregate-seeded"),
        ({"aggregate": {"method": "k-tuples"}}, "where k-tuples are counted"),
    ],
)
def test_a_delta_of_0_is_refused_in_terms_of_what_was_written(changes: dict, why: str) -> None:
    """No method is named that nobody wrote, and the section that the message offers is accepted."""
    written = {"aggregate": None, **changes}
    with pytest.raises(InputError) as refusal:
        parse_configuration(raw(privacy__delta=0, **written))
    message = str(refusal.value)
    assert message.startswith(f"privacy.delta (0) must be positive {why}")
    assert ("k-tuples" in message) is ("k-tuples" in why)
    offered = parse_yaml(message[message.index("aggregate: {") : message.rindex("}") + 1])
    assert parse_configuration(raw(privacy__delta=0, **offered)).privacy.delta == 0


def test_defaults_are_those_of_the_design() -> None:
    plain = configuration()
    assert (plain.reporting_length, plain.percentile) == (3, 99.0)
    assert (plain.tuples.proportions(3), plain.synthesize.method) == ((1, 1, 1), "mixture")
    assert plain.privacy.neighbors == "add-remove"


def test_the_percentile_is_dropped_where_no_column_can_be_missing() -> None:
    columns = {
        "a": {"type": "category", "values": ["x", "y"], "outside": "other", "missing": []},
        "b": {"type": "number", "bounds": [0, 1], "bins": 3, "outside": "error", "missing": []},
    }
    assert configuration(columns=columns).percentile is None
    assert configuration(columns=columns, aggregate__percentile=95).percentile == 95


def test_the_canonical_form_is_read_back() -> None:
    for changes in (
        {},
        {
            "aggregate__percentile": "none",
            "aggregate__thresholds": {"adaptive": {"2": 0.1}, "rule": "paper"},
        },
        {
            "aggregate__sigma": [1, 2, 3],
            "synthesize__records": 10,
            "columns__sex__domain": "private",
            "columns__sex__values": None,
        },
    ):
        before = configuration(**changes)
        after = Configuration.from_canonical(before.canonical())
        assert after == before
        assert after.digest == before.digest


@given(
    st.dictionaries(
        st.sampled_from(["epsilon", "delta", "seed", "scale"]), st.integers(1, 9), min_size=1
    )
)
def test_every_key_counts_in_the_digest(numbers: dict[str, int]) -> None:
    """Two configurations have the same digest exactly when they are equal."""
    places = {
        "epsilon": "privacy__epsilon",
        "delta": "privacy__delta",
        "seed": "synthesize__seed",
        "scale": "synthesize__scale",
    }
    changes = {places[k]: v / 10_000 if k == "delta" else v for k, v in numbers.items()}
    one, other = configuration(**SEEDED), configuration(**SEEDED, **changes)
    assert (one == other) == (one.digest == other.digest)


def test_the_order_of_columns_counts_in_the_digest() -> None:
    forward = raw()
    backward = {**forward, "columns": dict(reversed(forward["columns"].items()))}
    assert parse_configuration(forward).digest != parse_configuration(backward).digest


def test_bins_of_very_unequal_width_have_a_grid() -> None:
    """The decimals of a synthetic value never ask for more than a double holds."""
    column = configuration(columns__age={"type": "number", "bins": [0, 1e-9, 1e14, 1e15]}).columns[
        "age"
    ]
    assert isinstance(column, NumberColumn)
    assert column.resolution == 0
    assert [column.grid(i) for i in range(3)] == [(0, 0), (1, 10**14 - 1), (10**14, 10**15)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:\n\tb: 1\n", "c, line 2: a tab is where YAML has spaces; write spaces"),
        (
            "a: b: 1\n",
            "c, line 1: put a text with a colon in quotes; indent the keys of one level alike",
        ),
        (
            "a: 1\nb:2\nc: 3\n",
            "c, line 2: this is no key with a value; write a colon and a space between them, as in rows: 100",
        ),
        (
            "a: 1\n b: 2\n",
            "c, line 2: put a text with a colon in quotes; indent the keys of one level alike",
        ),
        ("a:\n  b: 1\n c: 2\n", "c, line 3: the keys of one level must be indented alike"),
        (
            "a: [1, 2}\n",
            "c, line 1: a bracket is not closed, or a comma is missing before this place",
        ),
        ("a: %b\n", "c, line 1: a value begins with a sign that YAML reserves; put it in quotes"),
        (
            "a: [*, b]\n",
            "c, line 1: a value begins with a sign that YAML reserves; put it in quotes",
        ),
    ],
)
def test_what_is_no_yaml_is_told_in_words_that_say_what_to_do(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_yaml(text, "c")
    assert str(error.value) == said


def test_all_broken_rules_of_a_file_are_told_and_none_that_another_causes() -> None:
    structure = {"forbidden": [{"sex": ["f", True, None]}]}
    with pytest.raises(InputError) as error:
        parse_configuration(raw(rows="12k", knwon=1, source=None, structure=structure))
    assert str(error.value) == (
        "unknown key knwon; did you mean known? Also: source is required; rows (12k) must be a number; structure.forbidden, "
        "entry 1 ({sex: [f, true, empty]}) must be a mapping of two or more columns to a value, or to a list of values"
    )
