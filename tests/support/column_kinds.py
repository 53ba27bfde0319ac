"""Columns of every kind for property tests, each with a strategy for the texts that a table may have in it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

WORDS = ["f", "m", "no", "01", "1", "x y", "Ä", "7.50"]
NOISE = st.sampled_from(
    ["", " ", "zz", "1_0", "nan", "-inf", "1e400", "2019-02-30", "31.12.2019", "a;b;;zz", "N"]
)


def texts(*, good: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Mostly values of the column, sometimes anything else, sometimes with spaces around."""
    return st.builds(
        lambda text, pad: f"{pad}{text}{pad}",
        st.one_of(good, good, NOISE),
        st.sampled_from(["", " "]),
    )


CATEGORY = {"type": "category", "values": WORDS}
KINDS: dict[str, tuple[dict[str, Any], st.SearchStrategy[str]]] = {
    "category": (CATEGORY, texts(good=st.sampled_from(WORDS))),
    "same": (
        {
            "type": "category",
            "values": ["f", "m", "1"],
            "same": {"F": "f", "Female": "f", "01": "1", "2": "m"},
        },
        texts(good=st.sampled_from(["f", "F", "Female", "m", "2", "2.0", "01", "1.0"])),
    ),
    "other": ({**CATEGORY, "outside": "other"}, texts(good=st.sampled_from(WORDS))),
    "private": ({"type": "category", "domain": "private"}, texts(good=st.sampled_from(WORDS))),
    "boolean": (
        {"type": "boolean"},
        texts(good=st.sampled_from(["true", "FALSE", "1", "0", "Yes", "n"])),
    ),
    "spelled": (
        {"type": "boolean", "true_values": ["N", "ja"], "false_values": ["Y"]},
        texts(good=st.sampled_from(["N", "ja", "JA", "y"])),
    ),
    "count": (
        {"type": "number", "bounds": [0, 100], "bins": 7, "decimals": 0},
        texts(good=st.integers(-5, 120).map(str)),
    ),
    "real": (
        {"type": "number", "bins": [-1.5, 0, 0.25, 10], "draw": "midpoint"},
        texts(good=st.floats(-3, 12).map(repr)),
    ),
    "coded": (
        {
            "type": "number",
            "bounds": [0, 50],
            "bins": 5,
            "decimals": 1,
            "codes": {"97.5": "refused", "51": "above", "7": "n"},
        },
        texts(good=st.one_of(st.integers(-5, 60).map(str), st.sampled_from(["97.5", "51", "7"]))),
    ),
    "steps": (
        {
            "type": "number",
            "bins": {"min": 0, "max": 1, "step": 0.3},
            "outer": "open",
            "decimals": 2,
        },
        texts(good=st.floats(-1, 2).map(lambda x: f"{x:.3f}")),
    ),
    "known": (
        {
            "type": "number",
            "bounds": [0, 50],
            "bins": [0, 10, 20, 50],
            "draw": {"edges": [0, 5, 25], "weights": [1, 3]},
        },
        texts(good=st.floats(0, 50).map(repr)),
    ),
    "date": (
        {"type": "date", "bounds": ["2018-12-30", "2020-03-01"], "bins": "month"},
        texts(good=st.dates().map(str)),
    ),
    "weekday": (
        {
            "type": "date",
            "bounds": ["2019-01-02", "2019-01-09"],
            "bins": "weekday",
            "format": "%d.%m.%Y",
        },
        texts(good=st.integers(1, 31).map(lambda day: f"{day:02d}.01.2019")),
    ),
    "year": (
        {"type": "date", "bounds": ["2012-06-01", "2020-03-01"], "bins": "year", "format": "%Y"},
        texts(good=st.integers(2010, 2022).map(str)),
    ),
    "week": (
        {
            "type": "datetime",
            "bounds": ["2019-12-25T10:00:00", "2020-01-20"],
            "bins": "week",
            "draw": "midpoint",
        },
        texts(good=st.datetimes().map(str)),
    ),
    "moment": (
        {
            "type": "datetime",
            "bins": ["1969-12-31T23:00", "1970-01-01T00:00:30", "2019-06-01"],
            "format": "%m/%d/%Y %I:%M:%S %p",
        },
        texts(good=st.datetimes().map(lambda moment: moment.strftime("%m/%d/%Y %I:%M:%S %p"))),
    ),
    "set": (
        {"type": "set", "separator": ";", "values": ["a", "b", "7", "c d"], "max_values": 2},
        texts(
            good=st.lists(st.sampled_from(["a", "b", "7.0", "c d", "zz"]), max_size=5).map(";".join)
        ),
    ),
    "private set": (
        {"type": "set", "separator": ", ", "domain": "private", "max_values": 3},
        texts(good=st.lists(st.sampled_from(["a", "b", "c"]), max_size=5).map(", ".join)),
    ),
}
