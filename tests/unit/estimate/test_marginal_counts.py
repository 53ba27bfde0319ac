"""Consistent marginals as counts over the released domain, and the file of the marginals as they were drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from marginweave.base.errors import InputError
from marginweave.counts.released_rows import count_values
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique, Mask
from marginweave.domain.zeros import structural_masks
from marginweave.estimate.earlier import read_measurements
from marginweave.estimate.intervals import marginal_intervals
from marginweave.estimate.marginals import (
    listed_counts,
    marginal_counts,
    normalize_marginals,
    record_total,
)
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


def same(first: Marginals, second: Marginals) -> bool:
    """Return whether two sets of marginals are equal."""
    return (
        first.domain == second.domain
        and same_tables(first.one_way, second.one_way)
        and same_tables(first.larger, second.larger)
        and same_tables(first.consistent, second.consistent)
    )


def same_tables(first: Sequence[Observation], second: Sequence[Observation]) -> bool:
    """Return whether two lists of tables have equal attributes, noise and counts."""
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if (a.attributes, a.deviation) != (b.attributes, b.deviation) or not np.array_equal(
            a.counts, b.counts
        ):
            return False
    return True


def test_counts_add_up_to_the_records_whatever_was_merged() -> None:
    """Check that every measured set of attributes has at most n records, up to rounding of each cell."""
    settings = config()
    normalized = normalize_marginals(marginals(settings), settings)
    counts = marginal_counts(normalized, settings)
    assert counts.measured is not None
    assert set(counts.measured) == {
        (0,),
        (1,),
        (2,),
        (3,),
        (0, 1),
        (1, 2),
        (1, 3),
        (2, 3),
        (1, 2, 3),
    }
    for level in counts.levels:
        for columns, rows in level.by_columns():
            numbers = level.counts[rows]
            assert numbers.sum() <= counts.record_count + len(numbers) / 2
            assert numbers.min() > 0
            sizes = np.array([counts.domain.sizes[j] for j in columns])
            assert (level.values[rows] < sizes).all()
    for longest in (1, 2, 9):  # a page that needs only short combinations has the same counts
        short = marginal_counts(normalized, settings, longest)
        assert short.noise == counts.noise[:longest]
        for short_level, level in zip(short.levels, counts.levels[:longest], strict=True):
            np.testing.assert_array_equal(short_level.counts, level.counts)


def test_a_pair_inside_a_marginal_has_the_noise_of_the_cells_it_sums() -> None:
    settings = config(aggregate__compress="none")
    drawn = normalize_marginals(marginals(settings), settings)
    counts = marginal_counts(drawn, settings)
    assert counts.measured is not None
    assert counts.measured[1, 2] == pytest.approx(4.0 * np.sqrt(8))
    assert counts.measured[0, 1] == counts.measured[2,] == 4.0
    intervals = marginal_intervals(counts, drawn, settings)
    table = counts_table(counts, intervals, settings.longest).to_pandas()
    pair = table[
        (table["length"] == 2) & (table["column_1"] == "region") & (table["column_2"] == "age")
    ]
    assert set(pair["noise_sd"]) == {4.0 * np.sqrt(8)}


def columns_of_last_rows(rows: list[dict[str, Any]], longest: int) -> list[tuple[str | None, ...]]:
    """Return the columns of the rows, at the end of a table, that name sets of columns without a value."""
    without_value = [row for row in rows[1:] if row["value_1"] is None]
    places = range(1, longest + 1)
    columns = []
    for row in without_value:
        columns.append(tuple(row[f"column_{i}"] for i in places))
    return columns


def padded_names(
    cliques: Sequence[Clique], domain: Domain, longest: int
) -> list[tuple[str | None, ...]]:
    """Return the names of the columns of each clique, and None up to the longest length."""
    padded: list[tuple[str | None, ...]] = []
    for clique in cliques:
        names = [domain.names[a] for a in clique]
        padded.append((*names, *[None] * (longest - len(names))))
    return padded


@pytest.mark.parametrize("compress", ["none", "rare"])
@pytest.mark.parametrize("most", [60, 10**6])
def test_every_measured_cell_is_in_the_file_or_the_file_says_which_are_not(
    monkeypatch: pytest.MonkeyPatch, most: int, compress: str
) -> None:
    """Check tables with noise as large as many counts, so that consistency leaves nothing of these counts.

    Each count has its row, or its columns have one. `adjusted` of a listed count is the same as without these rows, or 0. A
    count as measured is between low and high, which are at least as far from it as noise is. A note says where `adjusted` is
    outside, or where there is no count.
    """
    monkeypatch.setattr("marginweave.estimate.marginals.MOST_LISTED", most)
    settings = config(**({"aggregate__compress": "none"} if compress == "none" else {}))
    drawn = normalize_marginals(marginals(settings, sd=40.0), settings)
    counts = marginal_counts(drawn, settings)
    with_empty_cells, incomplete = listed_counts(counts)
    assert bool(incomplete) == (most == 60)
    intervals = marginal_intervals(with_empty_cells, drawn, settings)
    table = counts_table(with_empty_cells, intervals, settings.longest, incomplete)
    rows = table.to_pylist()
    listed = counts_of(with_empty_cells)
    assert {key: count for key, count in listed.items() if count} == counts_of(counts)
    assert 0 in listed.values()
    assert columns_of_last_rows(rows, settings.longest) == padded_names(
        incomplete, counts.domain, settings.longest
    )
    cells: Counter[Clique] = Counter()
    for key in listed:
        cells[tuple(a for a, _ in key)] += 1
    for clique in counts.measured or {}:
        assert clique in incomplete or cells[clique] == math.prod(
            counts.domain.sizes[a] for a in clique
        )
    adjusted = [row["adjusted"] for row in rows[1:] if row["value_1"] is not None]
    assert adjusted == list(listed.values())
    for row in rows[1:]:
        note = row["note"] or ""
        if row["value_1"] is None:
            assert "every other combination" in note
            assert (row["count"], row["low"], row["high"], row["adjusted"]) == (None, None, None, 0)
            continue
        assert ("adjusted lies outside" in note) == (
            not row["low"] <= row["adjusted"] <= row["high"]
        )
        assert ("measured together" in note) == (row["count"] is None)
        assert (
            row["count"] is None
            or row["low"] <= row["count"] <= row["high"] - 1.95 * row["noise_sd"]
        )
    assert any("together" in (row["note"] or "") for row in rows) == (compress == "rare")
    assert (
        "Every combination that was measured is listed, or its columns stand in a last row"
        in rows[0]["note"]
    )


def test_notes_say_that_adjusted_counts_follow_from_those_of_others_too() -> None:
    settings = config(aggregate__compress="none")
    drawn = normalize_marginals(marginals(settings, sd=40.0), settings)
    counts = marginal_counts(drawn, settings)
    intervals = marginal_intervals(counts, drawn, settings)
    table = counts_table(counts, intervals, settings.longest)
    pooled_table = counts_table(counts, intervals, settings.longest, besides="those of others")
    assert table.drop_columns("note").equals(pooled_table.drop_columns("note"))
    head, *notes = table["note"].to_pylist()
    pooled_head, *pooled_notes = pooled_table["note"].to_pylist()
    assert "those of others" not in head
    assert "adjusted follows from all counts, those of others among them" in pooled_head
    ((note, pooled_note),) = {pair for pair in zip(notes, pooled_notes, strict=True) if pair[0]}
    assert note.endswith("adjusted lies outside: it follows from other counts, too")
    assert pooled_note.endswith(
        "adjusted lies outside: it follows from other counts, those of others among them"
    )


def test_without_noise_to_speak_of_the_counts_are_those_of_the_table() -> None:
    """Check, with sigma 1e-6, that consistent counts are unchanged, and that no value with a count is merged."""
    settings = config()
    exact = marginals(settings, sd=1e-6)
    counts = marginal_counts(normalize_marginals(exact, settings), settings)
    single = counts.levels[0]
    for j, table in enumerate(exact.one_way):
        rows = single.columns[:, 0] == j
        expected = table.counts[: counts.domain.sizes[j]]
        assert np.array_equal(single.values[rows, 0], np.flatnonzero(expected))
        assert np.array_equal(single.counts[rows], expected[expected > 0])
    assert counts.record_count == 900


@pytest.mark.parametrize("seed", range(4))
def test_no_combination_is_more_frequent_than_a_part_of_it(seed: int) -> None:
    """Check counts that differ in their last digits, as sums in another order do, on both sides of a half."""
    settings = config(
        aggregate__compress="none", structure={"forbidden": [{"sex": "f", "region": "north"}]}
    )
    normalized = normalize_marginals(marginals(settings, seed=seed), settings)
    rng = np.random.default_rng(seed)
    blurred = []
    for m in normalized.consistent:
        last_digits = rng.choice([-1e-9, 1e-9], m.counts.shape)
        blurred.append(replace(m, counts=np.floor(m.counts) + 0.5 + last_digits))
    blurred_marginals = replace(normalized, consistent=tuple(blurred))
    counts = counts_of(marginal_counts(blurred_marginals, settings))
    assert any(len(combination) == 3 for combination in counts)
    for combination, count in counts.items():
        assert all(counts[part] >= count for part in parts(combination))


def test_what_became_too_large_is_named() -> None:
    """Check that privacy.json and the report's warnings name a declared marginal that was not measured."""
    settings = config()
    drawn = marginals(settings)
    assert marginal_facts(drawn, settings).not_measured == ()
    without = replace(drawn, larger=drawn.larger[:1])
    facts = marginal_facts(without, settings)
    assert facts.not_measured == (("region", "age", "grade"),)
    released = marginal_counts(normalize_marginals(without, settings), settings)
    assert "region x age x grade" in " ".join(
        map(str, reader_warnings(settings, released, (), facts.not_measured or ()))
    )


@pytest.mark.parametrize("pooled", [False, True])
def test_consistent_marginals_add_up_to_the_total_that_drawn_ones_tell(pooled: bool) -> None:
    settings = config()
    drawn = marginals(settings)
    if pooled:
        halved = [replace(m, counts=m.counts / 2, deviation=m.deviation / 2) for m in drawn.drawn]
        drawn = replace(drawn, pooled=tuple(halved))
    consistent = normalize_marginals(drawn, settings).consistent
    total = record_total(drawn, settings)
    assert all(m.total == pytest.approx(total, rel=1e-12) for m in consistent)


def test_a_resized_table_keeps_its_public_size() -> None:
    imputed = {
        f"columns__{n}__impute": {"distribution": "uniform"}
        for n in ("sex", "region", "age", "grade")
    }
    settings = config(resize={"records": 640}, **imputed)
    normalized = normalize_marginals(marginals(settings), settings)
    assert normalized.consistent[0].total == pytest.approx(640)
    counts = marginal_counts(normalized, settings)
    assert counts.record_count == 640
    assert counts.record_deviation == 0.0


def test_forbidden_values_stay_out_of_counts_and_records() -> None:
    """Check structural zeros, and that a private domain that is never missing has no missing value."""
    settings = config(
        structure={"forbidden": [{"region": "north", "age": ["[0, 18)", "[18, 30)"]}]}
    )
    normalized = normalize_marginals(marginals(settings), settings)
    pairs = marginal_counts(normalized, settings).levels[1]
    values = pairs.values[(pairs.columns == (1, 2)).all(axis=1)]
    assert not ((values[:, 0] == 0) & (values[:, 1] < 2)).any()
    codes = synthesize_codes(normalized, settings, settings.synthesize)
    assert not ((codes[1] == 0) & (codes[2] < 2)).any()
    assert len(codes[0]) == round(normalized.consistent[0].total)

    private = {"type": "category", "domain": "private", "impute": {"weights": {"a": 1}}}
    masks = structural_masks(config(columns__region=private), (("f", "m"), ("a", "b"), (), ()))
    (mask,) = masks
    assert isinstance(mask, Mask)
    assert mask.attributes == (1,)
    assert mask.allowed.tolist() == [True, True, False]


@pytest.mark.parametrize("compress", ["none", 3.0, 40.0])
def test_the_measured_file_is_read_back(compress: Any) -> None:
    """Check every cell, signed, in order; that privacy.json lists merged values; and that a file without a cell is refused."""
    settings = config(aggregate__compress=compress)
    drawn = marginals(settings)
    table = measurements_table(drawn, settings)
    facts = marginal_facts(drawn, settings)
    assert same(read_measurements(table, facts.marginals or (), drawn.domain, settings), drawn)
    assert bool(facts.measured_together) == (compress != "none")
    without_last = table.slice(0, table.num_rows - 1)
    with pytest.raises(InputError, match="every cell"):
        read_measurements(without_last, facts.marginals or (), drawn.domain, settings)


def test_bytes_are_read_back_and_fit_into_the_room_that_is_set_aside() -> None:
    settings = config()
    drawn = normalize_marginals(marginals(settings), settings)
    assert same(unpack_marginals(pack_marginals(drawn)), drawn)
    packed = pack_observations(drawn.one_way)
    assert len(packed) <= observation_bytes([m.counts for m in drawn.one_way])
    assert [m.attributes for m in unpack_observations(packed)] == [(0,), (1,), (2,), (3,)]
    zeros = np.zeros(2, np.int64)
    many = tuple(Observation(attributes=(a,), counts=zeros, deviation=1.5) for a in range(500))
    assert len(pack_observations(many)) <= observation_bytes([m.counts for m in many])
    labels = {1: ("ä", "\x7f|", "x" * 300)}
    assert unpack_labels(pack_labels(labels)) == labels


def test_values_are_discovered_where_they_reach_the_threshold() -> None:
    """Check with noise of 1.5 (false alarm below 1e-9 at 10 sigma) that 200 records are found, and 10 or none are not."""
    codes = np.repeat(np.array([0, 1, 3], np.uint8), [200, 10, 50])
    table = EncodedTable(
        codes=(codes, codes), labels=(("common", "rare", "absent"), ("u", "v", "w"))
    )
    sd = noise_sigma(1.5, 1, configuration().stability)
    counts = count_values([table], [0])
    assert discover_labels(counts, table.labels, sd, 30, fresh_bits()) == {0: ("common",)}
    assert discover_labels(counts, table.labels, sd, -30, fresh_bits()) == {0: ("common", "rare")}


def test_files_have_columns_for_the_longest_marginal_that_may_be_chosen() -> None:
    """Check that rounds of up to 3 attributes give files of equal width when only pairs were chosen."""
    widths = set()
    for chosen in (CLIQUES, CLIQUES[:1], ()):
        settings = configuration(
            aggregate__method="marginals",
            aggregate__cliques={"adaptive": 3},
            aggregate__compress="none",
        )
        drawn = marginals(settings)
        drawn = replace(drawn, larger=tuple(m for m in drawn.larger if m.attributes in chosen))
        normalized = normalize_marginals(drawn, settings)
        counts = marginal_counts(normalized, settings)
        intervals = marginal_intervals(counts, normalized, settings)
        published = counts_table(counts, intervals, settings.longest)
        measurements = measurements_table(drawn, settings)
        widths.add((tuple(published.column_names), tuple(measurements.column_names)))
    ((published_columns, measured_columns),) = widths
    assert published_columns[-2:] == ("value_3", "note")
    assert measured_columns[-1] == "value_3"


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
    assert (
        configuration(aggregate__method="marginals", aggregate__cliques=cliques).longest == expected
    )
    assert configuration(aggregate__reporting_length=1).longest == 1
