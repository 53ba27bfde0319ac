"""What the explorer's page carries is the release: unpacked, it gives back counts, intervals and records."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.answers.least_squares import LeastSquares
from marginweave.base.errors import StageError
from marginweave.configuration.question import read_question
from marginweave.publish import pooled_tables, reader
from marginweave.publish.explorer import (
    _gap,
    _increasing,
    _with_undeclared_share,
    explorer_data,
    render_explorer,
)
from marginweave.publish.reader import MOST_RECORDS, show_records
from marginweave.released.statement import UndeclaredStatement
from tests.support.configurations import BASE, PRIVATE, configuration
from tests.support.linked_tables import hospital
from tests.support.published import measured_release, published, shown


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    content = gzip.decompress(data)
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    arrays, place = {}, 4 + length
    for name, kind, size in header["arrays"]:
        arrays[name] = np.frombuffer(content, np.dtype(kind).newbyteorder("<"), size, place)
        place += arrays[name].nbytes
    assert place == len(content)
    return header, arrays


def test_it_is_the_release() -> None:
    release, codes = published()
    header, arrays = unpack(explorer_data(release, shown(release, codes)))
    names = [attribute["name"] for attribute in header["attributes"]]
    assert names == list(release.aggregates.domain.names)
    assert [tuple(a["labels"]) for a in header["attributes"]] == list(
        release.aggregates.domain.labels
    )
    assert [(a["set"], a["width"]) for a in header["attributes"]] == [
        (False, 1),
        (False, 1),
        (True, 2),
        (False, 1),
    ]
    for j, code in enumerate(codes):
        np.testing.assert_array_equal(arrays[f"codes-{j}"], code.ravel())
    for level, inside in zip(release.aggregates.levels, release.intervals, strict=True):
        k = level.length
        np.testing.assert_array_equal(arrays[f"values-{k}"].reshape(-1, k), level.values)
        np.testing.assert_array_equal(arrays[f"counts-{k}"], level.counts)
        np.testing.assert_array_equal(arrays[f"low-{k}"], inside.low)
        np.testing.assert_array_equal(arrays[f"high-{k}"], inside.high)
        for columns, start in header["sets"][k - 1]:
            np.testing.assert_array_equal(level.columns[start], columns)


def test_a_title_stands_behind_its_value() -> None:
    columns = {"a": {"type": "category", "values": ["1", "2"], "titles": {"2": "two"}}}
    release, codes = published([np.zeros(3, np.uint8)], columns=columns)
    header, _ = unpack(explorer_data(release, shown(release, codes)))
    assert [a["labels"] for a in header["attributes"]] == [["1", "2 (two)"]]


def test_what_noise_does_not_explain_is_shown_whether_records_have_it_or_not() -> None:
    """Cells that are not as declared, of columns with and without known counts: with these, records have values alone."""
    release, codes = published()
    each = [("sex", True, True), ("region", True, False), ("age", False, False)]
    told = tuple(
        UndeclaredStatement(
            attribute=name,
            count=40,
            deviation=4.0,
            low=32,
            high=48,
            found=found,
            kept=kept,
            words="About 13 %",
        )
        for name, found, kept in each
    )
    release = replace(release, statement=release.statement.model_copy(update={"undeclared": told}))
    header, _ = unpack(explorer_data(release, shown(release, codes)))
    assert [a["undeclared"] for a in header["attributes"]] == ["found", "found", None, "noise"]


def test_counts_of_any_size_are_kept() -> None:
    """Beyond 16 and 32 bits: the type follows the largest number."""
    release, codes = published()
    first, *others = release.intervals
    for largest in (255, 256, 65_536, 2**32, 2**40):
        measured = first.measured.copy()
        measured[0] = largest
        intervals = (replace(first, measured=measured), *others)
        assert (
            unpack(explorer_data(replace(release, intervals=intervals), shown(release, codes)))[1][
                "counts-1"
            ][0]
            == largest
        )


def test_of_many_records_a_sample_is_taken() -> None:
    """Without replacement, in order, the same every time."""
    columns = {"a": {"type": "number", "bounds": [0, 50_000], "bins": 50_000, "decimals": 0}}
    release, _ = published([np.zeros(3, np.uint16)], columns=columns)
    many = [np.arange(MOST_RECORDS * 2, dtype=np.uint16)]
    page = render_explorer(release, shown(release, many))
    assert page == render_explorer(release, shown(release, many))
    assert f"a sample of {MOST_RECORDS:,} of {2 * MOST_RECORDS:,}" in page
    assert "a sample of 20,000" not in render_explorer(
        release, shown(release, [many[0][:MOST_RECORDS]])
    )


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 300), max_size=5), st.sampled_from([7, 299, 300, 20_000]))
def test_pages_do_not_depend_on_blocks(cuts: list[int], most: int) -> None:
    """Counts, empty cells and the sample of records in blocks, empty ones included, are those of one block."""
    release, codes = published()
    edges = [0, *sorted(cuts), 300]
    blocks = [tuple(code[low:high] for code in codes) for low, high in pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "MOST_RECORDS", most)
        found = show_records(blocks, 300, release.aggregates.domain, release.configuration)
        whole = shown(release, codes)
    assert (found.records, found.empty) == (whole.records, whole.empty)
    for one, other in zip(
        (*found.values, *found.sample), (*whole.values, *whole.sample), strict=True
    ):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    rows = np.arange(300)
    if most < 300:
        seed = release.configuration.synthesize.seed
        rows = np.sort(np.random.default_rng(seed).choice(300, most, replace=False))
    for sample, code in zip(found.sample, codes, strict=True):
        np.testing.assert_array_equal(sample, code[rows])


def test_records_that_are_lacking_are_noticed() -> None:
    release, codes = published()
    with pytest.raises(StageError, match="not as many"):
        show_records([tuple(codes)], 301, release.aggregates.domain, release.configuration)


def test_of_marginals_it_has_what_query_answers() -> None:
    """Every cell of a table: the estimate, and both ends of its interval, also of values that were measured together."""
    release, codes, answers = measured_release()
    header, arrays = unpack(explorer_data(release, shown(release, codes)))
    attributes, sizes, merged = release.configuration.attributes, header["sizes"], 0
    lengths = [len(chosen) for chosen, _ in header["tables"]]
    assert lengths == [
        0,
        *[1] * (lengths.count(1)),
        *[2] * lengths.count(2),
        *[3] * lengths.count(3),
    ]
    assert lengths.count(2) >= 4
    assert 3 in lengths
    for chosen, start in header["tables"]:
        k, cells = len(chosen), int(np.prod([sizes[j] for j in chosen]))
        own = {
            name: arrays[f"{name}-{k}"][start : start + cells].astype(int)
            for name in ("estimate", "low", "high")
        }
        found = list(answers.ask(read_question({"by": [attributes[j].name for j in chosen]})))
        assert len(found) == cells
        for i, answer in enumerate(found):
            estimate, low, high = (int(own[name][i]) for name in ("estimate", "low", "high"))
            assert (answer.estimate, answer.low, answer.high) == (
                estimate,
                estimate - low,
                estimate + high,
            ), answer
            merged += answer.noise_sd is None
            assert (answer.noise_sd is None) == (k > 0 and arrays[f"variance-{k}"][start + i] == 0)
    assert merged


def test_what_lies_behind_the_values_has_the_words_of_tables() -> None:
    """A record that does not hold a value of a set may hold others, and what was not released is no gap of the table."""
    columns = {
        "signs": {"type": "set", "values": ["a", "b"], "max_values": 2},
        "town": PRIVATE,
        "sex": BASE["columns"]["sex"],
    }
    config = configuration(columns=columns, aggregate={"method": "marginals"})
    words = {a.name: _gap(a, a.labels) for a in config.attributes}
    assert words == {
        "signs=a": "(not a)",
        "signs=b": "(not b)",
        "town": "(not released)",
        "sex": None,
    }


def test_of_many_cells_the_smaller_tables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    release, codes, _ = measured_release()
    monkeypatch.setattr(reader, "MOST_CELLS", 40)
    header, _ = unpack(explorer_data(release, shown(release, codes)))
    sizes = [int(np.prod([header["sizes"][j] for j in chosen])) for chosen, _ in header["tables"]]
    assert sum(sizes) <= 40
    assert len(header["tables"]) > 5


@pytest.mark.parametrize("most", [0, 10**6])
def test_sums_are_computed_from_pooled_tables_and_axes(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Of tables of several columns counts and noise, of each axis both solutions, with covariances or with variances alone."""
    monkeypatch.setattr(pooled_tables, "MOST_COVARIANCES", most)
    release, codes, answers = measured_release()
    squares = answers.squares
    assert isinstance(squares, LeastSquares)
    header, arrays = unpack(explorer_data(release, shown(release, codes)))
    facts, start = header["squares"], 0
    for parts, variance in facts["pools"]:
        counts, precision = squares.pool(tuple(parts))
        np.testing.assert_array_equal(arrays["pools"][start : start + counts.size], counts.ravel())
        assert variance == 1 / precision
        start += counts.size
    assert start == len(arrays["pools"])
    assert facts["total"] == list(squares.total)
    start = 0
    for axis, (blocks, solutions, has_covariances) in enumerate(facts["axes"]):
        assert has_covariances == (most > 0)
        for is_joint in (True, False)[:solutions]:
            solution = squares.axis(axis, any_joint_query=is_joint)
            places = np.triu_indices(blocks) if has_covariances else np.diag_indices(blocks)
            packed = [solution.means, solution.slopes, solution.covariance[places]]
            expected = np.concatenate(packed)
            np.testing.assert_array_equal(arrays["axes"][start : start + expected.size], expected)
            start += expected.size
    assert start == len(arrays["axes"])
    assert {solutions for _, solutions, _ in facts["axes"]} == {1, 2}


@pytest.mark.parametrize(
    ("ends", "number"),
    [
        (None, 0),
        ([[0, 9], [10, 19], None, None], 2),
        ([[None, 9], [10, None]], 2),
        ([[1, 1], [3, 3], [2, 2]], 0),
        ([[1, 1], None, [2, 2]], 0),
    ],
)
def test_ranges_are_over_values_in_the_order_of_their_numbers(ends: Any, number: int) -> None:
    """Not over codes that mean something else, and over nothing where numbers stand in another order."""
    assert _increasing(ends) == number


def test_empty_cells_of_derived_columns_are_shown_as_they_were_counted() -> None:
    """Records do not say whether such a cell is missing: as many as were counted, and no value, are not as declared."""
    config = hospital()
    names = [attribute.name for attribute in config.attributes]
    sizes = [len(attribute.labels) for attribute in config.attributes]
    place = names.index("longest")
    codes = [np.arange(1000) % (size + 1) for size in sizes]
    found = SimpleNamespace(attribute="longest", found=True, count=60)
    noise = SimpleNamespace(attribute="first", found=False, count=60)
    released: Any = SimpleNamespace(
        configuration=config,
        aggregates=SimpleNamespace(domain=SimpleNamespace(sizes=sizes), record_count=2000),
        statement=SimpleNamespace(undeclared=(found, noise)),
    )
    shown = _with_undeclared_share(codes, released)
    size = sizes[place]
    expected = np.bincount(codes[place], minlength=size + 2)
    expected[size:] = expected[size] - 30, 30
    assert np.bincount(shown[place]).tolist() == expected.tolist()
    others = [j for j in range(len(sizes)) if j != place]
    assert all(np.array_equal(shown[j], codes[j]) for j in others)
