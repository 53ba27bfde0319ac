"""The recipe of CONTRIBUTING, "Add a measurement": a kind that only this test knows is planned, drawn, told and verified."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.accounting.accounts import Account
from marginweave.answers.intervals import Reach
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.tables import tables_of
from marginweave.base.arrays import Integers
from marginweave.base.budget import Stability
from marginweave.base.digests import counts_digest
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.configuration.release import Configuration
from marginweave.flows.cli.spending import by_stage
from marginweave.forecast.accuracy import relative_errors
from marginweave.forecast.noise import forecast
from marginweave.ledger import Ledger
from marginweave.measurements import kinds, split
from marginweave.measurements.base import (
    ENCODE,
    Drawn,
    Exact,
    Forecast,
    Measurement,
    PrivateRows,
    RowView,
    Terms,
)
from marginweave.measurements.prices import SharedBudget
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import (
    RoundedGaussian,
    add_noise,
    gaussian_sigma,
    gaussian_terms,
)
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.combinations import Aggregates
from marginweave.observations.tables import Observation
from marginweave.prepare.codes import EncodedTable
from marginweave.released.statement import DrawNoise
from marginweave.runs.capabilities import RunReference
from marginweave.runs.drawing import RunDraws
from marginweave.verify.bundle import verify
from marginweave.verify.bundle_accounting import Fault
from marginweave.verify.handover import hand_over
from tests.support.configurations import configuration
from tests.support.level_draws import table_of
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

REGIONS, GRADES, STEPS = 3, 7, 2
MULTIPLIER = 40.0


class GradesOfWomen(Measurement[tuple[Integers, Fraction]]):
    """Half of the grade of every woman, summed by region: weights on a grid of halves, over a view of its own."""

    template = "grades"
    title = "half the grades of women"
    heading = "weighted sums"
    view = RowView("women", ENCODE)

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """A row adds at most 3.5, which are 7 steps, to one sum."""
        return Sensitivity.of_rows(
            self.view.stability(configuration), l1=GRADES, l2_squared=GRADES**2, steps=STEPS
        )

    def sigma(self, configuration: Configuration) -> Fraction:
        return gaussian_sigma(self.noise_multiplier, self.sensitivity(configuration))

    def terms(self, configuration: Configuration) -> Terms:
        return {"sigma": str(self.sigma(configuration)), "steps": STEPS}

    def forecast(self, configuration: Configuration) -> Forecast:
        return Forecast(sigmas=(float(self.sigma(configuration)) / STEPS,), unit="sum")

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - it is planned
        return DrawNoise(sigma=float(self.sigma(configuration)) / STEPS, step=1 / STEPS)

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[tuple[Integers, Fraction]]:
        sums, sigma = (
            sum(map(grades_of_women, rows.encoded()), np.zeros(REGIONS + 1, np.int64)),
            self.sigma(drawn.configuration),
        )
        used = {**gaussian_terms(sigma), "steps": STEPS}
        return Exact(counts=(sums, sigma), digest=counts_digest([sums]), used=used)

    def draw(self, exact: Exact[tuple[Integers, Fraction]], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002
        return pack_arrays({"sums": add_noise(*exact.counts, bits) / STEPS}, {})


def grades_of_women(table: EncodedTable) -> Integers:
    """In steps, by region and the missing one."""
    sex, region, _, grade = table.codes
    weights = np.where((sex == 0) & (grade < GRADES), grade.astype(np.int64) + 1, 0)
    return np.bincount(region, weights, REGIONS + 1).astype(np.int64)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line among the kinds, and its share: other draws have nine tenths of epsilon, and it has less than the rest."""
    usual = split._tuple_draws

    def with_grades(config: Configuration, budget: SharedBudget) -> list[Measurement[Any]]:
        others = usual(config, replace(budget, epsilon=0.9 * budget.epsilon))
        return [*others, GradesOfWomen.priced(RoundedGaussian, MULTIPLIER)]

    monkeypatch.setattr(split, "_tuple_draws", with_grades)
    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, GradesOfWomen))


@pytest.mark.usefixtures("planned")
def test_a_release_draws_it_and_its_auditor_verifies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of four sums is within 6 sigma of the exact one, and one of them not the same: false alarm 1e-8 and 1e-9.

    What was drawn is an observation of the region, and asked as any other: the sum over two regions, with its variance.
    """
    place = tmp_path / "ledger" / "ledger.sqlite"
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(place))
    account = Account(
        dataset="people",
        epsilon=Decimal(2),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(place, environment={}).accounts.open(account, actor="steward")
    run = run_plainly(tmp_path, people(tmp_path, 300, publish__keep_private=True), "r")
    reference = RunReference(
        folder=RunFolder.at(tmp_path, "r"), source="", ledger_file=place, lease=""
    )
    drawn = RunDraws(reference)
    measurement = drawn.plan.draw(GradesOfWomen)
    sigma = float(measurement.sigma(drawn.configuration)) / STEPS
    sums = unpack_arrays(drawn.payload(measurement))[0]["sums"]
    rows = list(csv.DictReader((tmp_path / "people.csv").open(newline="")))
    exact = [
        sum(int(row["grade"]) for row in rows if row["sex"] == "f" and row["region"] == region) / 2
        for region in ("north", "south", "west")
    ]
    assert np.abs(sums - [*exact, 0]).max() < 6 * sigma
    assert not (sums == [*exact, 0]).all()
    observation = Observation(attributes=(0,), counts=sums, deviation=sigma)
    answer = LeastSquares(tables_of([observation], (REGIONS + 1,))).solve(
        {0: np.array([[1.0, 0.0, 1.0, 0.0]])}
    )
    # rounding adds a little
    assert answer.covariance[0, 0] == pytest.approx(2 * sigma**2, rel=1e-3)
    half = Reach(level=1 - 1e-9).of(math.sqrt(answer.covariance[0, 0]))
    assert abs(answer.values[0] - exact[0] - exact[2]) < half

    record = reference.ledger.releases.find(reference.manifest.release)
    assert record is not None
    row = record.draw("grades")
    assert row is not None
    assert (row.terms["sigma"], row.terms["steps"], row.terms["records"]) == (
        str(Fraction(sigma) * STEPS),
        STEPS,
        1,
    )
    assert row.cost == RoundedGaussian.price(MULTIPLIER)
    told = json.loads((run / "release" / "privacy.json").read_text())["mechanisms"]
    assert [(t["sigma"], t["step"]) for t in told if t["draw"] == "grades"] == [(sigma, 1 / STEPS)]
    (line,) = [line for line in forecast(drawn.configuration)[0] if line.name == "grades"]
    assert str(line.error).endswith(" a sum")
    errors = relative_errors(drawn.configuration, 300)
    assert ("count" in errors, "grades" in errors) == (True, False)
    stages = list(by_stage([record]).columns[0].cells)
    assert "weighted sums" in stages
    assert "grades" not in stages
    assert kinds.kind_named("grades") is GradesOfWomen

    hand_over(tmp_path, "r", tmp_path / "bundle")
    assert verify(tmp_path / "bundle", run / "release")
    plan = tmp_path / "bundle" / "plan.json"
    plan.write_text(
        plan.read_text().replace(f'"parameter": {MULTIPLIER}', f'"parameter": {2 * MULTIPLIER}')
    )
    with pytest.raises(Fault):
        verify(tmp_path / "bundle")


ROWS = st.lists(
    st.tuples(*(st.integers(0, size) for size in (2, REGIONS, 1, GRADES))), min_size=1, max_size=6
)


@given(others=ROWS, unit=ROWS, replaced=st.none() | ROWS)
def test_no_unit_moves_it_farther_than_its_noise_is_made_for(
    others: list[tuple[int, ...]],
    unit: list[tuple[int, ...]],
    replaced: list[tuple[int, ...]] | None,
) -> None:
    """Up to six rows that come or go, or give way to as many others."""

    def counted(rows: list[tuple[int, ...]]) -> Integers:
        return grades_of_women(
            table_of([list(column) for column in zip(*rows, strict=True)], (2, REGIONS, 1, GRADES))
        )

    more = [] if replaced is None else replaced
    moved = np.abs(counted([*others, *unit]) - counted([*others, *more]))
    stability = Stability(
        records=max(len(unit), len(more)),
        neighbors="add-remove" if replaced is None else "replace-one",
    )
    most = Sensitivity.of_rows(stability, l1=GRADES, l2_squared=GRADES**2, steps=STEPS)
    assert moved.sum() <= most.l1
    assert (moved**2).sum() <= most.l2_squared


def test_the_law_is_reached() -> None:
    """By rows that are alike."""
    alike = [(0, 1, 0, GRADES - 1)] * 4
    moved = grades_of_women(
        table_of([list(column) for column in zip(*alike, strict=True)], (2, REGIONS, 1, GRADES))
    )
    most = Sensitivity.of_rows(
        Stability(records=4, neighbors="add-remove"), l1=GRADES, l2_squared=GRADES**2
    )
    assert (moved.sum(), math.isqrt((moved**2).sum())) == (most.l1, math.isqrt(most.l2_squared))


def test_a_grouped_view_moves_by_one_row() -> None:
    """Of a unit of several rows; and what a stage leaves before a table is resized is moved as the rows themselves."""
    config = configuration(
        privacy__unit={"column": "id", "max_records": 4},
        resize={"records": 9, "proportion": 1.5},
        **{
            f"columns__{name}__impute": {"distribution": "uniform"}
            for name in ("sex", "region", "age", "grade")
        },
    )
    assert RowView("by unit", "preprocess", grouped=True).stability(config) == Stability(
        records=1, neighbors="add-remove"
    )
    assert RowView("rows", "preprocess").stability(config) == Stability(
        records=4, neighbors="add-remove"
    )
    assert RowView("records", ENCODE).stability(config) == config.stability
