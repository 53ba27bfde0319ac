"""Answers about rows of a linked table are those of the rows, as often as their intervals say, or are refused."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from scipy.stats import binom

from marginweave.base.errors import InputError
from marginweave.configuration.question import read_question
from marginweave.domain.labels import Domain
from marginweave.inference.linked_answers import LinkedAnswers
from marginweave.measurements.linked_counts import linked_observations
from marginweave.publish.linked_tables import linked_statements, linked_table
from marginweave.publish.preparation_words import preparation_sentences
from tests.support.linked_counts import counted_hospital, encoded_records
from tests.support.linked_tables import Stay
from tests.support.stage_draws import MeasuredTable

AT_MOST = 9
PATIENTS = 60
LINKED = ("linked-units-1", "linked-rows-1")
KINDS = ("planned", "emergency", "")


@cache
def hospital_rows() -> tuple[dict[str, str], dict[str, list[Stay]]]:
    """The sex of each patient, and the stays of those who have any: up to seven."""
    chance = random.Random(5)
    sexes = {f"{number}": chance.choice("fm") for number in range(PATIENTS)}
    stays: dict[str, list[Stay]] = {}
    for patient in list(sexes)[: PATIENTS // 2]:
        number = chance.randrange(1, 8)
        stays[patient] = [
            Stay(chance.choice(KINDS), chance.choice(["3", "40"])) for _ in range(number)
        ]
    return sexes, stays


@cache
def measured() -> MeasuredTable:
    sexes, stays = hospital_rows()
    config = counted_hospital(at_most=AT_MOST)
    with TemporaryDirectory() as folder:
        rows = [(patient, stay) for patient, those in stays.items() for stay in those]
        records = encoded_records(config, list(sexes.items()), rows, Path(folder))
    table = MeasuredTable(config, records, Path(folder))
    for name in LINKED:
        table.draw(name)
    return table


def answers(seed: int = 0) -> LinkedAnswers:
    """What a release answers; other noise for each seed."""
    table = measured()
    if seed:
        for name in LINKED:
            table.payloads[name] = table.again(name)
    config = table.configuration
    seen = linked_observations(table)
    statements = linked_statements(seen, config)
    counts = [pa.array(each.counts.ravel()) for each in seen]
    return LinkedAnswers(
        name="stays",
        table=(config.tables or {})["stays"],
        configuration=config,
        domain=Domain(
            names=tuple(attribute.name for attribute in config.attributes),
            labels=tuple(attribute.labels for attribute in config.attributes),
        ),
        histograms=list(zip(statements, counts, strict=True)),
    )


def rows_of(where: Mapping[str, Any], *, by_units: bool) -> dict[str, float]:
    """The weight of rows and of those that meet conditions, and the weighted days, all by the definition."""
    sexes, stays = hospital_rows()
    sums: dict[str, float] = defaultdict(float)
    for patient, those in stays.items():
        for stay in those:
            weight = 1 / len(those) if by_units else 1.0
            cells = {"kind": stay.kind, "days": stay.days, "sex": sexes[patient]}
            sums["all"] += weight
            sums["met"] += weight * all(cells[name] == value for name, value in where.items())
    return sums


QUESTIONS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"each": "row"}, {}, "count"),
    ({"each": "row"}, {"kind": "emergency"}, "count"),
    ({"each": "row"}, {"kind": "emergency"}, "share"),
    ({"each": "unit"}, {}, "count"),
    ({"each": "unit"}, {"sex": "f"}, "count"),
    ({"each": "unit"}, {"kind": "emergency"}, "share"),
    ({"each": "unit"}, {"kind": "emergency", "sex": "f"}, "share"),
]
REPEATS = 60


def test_an_interval_covers_as_often_as_it_says() -> None:
    """Of 60 releases, at 90 %: at least as many as chance leaves out with 1e-7 for each of seven questions."""
    covered = [0] * len(QUESTIONS)
    least = binom.ppf(1e-7, REPEATS, 0.9)
    for seed in range(1, REPEATS + 1):
        opened = answers(seed)
        for number, (options, where, asked) in enumerate(QUESTIONS):
            truth = rows_of(where, by_units=options["each"] == "unit")
            true = truth["met"] / truth["all"] if asked == "share" else truth["met"]
            question = read_question(
                {"table": "stays", "where": where, asked: True, "level": 0.9, **options}
            )
            (answer,) = opened.ask(question)
            assert answer.low is not None
            assert answer.high is not None
            covered[number] += answer.low - 1e-9 <= true <= answer.high + 1e-9
            assert answer.of.startswith("rows of" if options["each"] == "row" else "units with")
    assert min(covered) >= least


def test_a_mean_is_by_rows_or_by_units() -> None:
    """Its interval reaches over the bins, of which all days are: 3 in [0, 30), 40 in [30, 60]."""
    for each in ("row", "unit"):
        (answer,) = answers().ask(read_question({"table": "stays", "mean": "days", "each": each}))
        assert answer.estimate is not None
        assert answer.low is not None
        assert answer.low < 20 < answer.estimate < 40


def test_what_nothing_measured_is_refused() -> None:
    refusals = [
        ({"where": {"kind": "emergency"}, "each": "unit"}, "was not measured; derive a column"),
        ({"by": "kind", "each": "unit"}, "derive, any: {kind: …}"),
        ({"sum": "days", "each": "unit"}, "how many units have such a row"),
        ({"by": "sex"}, "rows of stays were counted by its columns alone, and 'sex'"),
        (
            {"by": "kind", "share": True, "where": {"days": {"from": 30}}, "of": "population"},
            "no answer of",
        ),
        ({"by": "ward"}, "'ward' is no column that was counted"),
    ]
    for content, reason in refusals:
        with pytest.raises(InputError) as refusal:
            list(answers().ask(read_question({"table": "stays", **content})))
        assert reason in str(refusal.value)
    with pytest.raises(InputError, match="table with each: unit"):
        read_question({"each": "unit"})


def test_the_file_has_what_answers_read() -> None:
    """Every cell, in the order of privacy.json, with the interval around what was drawn."""
    table = measured()
    seen = linked_observations(table)
    written = linked_table(seen).to_pylist()
    statements = linked_statements(seen, table.configuration)
    assert len(written) == sum(statement.cells for statement in statements)
    assert {row["count_of"] for row in written} == {"units", "rows"}
    first = next(row for row in written if row["column_1"] == "stays.kind")
    assert first["value_1"] == "planned"
    assert all(row["low"] <= max(row["count"], 0) <= row["high"] for row in written)
    assert all(row["count"] * 1024 % 1 == 0 for row in written)
    pairs = [row for row in written if row["column_2"] is not None]
    assert {row["column_1"] for row in pairs if row["count_of"] == "rows"} == {"stays.kind"}


def test_what_numbers_count_as_is_said_of_the_rows_of_a_linked_table() -> None:
    said = " ".join(map(str, preparation_sentences(counted_hospital(), {})))
    assert "of 'stays.days', numbers below 0 count as 0, and above 60 as 60" in said
    assert "'stays.days' to whole numbers" in said
