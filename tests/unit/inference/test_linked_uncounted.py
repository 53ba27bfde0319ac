"""How many rows of a linked table are in no count of rows, where a derived column says how many rows each unit has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from marginweave.configuration.columns.base import NOT_DECLARED
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.question import read_question
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.evaluate.undeclared import with_uncounted
from marginweave.inference.linked_answers import LinkedAnswers
from marginweave.observations.combinations import Aggregates
from marginweave.observations.linked import LinkedAxis, LinkedObservation
from marginweave.observations.linked_uncounted import LinkedUncounted, linked_uncounted
from marginweave.observations.tables import Marginals, Observation
from marginweave.publish.linked_tables import linked_statements, uncounted_statements
from marginweave.released.verdict import Verdict
from tests.support.linked_counts import counted_hospital

AT_MOST = 2
UNITS = np.array([500, 400, 300, 200, 100, 60, 40])  # with 0, 1, … 6 rows
BEYOND = int((UNITS * np.maximum(np.arange(7) - AT_MOST, 0)).sum())
COUNTED = int((UNITS * np.minimum(np.arange(7), AT_MOST)).sum())
SHARE = BEYOND / (BEYOND + COUNTED)
SIMULATED = 400
KINDS = ("planned", "emergency", None, NOT_DECLARED)


def counted(bins: list[int], **changes: Any) -> Configuration:
    """The hospital with these bins of the number of stays, the last of which begins there and has all that is more."""
    hospital = counted_hospital(at_most=AT_MOST)
    number = {"type": "number", "bounds": [0, 9], "decimals": 0, "bins": [*bins, 9], **changes}
    written = json.loads(hospital.written)["written"]
    columns = {**dict(written["columns"]), "number": number}
    return parse_configuration({**written, "columns": columns})


def measured(config: Configuration, sigma: float, seed: int = 0) -> Marginals:
    """Marginals of the numbers of stays, and the counts of kinds of rows, with noise of this size."""
    rng = np.random.default_rng(seed)
    starts = [int(ends[0]) for ends in config.columns["number"].label_limits if ends is not None]
    bins = np.add.reduceat(UNITS, starts)
    noisy = [np.rint(c + sigma * rng.standard_normal(len(c))) for c in (bins, UNITS[:2])]
    rows = np.rint(COUNTED * np.array([0.5, 0.5, 0, 0]) + sigma * rng.standard_normal(4))
    deviation = max(sigma, 1e-3)
    return Marginals(
        domain=Domain(names=("sex", "number"), labels=(("f", "m"), ("",) * len(bins))),
        one_way=(
            Observation(attributes=(0,), counts=noisy[1], deviation=deviation),
            Observation(attributes=(1,), counts=noisy[0], deviation=deviation),
        ),
        larger=(),
        linked=(
            LinkedObservation(
                draw="linked-rows-1",
                table="stays",
                count_of="rows",
                axes=(LinkedAxis("stays", "kind", KINDS),),
                counts=rows,
                deviation=deviation,
                steps=1,
            ),
        ),
    )


def told(bins: list[int], sigma: float = 0.0, seed: int = 0) -> LinkedUncounted:
    config = counted(bins)
    (known,) = linked_uncounted(measured(config, sigma, seed), config)
    return known


def test_bins_of_one_number_tell_it_exactly() -> None:
    known = told([0, 1, 2, 3, 4, 5, 6])
    assert known.rows.rows_at_least == BEYOND
    assert known.rows.subjects_ends == (400, 400)
    assert known.shares == pytest.approx((SHARE, SHARE), abs=2e-3)


@pytest.mark.parametrize(
    ("bins", "rows", "ends"),
    [
        ([0, 3], 400, (400, 400)),  # one row each at least
        (
            [0, 1, 4],
            400,
            (200, 1100),
        ),  # three rows are in a bin with one: two rows each at least of the others
        ([0, 1, 2, 5], 300, (100, 700)),
    ],
)
def test_wide_bins_tell_a_lower_bound(bins: list[int], rows: int, ends: tuple[int, int]) -> None:
    known = told(bins)
    assert known.rows.rows_at_least == rows
    assert known.rows.subjects_ends == ends
    assert known.shares[1] < SHARE


@pytest.mark.parametrize(
    ("bins", "changes"),
    [
        ([0, 1, 2], {}),
        ([0, 3], {"impute": {"distribution": "uniform"}, "missing": [""], "outside": "null"}),
    ],
)
def test_nothing_is_told_where_no_bin_lies_beyond_or_cells_were_drawn(
    bins: list[int], changes: dict[str, Any]
) -> None:
    config = counted(bins, **changes)
    assert linked_uncounted(measured(config, 0.0), config) == ()


def test_what_is_beyond_noise_is_covered() -> None:
    """The lower end of the share and both ends of the units hold with 97.5 and 95 %: more misses have a chance below 1e-7."""
    shares, units = 0, 0
    for seed in range(SIMULATED):
        known = told([0, 1, 2, 3, 4, 5, 6], 30.0, seed)
        low, high = known.rows.subjects_ends
        units += not low <= 400 <= high
        shares += known.shares[1] > SHARE
        assert known.rows.found
    assert shares <= binom.isf(1e-7, SIMULATED, 0.025)
    assert units <= binom.isf(1e-7, SIMULATED, 0.05)


def verdict_of(linked: tuple[LinkedUncounted, ...]) -> tuple[str, str, str]:
    """The grade of a good release, what is said of its rows, and what is advised."""
    counts = Aggregates(
        domain=Domain(names=("sex",), labels=(("f", "m"),)),
        record_count=1600,
        record_deviation=1.0,
        levels=(),
        noise=(),
    )
    good = Verdict.model_construct(publication="good", says=(), advice=())
    verdict = with_uncounted(good, counts, {}, counted_hospital(at_most=AT_MOST), linked)
    return verdict.publication, " ".join(verdict.says), " ".join(verdict.advice)


def test_the_verdict_says_the_share_and_is_no_better_than_with_care_from_a_tenth_on() -> None:
    publication, said, advised = verdict_of((told([0, 3], 3.0),))
    assert publication == "with care"
    assert said.startswith("At least about 18 % of the rows of stays (1")
    assert "units have rows beyond the 2 that are counted of each" in said
    assert "With a larger `at_most` of tables.stays" in advised
    few = told([0, 6], 3.0)
    assert 0 < few.shares[1] < 0.1
    assert verdict_of((few,))[0] == "good"
    none = replace(few, rows=replace(few.rows, subjects=0, subjects_ends=(0, 9), rows_at_least=0))
    publication, said, advised = verdict_of((none,))
    assert (publication, advised) == ("good", "")
    assert said.startswith("At most 9 units (with 95 % confidence) have rows of stays beyond")


def test_the_verdict_says_what_would_tell_it() -> None:
    publication, said, advised = verdict_of(())
    assert publication == "good"
    assert "is not known from this release" in said
    assert "tables.stays.derive has as `count`, if a bin of it begins at 3" in advised


def test_privacy_json_says_the_same() -> None:
    config = counted([0, 3])
    (row,) = uncounted_statements(measured(config, 3.0), config)
    assert (row.table, row.column, row.cap) == ("stays", "patient_id", AT_MOST)
    assert row.words == verdict_of((told([0, 3], 3.0),))[1]
    assert 0.17 < row.share_low < row.share < 0.19


@pytest.mark.parametrize("each", ["row", "unit"])
def test_an_answer_by_rows_says_which_share_is_in_none(each: str) -> None:
    config = counted([0, 3])
    marginals = measured(config, 3.0)
    (row,) = uncounted_statements(marginals, config)
    units = replace(marginals.linked[0], count_of="units")
    seen = (*marginals.linked, units)
    answers = LinkedAnswers(
        name="stays",
        table=(config.tables or {})["stays"],
        configuration=config,
        domain=Domain(names=("sex", "number"), labels=tuple(a.labels for a in config.attributes)),
        histograms=[
            (said, pa.array(one.counts))
            for said, one in zip(linked_statements(seen, config), seen, strict=True)
        ],
        uncounted=row,
    )
    asked = read_question(
        {"table": "stays", "each": each, "share": True, "where": {"kind": "planned"}}
    )
    (answer,) = answers.ask(asked)
    said = "at most 2 of each unit: at least about 18 % of all rows (17 % or more) are in none"
    assert (said in answer.of) == (each == "row")
