"""Cells of linked tables that are not as declared have a code of their own: it is found where it is, and said."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest

from marginweave.configuration.columns.base import NOT_DECLARED
from marginweave.configuration.question import read_question
from marginweave.domain.labels import Domain
from marginweave.evaluate.undeclared import uncounted_title, with_undeclared
from marginweave.inference.linked_answers import LinkedAnswers
from marginweave.measurements.linked_counts import linked_observations
from marginweave.observations.combinations import Aggregates
from marginweave.observations.linked_undeclared import LinkedUndeclared, linked_undeclared
from marginweave.publish.linked_tables import linked_statements, undeclared_statements
from marginweave.released.verdict import Verdict
from tests.support.linked_counts import counted_hospital, encoded_records
from tests.support.linked_tables import Stay
from tests.support.stage_draws import MeasuredTable

LINKED = ("linked-units-1", "linked-rows-1")
PATIENTS, AT_MOST = 200, 4
REPEATS = 60
DRIFT = 0.3


@cache
def stays_of(share: float) -> dict[str, list[Stay]]:
    """Stays of each patient, one to six, of which a share has a kind that is not declared; the empty kind is not either."""
    chance = random.Random(8)
    return {
        f"{number}": [
            Stay(_kind(chance, share), chance.choice(["3", "40"]))
            for _ in range(chance.randrange(1, 7))
        ]
        for number in range(PATIENTS)
    }


def _kind(chance: random.Random, share: float) -> str:
    drifted = chance.random() < share
    return chance.choice(["PLANNED", "new"]) if drifted else chance.choice(["planned", "", ""])


@cache
def measured(share: float) -> MeasuredTable:
    config = counted_hospital(at_most=AT_MOST)
    stays = stays_of(share)
    with TemporaryDirectory() as folder:
        rows = [(patient, stay) for patient, those in stays.items() for stay in those]
        records = encoded_records(config, [(p, "f") for p in stays], rows, Path(folder))
    table = MeasuredTable(config, records, Path(folder))
    for name in LINKED:
        table.draw(name)
    return table


def decided(share: float, *, again: bool = False) -> dict[tuple[str, str], LinkedUndeclared]:
    """The decisions of a release, by columns and what is counted."""
    table = measured(share)
    if again:
        for name in LINKED:
            table.payloads[name] = table.again(name)
    rows = linked_undeclared(linked_observations(table))
    return {(row.column, row.count_of): row for row in rows}


def truth(share: float) -> dict[str, float]:
    """How many rows that are counted have such a kind, on average, and how many units by weights of one."""
    sums = {"units": 0.0, "rows": 0.0}
    for those in stays_of(share).values():
        part = sum(stay.kind in {"PLANNED", "new"} for stay in those) / len(those)
        sums["units"] += part
        sums["rows"] += part * min(len(those), AT_MOST)
    return sums


def test_what_is_not_as_declared_is_found_with_its_share() -> None:
    """In each of 20 releases, by units and by rows, within six deviations; the other column has none."""
    true = truth(DRIFT)
    for again in range(20):
        rows = decided(DRIFT, again=bool(again))
        for each in ("units", "rows"):
            cells = rows["kind", each].cells
            assert cells.found
            # of rows, chance decides which of more than `at_most` are counted
            slack = 6 * cells.deviation + (25 if each == "rows" else 1)
            assert abs(cells.count - true[each]) < slack
            assert 0.2 < rows["kind", each].lower_end < DRIFT
            assert not rows["days", each].cells.found


def test_a_clean_table_has_none() -> None:
    """A code is found in one of 1,000 clean releases at most: in 4 and more of 60 with a probability of 5e-7."""
    found = 0
    for _ in range(REPEATS):
        found += any(row.cells.found for row in decided(0.0, again=True).values())
    assert found <= 3


def answers(share: float) -> LinkedAnswers:
    table = measured(share)
    config = table.configuration
    seen = linked_observations(table)
    statements = linked_statements(seen, config)
    names = tuple(attribute.name for attribute in config.attributes)
    return LinkedAnswers(
        name="stays",
        table=(config.tables or {})["stays"],
        configuration=config,
        domain=Domain(names=names, labels=tuple(a.labels for a in config.attributes)),
        histograms=[
            (row, pa.array(each.counts.ravel())) for row, each in zip(statements, seen, strict=True)
        ],
        undeclared=undeclared_statements(seen, config),
    )


@pytest.mark.parametrize("each", ["row", "unit"])
def test_a_share_says_what_it_is_of(each: str) -> None:
    """Of cells that are as declared a third is planned, of all cells a quarter: the answer says that it is of all."""
    asked = {"table": "stays", "each": each, "share": True, "where": {"kind": "planned"}}
    (answer,) = answers(DRIFT).ask(read_question(asked))
    assert answer.estimate == pytest.approx((1 - DRIFT) / 3, abs=0.06)
    assert "a share is of all rows, also of those whose kind is not as declared" in answer.flag
    assert "stays.kind were not among the declared values" in answer.flag
    (clean,) = answers(0.0).ask(read_question(asked))
    assert "declared" not in clean.flag


def test_the_code_is_listed_only_where_it_is_found() -> None:
    asked = read_question({"table": "stays", "each": "row", "by": ["kind"]})
    listed = [one.group["kind"] for one in answers(DRIFT).ask(asked)]
    assert listed == ["planned", "emergency", "(missing)", NOT_DECLARED]
    assert [one.group["kind"] for one in answers(0.0).ask(asked)] == listed[:-1]


def with_share(share: float) -> tuple[str, str]:
    """The grade of a good release of which a share of a linked column is not as declared, for sure, and what is said."""
    (row, *_) = [row for row in decided(DRIFT).values() if row.count_of == "rows"]
    cells = row.cells
    count = round(share * 10_000)
    cells = type(cells)(
        **{**vars(cells), "count": count, "low": count, "high": count, "deviation": 0.0}
    )
    linked = [LinkedUndeclared(**{**vars(row), "cells": cells, "total": 1e4, "total_deviation": 0})]
    counts = Aggregates(
        domain=Domain(names=("sex",), labels=(("f", "m"),)),
        record_count=10_000,
        record_deviation=1.0,
        levels=(),
        noise=(),
    )
    good = Verdict.model_construct(publication="good", says=(), advice=())
    verdict = with_undeclared(good, counts, {}, counted_hospital(), linked)
    return verdict.publication, " ".join(verdict.says)


@pytest.mark.parametrize(
    ("share", "grade"),
    [(0.005, "good"), (0.02, "with care"), (0.3, "not for publication")],
)
def test_the_verdict_follows(share: float, grade: str) -> None:
    publication, said = with_share(share)
    assert publication == grade
    assert "of stays.kind were not among the declared values" in said
    assert "of the rows that are counted, at most 2 of each unit" in said


def test_outside_on_purpose_has_no_code_of_its_own() -> None:
    """With `outside: null` such cells are missing; with neither that nor `missing` no cell is."""
    table = (counted_hospital().tables or {})["stays"]
    kind = table.columns["kind"]
    for declared, gaps in [
        ({}, (NOT_DECLARED,)),
        ({"missing": ("",)}, ("(missing)", NOT_DECLARED)),
        ({"outside": "null"}, ("(missing)",)),
    ]:
        changed = kind.model_copy(update=declared)
        columns = {**table.columns, "kind": changed}
        assert table.model_copy(update={"columns": columns}).attribute("kind", ()).gaps == gaps


def test_the_code_is_in_each_histogram_of_the_column() -> None:
    """It is the last one, also of pairs: sums over the others are those of the column alone."""
    for seen in linked_observations(measured(DRIFT)):
        for place, axis in enumerate(seen.axes):
            if axis.name == "stays.kind":
                assert axis.texts == ("planned", "emergency", None, NOT_DECLARED)
                sums = np.moveaxis(seen.counts, place, 0).reshape(4, -1).sum(axis=1)
                noise = 6 * seen.deviation * (seen.counts.size / 4) ** 0.5
                assert abs(sums[1]) < noise
                assert sums[3] > 10


def test_rows_beyond_the_most_of_a_unit_are_said_to_be_of_the_source() -> None:
    """Beside linked tables "1 row of a patient" would be read as one of theirs."""
    config = counted_hospital()
    assert uncounted_title("patient", config) == "patient in the source"
    assert uncounted_title("patient", config.model_copy(update={"tables": None})) == "patient"
