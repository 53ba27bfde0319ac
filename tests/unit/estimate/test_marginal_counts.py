"""Consistent marginals as counts over the released domain, and the file of the marginals as they were drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from marginweave.base.errors import InputError
from marginweave.counts.released_rows import count_values
from marginweave.domain.masks import Mask
from marginweave.domain.zeros import structural_masks
from marginweave.estimate.earlier import read_measurements
from marginweave.estimate.intervals import marginal_intervals
from marginweave.estimate.marginals import listed_counts, marginal_counts, normalize_marginals
from marginweave.measurements.private_values import discover_labels
from marginweave.mechanisms.gaussian import noise_sigma
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.observations.payloads import (
    observation_bytes,
    pack_labels,
    pack_marginals,
    pack_observations,
    unpack_labels,
    unpack_marginals,
    unpack_observations,
)
from marginweave.observations.tables import Marginals, Observation
from marginweave.prepare.codes import EncodedTable
from marginweave.publish.measured_tables import marginal_facts, measurements_table
from marginweave.publish.tables import counts_table
from marginweave.publish.wording import reader_warnings
from tests.support.configurations import configuration
from tests.support.noisy_counts import counts_of, parts
from tests.support.noisy_marginals import CLIQUES, config, marginals
from tests.support.synthesized import synthesize_codes


def same(one: Marginals, other: Marginals) -> bool:
    return one.domain == other.domain and all(
        len(a) == len(b)
        and all(
            (x.attributes, x.deviation) == (y.attributes, y.deviation) and np.array_equal(x.counts, y.counts)
            for x, y in zip(a, b, strict=True)
        )
        for a, b in ((one.one_way, other.one_way), (one.larger, other.larger), (one.consistent, other.consistent))
    )


def test_counts_add_up_to_the_records_whatever_was_merged() -> None:
    """Values of every measured set of attributes, missing cells left out: at most n, up to rounding of each cell."""
    settings = config()
    found = marginal_counts(normalize_marginals(marginals(settings), settings), settings)
    assert found.measured is not None
    assert set(found.measured) == {(0,), (1,), (2,), (3,), (0, 1), (1, 2), (1, 3), (2, 3), (1, 2, 3)}
    for level in found.levels:
        for columns, rows in level.by_columns():
            assert level.counts[rows].sum() <= found.record_count + len(level.counts[rows]) / 2
            assert level.counts[rows].min() > 0
            assert (level.values[rows] < np.array([found.domain.sizes[j] for j in columns])).all()
    for longest in (1, 2, 9):  # a page that needs no more has the same
        some = marginal_counts(normalize_marginals(marginals(settings), settings), settings, longest)
        assert some.noise == found.noise[:longest]
        for one, level in zip(some.levels, found.levels[:longest], strict=True):
            np.testing.assert_array_equal(one.counts, level.counts)


def test_a_pair_inside_a_marginal_has_the_noise_of_the_cells_it_sums() -> None:
    settings = config(aggregate__compress="none")
    drawn = normalize_marginals(marginals(settings), settings)
    found = marginal_counts(drawn, settings)
    assert found.measured is not None
    assert found.measured[1, 2] == pytest.approx(4.0 * np.sqrt(8))
    assert found.measured[0, 1] == found.measured[2,] == 4.0
    table = counts_table(found, marginal_intervals(found, drawn, settings), settings.longest).to_pandas()
    pair = table[(table["length"] == 2) & (table["column_1"] == "region") & (table["column_2"] == "age")]
    assert set(pair["noise_sd"]) == {4.0 * np.sqrt(8)}


@pytest.mark.parametrize("compress", ["none", "rare"])
@pytest.mark.parametrize("most", [60, 10**6])
def test_every_measured_cell_is_in_the_file_or_the_file_says_which_are_not(
    monkeypatch: pytest.MonkeyPatch, most: int, compress: str
) -> None:
    """Noise as large as many counts, so that consistency leaves nothing of them: each has its row, or its columns have one.

    Of what is listed `adjusted` is what it was without these rows, or 0; a count as measured is inside low and high, which are
    not nearer to it than noise is; a note says where `adjusted` is outside, or where there is no count.
    """
    monkeypatch.setattr("marginweave.estimate.marginals.MOST_LISTED", most)
    settings = config(**({"aggregate__compress": "none"} if compress == "none" else {}))
    drawn = normalize_marginals(marginals(settings, sd=40.0), settings)
    found = marginal_counts(drawn, settings)
    every, left_out = listed_counts(found)
    assert bool(left_out) == (most == 60)
    table = counts_table(every, marginal_intervals(every, drawn, settings), settings.longest, left_out)
    rows, places = table.to_pylist(), range(1, settings.longest + 1)
    kept, listed = counts_of(found), counts_of(every)
    assert {key: count for key, count in listed.items() if count} == kept
    assert 0 in listed.values()
    domain, measured = found.domain, found.measured or {}
    said = [tuple(row[f"column_{i}"] for i in places) for row in rows[1:] if row["value_1"] is None]
    assert said == [(*(domain.names[a] for a in c), None, None)[: len(places)] for c in left_out]
    for clique in measured:
        cells = sum(tuple(a for a, _ in key) == clique for key in listed)
        assert clique in left_out or cells == math.prod(domain.sizes[a] for a in clique)
    assert [row["adjusted"] for row in rows[1:] if row["value_1"] is not None] == list(listed.values())
    for row in rows[1:]:
        note = row["note"] or ""
        if row["value_1"] is None:
            assert "every other combination" in note
            assert (row["count"], row["low"], row["high"], row["adjusted"]) == (None, None, None, 0)
            continue
        assert ("adjusted lies outside" in note) == (not row["low"] <= row["adjusted"] <= row["high"])
        assert ("measured together" in note) == (row["count"] is None)
        assert row["count"] is None or row["low"] <= row["count"] <= row["high"] - 1.95 * row["noise_sd"]
    assert any("together" in (row["note"] or "") for row in rows) == (compress == "rare")
    assert "Every combination that was measured is listed, or its columns stand in a last row" in rows[0]["note"]


def test_notes_say_that_adjusted_counts_follow_from_earlier_releases_too() -> None:
    settings = config(aggregate__compress="none")
    drawn = normalize_marginals(marginals(settings, sd=40.0), settings)
    found = marginal_counts(drawn, settings)
    inside = marginal_intervals(found, drawn, settings)
    alone, both = (counts_table(found, inside, settings.longest, earlier=earlier) for earlier in (False, True))
    assert alone.drop_columns("note").equals(both.drop_columns("note"))
    (head, *notes), (told, *others) = (table["note"].to_pylist() for table in (alone, both))
    assert "earlier" not in head
    assert "the number of records, is of this release alone" in told
    (apart,) = {(note, other) for note, other in zip(notes, others, strict=True) if note}
    assert apart[0].endswith("adjusted lies outside: it follows from other counts, too")
    assert apart[1].endswith(
        "adjusted lies outside: it follows from other counts, those of earlier releases among them"
    )


def test_without_noise_to_speak_of_the_counts_are_those_of_the_table() -> None:
    """Deviation 1e-6 and exact counts: what is consistent already stays, and nothing is merged that has a count."""
    settings = config()
    exact = marginals(settings, sd=1e-6)
    found = marginal_counts(normalize_marginals(exact, settings), settings)
    first = found.levels[0]
    for j, one in enumerate(exact.one_way):
        mine = first.columns[:, 0] == j
        expected = one.counts[: found.domain.sizes[j]]
        assert np.array_equal(first.values[mine, 0], np.flatnonzero(expected))
        assert np.array_equal(first.counts[mine], expected[expected > 0])
    assert found.record_count == 900


@pytest.mark.parametrize("seed", range(4))
def test_no_combination_is_more_frequent_than_a_part_of_it(seed: int) -> None:
    """Of counts that differ in their last digits, as sums in another order do, on both sides of a half."""
    settings = config(aggregate__compress="none", structure={"forbidden": [{"sex": "f", "region": "north"}]})
    normalized = normalize_marginals(marginals(settings, seed=seed), settings)
    rng = np.random.default_rng(seed)
    blurred = tuple(
        replace(m, counts=np.floor(m.counts) + 0.5 + rng.choice([-1e-9, 1e-9], m.counts.shape))
        for m in normalized.consistent
    )
    counts = counts_of(marginal_counts(replace(normalized, consistent=blurred), settings))
    assert any(len(combination) == 3 for combination in counts)
    for combination, count in counts.items():
        assert all(counts[part] >= count for part in parts(combination))


def test_what_became_too_large_is_named() -> None:
    """A declared marginal that was not measured stands in privacy.json and in the report's warnings."""
    settings = config()
    drawn = marginals(settings)
    assert marginal_facts(drawn, settings).not_measured == ()
    without = replace(drawn, larger=drawn.larger[:1])
    facts = marginal_facts(without, settings)
    assert facts.not_measured == (("region", "age", "grade"),)
    released = marginal_counts(normalize_marginals(without, settings), settings)
    assert "region x age x grade" in " ".join(reader_warnings(settings, released, (), facts.not_measured or ()))


def test_a_resized_table_keeps_its_public_size() -> None:
    imputed = {f"columns__{n}__impute": {"distribution": "uniform"} for n in ("sex", "region", "age", "grade")}
    settings = config(resize={"records": 640}, **imputed)
    normalized = normalize_marginals(marginals(settings), settings)
    assert normalized.consistent[0].total == pytest.approx(640)
    found = marginal_counts(normalized, settings)
    assert (found.record_count, found.record_deviation) == (640, 0.0)


def test_forbidden_values_stay_out_of_counts_and_records() -> None:
    """Structural zeros, and no missing value where a private domain is never missing."""
    settings = config(structure={"forbidden": [{"region": "north", "age": ["[0, 18)", "[18, 30)"]}]})
    normalized = normalize_marginals(marginals(settings), settings)
    found = marginal_counts(normalized, settings).levels[1]
    pair = (found.columns == (1, 2)).all(axis=1)
    assert not ((found.values[pair, 0] == 0) & (found.values[pair, 1] < 2)).any()
    codes = synthesize_codes(normalized, settings, settings.synthesize)
    assert not ((codes[1] == 0) & (codes[2] < 2)).any()
    assert len(codes[0]) == round(normalized.consistent[0].total)

    private = {"type": "category", "domain": "private", "impute": {"weights": {"a": 1}}}
    masks = structural_masks(config(columns__region=private), (("f", "m"), ("a", "b"), (), ()))
    (mask,) = masks
    assert isinstance(mask, Mask)
    assert (mask.attributes, mask.allowed.tolist()) == ((1,), [True, True, False])


@pytest.mark.parametrize("compress", ["none", 3.0, 40.0])
def test_the_measured_file_is_read_back(compress: Any) -> None:
    """Every cell, signed, in order; merged values are told in privacy.json; a file that lacks a cell is refused."""
    settings = config(aggregate__compress=compress)
    drawn = marginals(settings)
    table, facts = measurements_table(drawn, settings), marginal_facts(drawn, settings)
    assert same(read_measurements(table, facts.marginals or (), drawn.domain, settings), drawn)
    assert bool(facts.measured_together) == (compress != "none")
    with pytest.raises(InputError, match="every cell"):
        read_measurements(table.slice(0, table.num_rows - 1), facts.marginals or (), drawn.domain, settings)


def test_bytes_are_read_back_and_fit_into_the_room_that_is_set_aside() -> None:
    settings = config()
    drawn = normalize_marginals(marginals(settings), settings)
    assert same(unpack_marginals(pack_marginals(drawn)), drawn)
    packed = pack_observations(drawn.one_way)
    assert len(packed) <= observation_bytes([m.counts for m in drawn.one_way])
    assert [m.attributes for m in unpack_observations(packed)] == [(0,), (1,), (2,), (3,)]
    many = tuple(Observation(attributes=(a,), counts=np.zeros(2, np.int64), deviation=1.5) for a in range(500))
    assert len(pack_observations(many)) <= observation_bytes([m.counts for m in many])
    labels = {1: ("ä", "\x7f|", "x" * 300)}
    assert unpack_labels(pack_labels(labels)) == labels


def test_values_are_discovered_where_they_reach_the_threshold() -> None:
    """Noise of 1.5 (false alarm below 1e-9 at 10 deviations): 200 records are found, 10 are not, absent ones never."""
    codes = np.repeat(np.array([0, 1, 3], np.uint8), [200, 10, 50])
    table = EncodedTable(codes=(codes, codes), labels=(("common", "rare", "absent"), ("u", "v", "w")))
    sd = noise_sigma(1.5, 1, configuration().stability)
    assert discover_labels(count_values([table], [0]), table.labels, sd, 30, fresh_bits()) == {0: ("common",)}
    assert discover_labels(count_values([table], [0]), table.labels, sd, -30, fresh_bits()) == {0: ("common", "rare")}


def test_files_have_columns_for_the_longest_marginal_that_may_be_chosen() -> None:
    """In rounds of up to 3 attributes the files are as wide when only pairs were chosen, and no one triple."""
    widths = set()
    for chosen in (CLIQUES, CLIQUES[:1], ()):
        settings = configuration(
            aggregate__method="marginals", aggregate__cliques={"adaptive": 3}, aggregate__compress="none"
        )
        drawn = marginals(settings)
        drawn = replace(drawn, larger=tuple(m for m in drawn.larger if m.attributes in chosen))
        normalized = normalize_marginals(drawn, settings)
        found = marginal_counts(normalized, settings)
        counts = counts_table(found, marginal_intervals(found, normalized, settings), settings.longest)
        widths.add((tuple(counts.column_names), tuple(measurements_table(drawn, settings).column_names)))
    assert len(widths) == 1
    counted, measured = widths.pop()
    assert (counted[-2:], measured[-1]) == (("value_3", "note"), "value_3")


@pytest.mark.parametrize(
    ("cliques", "expected"),
    [
        ("selected", 2),
        ({"adaptive": 4}, 4),
        ({"all": 1}, 1),
        ({"all": 3}, 3),
        ([["sex", "region"], ["sex", "age", "grade"]], 3),
    ],
)
def test_how_long_a_marginal_may_be_is_declared(cliques: Any, expected: int) -> None:
    assert configuration(aggregate__method="marginals", aggregate__cliques=cliques).longest == expected
    assert configuration(aggregate__reporting_length=1).longest == 1
