"""What is decoded is never what the configuration calls no value."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import chi2

from marginweave.base.errors import InputError
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.columns.binned import longest_gap
from marginweave.domain.labels import Domain
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.records.decode import decode_table
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration
from tests.support.tables import FixedWords

YEAR = {"type": "date", "bounds": ["2019-01-01", "2020-12-31"]}
CODED = {
    "age": {"type": "number", "bounds": [80, 100], "bins": 2, "decimals": 0, "missing": ["", "99", "80", "1e2", "85.0"]},
    "middle": {"type": "number", "bins": [0, 2, 9], "decimals": 0, "draw": "midpoint", "missing": ["0", "5", "4"]},
    "tenths": {"type": "number", "bins": [-1, 0, 1], "decimals": 1, "missing": ["0.3", "-0.1", "0"]},
    "known": {
        "type": "number", "bins": [0, 3, 9], "decimals": 0, "missing": ["1", "7"],
        "draw": {"edges": [1, 2, 9], "weights": [5, 1]},
    },
    "day": {**YEAR, "bins": ["2019-01-01", "2019-01-03", "2020-12-31"], "missing": ["2019-01-01", "2020-12-31"]},
    "numbered": {
        "type": "date", "bounds": ["2020-01-01", "2020-01-07"], "bins": ["2020-01-01", "2020-01-03", "2020-01-07"],
        "format": "%d%m%Y", "missing": ["1012020"],
    },
    "month": {**YEAR, "bins": "year", "format": "%Y-%m", "draw": "midpoint", "missing": ["2019-07", "2020-01"]},
    "weekday": {"type": "date", "bounds": ["2019-01-02", "2019-01-09"], "bins": "weekday", "missing": ["2019-01-02"]},
    "clock": {
        "type": "datetime", "bounds": ["2019-01-01T23:59:58", "2019-01-07"], "bins": "weekday",
        "missing": ["2019-01-01T23:59:59", "2019-01-03"],
    },
    "hour": {
        "type": "datetime", "bounds": ["2019-01-01T22:00", "2019-01-01T23:59:59"], "bins": "month",
        "format": "%Y-%m-%d %H", "missing": ["2019-01-01 22"],
    },
    "drugs": {"type": "set", "domain": "private", "max_values": 2, "missing": ["", "d1"]},
    "codes": {"type": "category", "domain": "private", "missing": ["", "9"]},
    "names": {"type": "category", "values": ["a", "b"], "outside": "other", "missing": ["", "NA"]},
}  # fmt: skip
ALL = {**{name: column for name, (column, _) in KINDS.items()}, **CODED}
CELLS = st.sampled_from(["d1;d2", "d1", "d3", "9.0", "9", "8", "a", "d2;9"])


@pytest.mark.parametrize("through_csv", [False, True], ids=["native", "csv"])
@pytest.mark.parametrize("name", ALL)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_what_is_decoded_is_read_back(name, through_csv, data):
    """decode(codes), read again by its own configuration, has the same nulls and the same codes, for every kind."""
    config = configuration(columns={"x": ALL[name]})
    (attribute,) = config.attributes
    labels = attribute.labels
    if attribute.private:
        raw = pa.table({"x": data.draw(st.lists(CELLS, min_size=1, max_size=6))})
        encoded = encode_table(clean_table(raw, config), config, FixedWords(1))
        labels = encoded.labels[0]
        # every label alone: synthetic cells need not be those of the table
        codes = np.arange(len(labels) + 1)
        codes = (
            np.stack([codes, np.full_like(codes, len(labels))], axis=1)
            if attribute.is_set
            else codes
        )
    elif attribute.is_set:
        codes = np.array([[0, 1], [1, 2], [3, len(labels)]])
    else:
        codes = np.tile(np.arange(len(labels) + 1), 30)
    domain = Domain(names=("x",), labels=(labels,))
    table = decode_table([codes], domain, config, data.draw(st.integers(0, 99)))
    again = table
    if through_csv:
        sink = io.BytesIO()
        pa_csv.write_csv(table, sink)
        texts = pa_csv.ConvertOptions(column_types={"x": pa.string()}, strings_can_be_null=False)
        again = pa_csv.read_csv(
            io.BytesIO(sink.getvalue()),
            parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
            convert_options=texts,
        )
    clean = clean_table(again, config)
    assert clean.column("x").is_null().to_pylist() == table.column("x").is_null().to_pylist()
    if not attribute.private:
        assert np.array_equal(encode_table(clean, config, FixedWords(1)).codes[0], codes)


def drawn(column, code, count=20_000):
    config = configuration(columns={"x": column})
    domain = Domain(names=("x",), labels=(config.columns["x"].labels,))
    return decode_table([np.full(count, code)], domain, config, 0).column("x").to_numpy()


def test_the_other_points_keep_their_shares():
    """Bins [0, 6) without 2 and 3: uniform on four points; by weights 1, 1, 3, 3 too. Chi-square, false alarm 1e-6 each."""
    column = {"type": "number", "bins": [0, 6, 9], "decimals": 0, "missing": ["2", "3"]}
    for draw, shares in (
        ("uniform", [1, 1, 1, 1]),
        ({"edges": [0, 3, 9], "weights": [3, 18]}, [1, 1, 3, 3]),
    ):
        seen = np.bincount(drawn({**column, "draw": draw}, 0).astype(int), minlength=6)
        expected = 20_000 * np.array(shares) / sum(shares)
        assert seen[2:4].sum() == 0
        assert ((seen[[0, 1, 4, 5]] - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 3)


def test_a_midpoint_that_is_missing_gives_way_to_its_neighbor():
    """The middle of [0, 10) is 4; without 3, 4 and 5 the nearest, and lower, one is 2 or 6."""
    column = {"type": "number", "bins": [0, 10, 20], "decimals": 0, "draw": "midpoint"}
    for missing, point in ((["4"], 3), (["4", "3"], 5), (["3", "4", "5"], 2), (["9"], 4)):
        assert set(drawn({**column, "missing": missing}, 0, 5).tolist()) == {point}


@pytest.mark.parametrize(
    "column",
    [
        {"type": "number", "bins": [0, 1, 9], "decimals": 0, "missing": ["0"]},
        {"type": "number", "bins": [0, 1, 9], "decimals": 0, "missing": ["0"], "draw": "midpoint"},
        {
            "type": "number",
            "bounds": "private",
            "within": [0, 4],
            "bins": 2,
            "decimals": 0,
            "missing": ["1"],
        },
        {**YEAR, "bins": "year", "format": "%Y", "missing": ["2020"]},
        {**YEAR, "bins": ["2019-01-01", "2019-01-02", "2020-12-31"], "missing": ["2019-01-01"]},
        {"type": "category", "values": ["a"], "outside": "other", "missing": ["other"]},
        {"type": "category", "values": ["09"], "missing": ["9"]},
        {"type": "set", "values": ["a"], "max_values": 2, "outside": "other", "missing": ["other"]},
        {"type": "set", "values": ["a", "b"], "max_values": 2, "missing": ["b; a"]},
        {"type": "set", "domain": "private", "max_values": 2, "missing": ["n;a"]},
        {"type": "boolean", "missing": ["false"]},
    ],
)
def test_a_column_that_could_only_write_a_missing_text_is_refused(column):
    """The configuration says so before anything is paid; with a list of its own the column is fine."""
    with pytest.raises((InputError, ValidationError), match="missing"):
        configuration(columns={"x": column})
    configuration(columns={"x": {**column, "missing": []}})


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 60), max_size=8), st.integers(1, 4), st.data())
def test_released_bounds_leave_a_value_in_every_bin(codes, bins, data):
    """Whatever private bounds are released, no bin is nothing but missing codes: the run never stops after the draw."""
    missing = sorted(map(str, codes))
    column = {
        "type": "number",
        "bounds": "private",
        "within": [0, 60],
        "bins": bins,
        "decimals": 0,
        "missing": missing,
    }
    config = configuration(columns={"x": column})
    declared = config.columns["x"]
    assert isinstance(declared, NumberColumn)
    low, high = sorted(data.draw(st.tuples(*[st.sampled_from(declared.bound_candidates)] * 2)))
    resolved = config.with_bounds({"x": (low, high)}).columns["x"]
    assert isinstance(resolved, NumberColumn)
    assert 0 <= resolved.edges[0] < resolved.edges[-1] <= 60
    runs = resolved.runs(missing)
    assert runs is None or {owner for owner, _, _ in runs} == set(range(bins))


@given(st.lists(st.tuples(st.integers(-9, 30), st.integers(0, 4)), max_size=8))
def test_the_longest_gap_is_counted_as_one_by_one(pairs):
    """Against going through every point."""
    points = {p for start, more in pairs for p in range(start, start + more + 1)}
    longest = run = 0
    for point in range(-10, 40):
        run = run + 1 if point in points else 0
        longest = max(longest, run)
    assert longest_gap([(start, start + more) for start, more in pairs]) == longest


@pytest.mark.parametrize(
    "column",
    [{"bins": ["-0.0", 1, 2]}, {"bins": [-1, 0], "codes": {"-0": "none"}}, {"bins": [-1, 0]}],
)
def test_a_negative_zero_is_0(column):
    """Declared as an end or a code, or the product of the smallest draw of a bin that ends at 0."""
    config = configuration(
        columns={"x": {"type": "number", "decimals": 2, "missing": [], **column}}
    )
    domain = Domain(names=("x",), labels=(config.columns["x"].labels,))
    codes = np.repeat(np.arange(len(domain.labels[0])), 2_000)
    drawn = decode_table([codes], domain, config, 0).column("x").to_numpy()
    assert (drawn == 0).any()
    assert not np.signbit(drawn[drawn == 0]).any()
    assert not any("-0," in label or "-0)" in label for label in domain.labels[0])
