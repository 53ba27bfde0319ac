"""Published tables of counts know the rules: what no record can be in is 0, exactly, and nothing else is called so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from marginweave.answers.codes import Codes
from marginweave.answers.tables import part_tables
from marginweave.answers.tuples import TupleAnswers
from marginweave.base.arrays import Flags, Integers
from marginweave.configuration.attributes import combinations_of
from marginweave.configuration.question import read_question
from marginweave.configuration.release import Configuration
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import (
    PossibleCells,
    broken_records,
    domain_sizes,
    excluded_codes,
    structural_masks,
    synthetic_only,
)
from marginweave.estimate.intervals import marginal_intervals
from marginweave.estimate.marginals import listed_counts, marginal_counts
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.observations.tables import Marginals
from marginweave.prepare.codes import EncodedTable
from marginweave.prepare.repair import Repair
from marginweave.publish.measured_tables import measurements_table
from marginweave.publish.reader import PublishedRelease
from marginweave.publish.tables import counts_table
from tests.support.configurations import configuration
from tests.support.published import published
from tests.support.ruled_table import (
    COUNTED,
    COUNTED_SIZES,
    LABELS,
    SETTINGS,
    allowed_codes,
    noisy_counts,
)


def labels_of(config: Configuration) -> tuple[tuple[str, ...], ...]:
    return tuple(attribute.labels for attribute in config.attributes)


def keeping_records(config: Configuration, number: int) -> Integers:
    """Random records that keep every rule, in codes; shape (attributes, number)."""
    labels = labels_of(config)
    sizes = domain_sizes(config.attributes, labels)
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, size, number) for size in sizes])
    return codes[:, ~broken_records(tuple(codes), structural_masks(config, labels))]


def cells_with_records(records: Integers, clique: Clique, sizes: tuple[int, ...]) -> Flags:
    there = np.zeros([sizes[a] for a in clique], np.bool_)
    there[tuple(records[a] for a in clique)] = True
    return there


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_cell_is_possible_where_some_record_is(length: int) -> None:
    """Of the declared rules each projection and each pair that follows from several is known."""
    records, possible = keeping_records(COUNTED, 200_000), PossibleCells.of(COUNTED, LABELS)
    excluded = 0
    for clique in itertools.combinations(range(len(COUNTED_SIZES)), length):
        there = cells_with_records(records, clique, COUNTED_SIZES)
        found = possible.contain(clique, np.indices(there.shape), {})
        assert not (there & ~found).any(), clique
        assert length > 2 or np.array_equal(there, found), clique
        excluded += int((~found).sum())
    assert excluded > 0 or length == 1


def test_codes_that_are_counted_together_are_possible_where_one_of_them_is() -> None:
    possible, rng = PossibleCells.of(COUNTED, LABELS), np.random.default_rng(2)
    for clique in itertools.combinations(range(len(COUNTED_SIZES)), 2):
        shape = [COUNTED_SIZES[a] for a in clique]
        blocks = {
            a: np.unique(rng.integers(0, 2, COUNTED_SIZES[a]), return_inverse=True)[1]
            for a in clique
        }
        alone = possible.contain(clique, np.indices(shape), {})
        together = np.zeros([int(blocks[a].max()) + 1 for a in clique], np.bool_)
        np.logical_or.at(together, np.ix_(*(blocks[a] for a in clique)), alone)
        assert np.array_equal(
            possible.contain(clique, np.indices(together.shape), blocks), together
        )


SURE = {"type": "category", "missing": [], "outside": "error"}
TOWN: dict[str, Any] = {"type": "category", "domain": "private"}
IMPUTED = {**TOWN, "impute": {"weights": {"x": 1, "y": 1}}}
ILL = {"ill": {**SURE, "values": ["no", "yes", "unsure"]}, "sex": {**SURE, "values": ["f", "m"]}}
THROUGH_TOWN = [{"town": "x", "sex": "m"}, {"town": "y", "ill": "yes"}]
PUBLIC = [{"ill": "unsure", "sex": "m"}]


@pytest.mark.parametrize(
    ("town", "rules", "recorded"),
    [
        (IMPUTED, [], {(0,)}),
        (TOWN, PUBLIC, set()),
        (TOWN, THROUGH_TOWN, {(0, 1), (0, 2)}),
        (IMPUTED, [*THROUGH_TOWN, *PUBLIC], {(0,), (0, 1), (0, 2)}),
    ],
)
def test_what_is_called_impossible_is_in_no_row_that_was_counted(
    town: dict[str, Any], rules: list[dict[str, str]], recorded: set[Clique]
) -> None:
    """A private domain is known after rows were counted: these keep none of its rules, and have what was not released."""
    config = configuration(
        columns={"town": town, **ILL}, structure={"forbidden": rules} if rules else {}
    )
    labels = (("x", "y"), *labels_of(config)[1:])
    codes = np.indices((3, 3, 2)).reshape(3, -1).astype(np.uint8)
    words = RecordWords(
        words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(codes.shape[1])
    )
    rows = np.stack(
        Repair(config, labels)(EncodedTable(labels=labels, codes=tuple(codes)), words).codes
    )
    possible = PossibleCells.of(config, labels)
    for length in (1, 2, 3):
        for clique in itertools.combinations(range(3), length):
            there = cells_with_records(rows.astype(np.int64), clique, (3, 3, 2))
            assert np.array_equal(possible.contain(clique, np.indices(there.shape), {}), there), (
                clique
            )
    assert synthetic_only(config, labels) == recorded


@pytest.fixture(scope="module")
def noisy() -> Marginals:
    rng = np.random.default_rng(3)
    return noisy_counts(allowed_codes(300, rng), 20.0, rng)


def codes_in(attribute: int, text: object) -> list[int]:
    """The codes behind the text of a cell, which may be those of several values."""
    values = {
        label: code
        for code, label in enumerate([*LABELS[attribute], *COUNTED.attributes[attribute].gaps])
    }
    return [values[part] for part in str(text or "(missing)").split(" | ")]


def excluded_rows(table: list[dict[str, object]]) -> Iterator[tuple[dict[str, object], bool]]:
    """Rows of single values and pairs, and whether no record can be in one."""
    names = [attribute.name for attribute in COUNTED.attributes]
    records = keeping_records(COUNTED, 200_000)
    for row in table:
        pairs = [
            (names.index(str(row[f"column_{i}"])), row[f"value_{i}"])
            for i in (1, 2)
            if row[f"column_{i}"]
        ]
        held = [np.isin(records[a], codes_in(a, text)) for a, text in pairs]
        yield row, not np.logical_and.reduce([np.ones(records.shape[1], np.bool_), *held]).any()


def test_what_is_published_of_a_cell_that_rules_exclude_is_0(noisy: Marginals) -> None:
    """Aggregates have 0 in all numbers and a note that says why; measurements have noise as count, and 0 as low and high."""
    every, left_out = listed_counts(marginal_counts(noisy, COUNTED))
    table = counts_table(
        every, marginal_intervals(every, noisy, COUNTED), COUNTED.longest, left_out
    )
    seen = 0
    for row, excluded in excluded_rows(table.to_pylist()[1:]):
        numbers = [row[name] for name in ("count", "noise_sd", "low", "high", "adjusted")]
        assert ((row["note"] or "") == "a rule allows no such record: 0, exactly") == excluded, row
        assert (numbers == [0, 0, 0, 0, 0]) == excluded, row
        seen += excluded
    assert seen > 10
    measured = measurements_table(noisy, COUNTED).to_pylist()
    noise = [row["count"] for row, excluded in excluded_rows(measured) if excluded]
    assert any(noise)
    for row, excluded in excluded_rows(measured):
        assert ((row["low"], row["high"]) == (0, 0)) == excluded, row


def test_the_explorer_and_the_report_have_0_there(noisy: Marginals) -> None:
    release = PublishedRelease(
        configuration=COUNTED,
        aggregates=listed_counts(marginal_counts(noisy, COUNTED), 1)[0],
        intervals=(),
        statement=published()[0].statement,
        marginals=noisy,
        measured=part_tables(noisy, COUNTED),
    )
    records = keeping_records(COUNTED, 200_000)
    for table in release.cells[1:]:
        there = cells_with_records(records, table.attributes, COUNTED_SIZES)
        assert not table.estimates[~there].any()
        assert not table.variances[~there].any()
        assert table.variances[there & table.is_measured].all()


def test_k_tuples_neither_count_nor_answer_such_a_pair() -> None:
    """All pairs of values that no record has are excluded before anything is drawn, those through a third column included."""
    config = configuration(**{**SETTINGS, "aggregate": {"reporting_length": 2}})
    labels = labels_of(config)
    sizes = [len(own) for own in labels]
    records = keeping_records(config, 200_000)
    boxes = excluded_codes(config, labels)
    never = {
        pair
        for pair in combinations_of(boxes)
        if len(pair) == 2 and all(v < sizes[a] for a, v in pair)
    }
    for clique in itertools.combinations(range(len(sizes)), 2):
        there = cells_with_records(records, clique, domain_sizes(config.attributes, labels))
        for cell in itertools.product(*(range(sizes[a]) for a in clique)):
            assert (tuple(zip(clique, cell, strict=True)) in never) == (not there[cell]), (
                clique,
                cell,
            )
    release, _ = published()
    answers = TupleAnswers(
        aggregates=release.aggregates,
        intervals=release.intervals,
        codes=Codes.of(release.configuration, release.aggregates.domain),
        excluded=(((0, (0,)), (1, (1,))),),
    )
    names, values = release.aggregates.domain.names, release.aggregates.domain.labels
    for first, second in itertools.product((0, 1), (0, 1)):
        where = {names[0]: [values[0][first]], names[1]: [values[1][second]]}
        (found,) = answers.ask(read_question({"where": where}))
        ruled = (found.estimate, found.low, found.high, found.noise_sd, found.how) == (
            0,
            0,
            0,
            0,
            "rule",
        )
        assert ruled == ((first, second) == (0, 1))
