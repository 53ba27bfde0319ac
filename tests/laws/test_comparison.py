"""Two releases compared: nothing is named that did not change, but for the stated rate, and what did change is found."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from marginweave.base.errors import InputError
from marginweave.publish.comparison import FALSE_ALARM, Change, compare_releases, render_comparison
from marginweave.publish.reader import PublishedRelease
from tests.support.changed_releases import (
    COLUMNS,
    SIZES,
    Make,
    Truth,
    marginals_of,
    truth,
    tuples_of,
)
from tests.support.configurations import configuration


@pytest.mark.parametrize(("make", "pages"), [(tuples_of, 30), (marginals_of, 20)])
def test_what_did_not_change_is_named_no_more_often_than_is_said(make: Make, pages: int) -> None:
    """Of so many pages about unchanged tables; false-alarm rate of this test 1e-6.

    Were the rate not divided by the number of intervals, 70 % of pages would be wrong.
    """
    rng, counts = np.random.default_rng(8), truth()
    alarms = 0
    for _ in range(pages):
        found = compare_releases(make(rng, counts), make(rng, counts))
        alarms += bool(found.changed or found.changed_pairs or found.total.is_beyond_noise)
    assert alarms <= binom.isf(1e-6, pages, FALSE_ALARM)


@pytest.mark.parametrize("make", [tuples_of, marginals_of])
def test_what_changed_is_found_and_its_range_holds(make: Make) -> None:
    """Twenty standard deviations, up, down, and to nothing; beside them nothing is named (but at the stated rate)."""
    rng, counts = np.random.default_rng(9), truth()
    counts[1,][7], counts[1,][3], counts[1, 2][4, 5] = 300, 50, 60
    changed = {**counts, (1,): counts[1,].copy(), (1, 2): counts[1, 2].copy()}
    changed[1,][7], changed[1,][3], changed[1, 2][4, 5] = (
        0,
        counts[1,][3] + 120,
        counts[1, 2][4, 5] + 120,
    )
    found = compare_releases(make(rng, counts), make(rng, changed))
    assert {change.words for change in found.changed} == {"c1 v7", "c1 v3"}
    down, up = sorted(found.changed, key=lambda change: change.low)
    assert down.low <= -300 <= down.high < 0 < up.low <= 120 <= up.high
    assert "c1 v4 and c2 v5" in {change.words for change in found.changed_pairs}
    if make is tuples_of:
        # of marginals a rare value that is merged with others changes, too
        assert len(found.changed_pairs) == 1
        assert down.after is None  # it was not released, and is found all the same
    assert f"{len(found.changed)} of {sum(SIZES)} values changed" in str(found.verdict)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (787, 1287, "787 to 1,287 more"),
        (-1287, -787, "787 to 1,287 fewer"),
        (-5, 1300, "5 fewer to 1,300 more"),
        (0, 7, "0 to 7 more"),
        (-7, 0, "0 to 7 fewer"),
    ],
)
def test_page_and_terminal_tell_a_change_in_the_same_words(low: int, high: int, said: str) -> None:
    rng, counts = np.random.default_rng(12), truth()
    before, after = tuples_of(rng, counts), tuples_of(rng, counts)
    one = Change(words="c1 v7", before=2000, after=1000, low=low, high=high)
    page = render_comparison(
        replace(compare_releases(before, after), values=(one,)), before, after
    ).decode()
    assert f"{said}</td>" in page
    assert str(one.sentence) == f"c1 v7: {said} (from 2,000 to 1,000)"


def test_counts_have_their_shares_and_columns_and_values_their_titles() -> None:
    """So that a release of fewer records does not look like change."""
    rng, counts = np.random.default_rng(14), truth()
    before, after = tuples_of(rng, counts), tuples_of(rng, counts)
    titled = {**COLUMNS, "c1": {**COLUMNS["c1"], "label": "Place", "titles": {"v7": "Bern"}}}
    after = replace(
        after, configuration=configuration(columns=titled, aggregate__method="k-tuples")
    )
    before = replace(before, aggregates=replace(before.aggregates, record_count=1000))
    after = replace(after, aggregates=replace(after.aggregates, record_count=500))
    found = compare_releases(before, after)
    (one,) = (change for change in found.values if change.words == "c1 (Place) v7 (Bern)")
    page = render_comparison(replace(found, values=(one,)), before, after).decode()
    assert one.before is not None
    assert one.after is not None
    assert f"{one.before:,} ({one.before / 10:.1f} %)</td>" in page
    assert f"{one.after:,} ({one.after / 5:.1f} %)</td>" in page
    assert "the earlier release has about 1,000 records, the later about 500" in page


@pytest.mark.parametrize(
    ("old", "new", "is_told"),
    [
        ("2026-03-02 08:00:00 UTC", "2026-03-02 07:59:59 UTC", True),
        ("2026-03-02", "2026-03-01 23:00:00 UTC", True),
        ("2026-03-02", "2026-03-02 07:00:00 UTC", False),
        ("2026-03-02 08:00:00 UTC", "2026-03-02 08:00:01 UTC", False),
    ],
)
def test_a_release_that_was_made_before_the_earlier_one_is_told(
    old: str, new: str, is_told: bool
) -> None:
    rng, counts = np.random.default_rng(13), truth()
    before, after = (
        replace(made, statement=made.statement.model_copy(update={"begun": begun, "run": run}))
        for made, begun, run in (
            (tuples_of(rng, counts), old, "spring"),
            (tuples_of(rng, counts), new, "summer"),
        )
    )
    page = render_comparison(compare_releases(before, after), before, after).decode()
    assert (f"summer ({new}) was made before spring ({old})" in page) == is_told


def test_the_ranges_hold_all_together() -> None:
    """Every change of a page is inside its range, at the stated rate (false-alarm rate of this test 1e-6)."""
    rng, counts = np.random.default_rng(10), truth()
    later = {
        columns: np.maximum(table + rng.integers(-20, 20, table.shape), 0)
        for columns, table in counts.items()
    }
    real = {
        " and ".join(f"c{a} v{v}" for a, v in zip(columns, cell, strict=True)): later[columns][cell]
        - table[cell]
        for columns, table in counts.items()
        for cell in np.ndindex(table.shape)
    }
    pages = 30
    missed = 0
    for _ in range(pages):
        found = compare_releases(tuples_of(rng, counts), tuples_of(rng, later))
        every = (*found.values, *found.pairs)
        assert len(found.values) == sum(SIZES)
        missed += any(not change.low <= real[change.words] <= change.high for change in every)
    assert missed <= binom.isf(1e-6, pages, FALSE_ALARM)


SUBJECTS = 60_000
ROWS = np.stack([np.random.default_rng(5).integers(0, size, (SUBJECTS, 4)) for size in SIZES])
"""Codes of four rows of each subject: shape (columns, subjects, rows)."""
UNIT: dict[str, Any] = {"privacy__unit": {"column": "id", "max_records": 1}}
IMPUTED: dict[str, Any] = {"columns__c0__impute": {"distribution": "uniform"}}
NAMES = {
    "chosen": "counts are of at most 1 row for each id, chosen by chance",
    "imputed": "cells of c0 without a value",
}


def _counted(rng: np.random.Generator, by_chance: str) -> Truth:
    """What is counted where one row of each subject is chosen, or where four of five values of the first column are imputed."""
    codes = ROWS[:, :, 0].copy()
    if by_chance == "chosen":
        codes = ROWS[:, np.arange(SUBJECTS), rng.integers(0, 4, SUBJECTS)]
    else:
        codes[0, : 4 * SUBJECTS // 5] = rng.integers(0, 2, 4 * SUBJECTS // 5)
    found: Truth = {
        (j,): np.bincount(own, minlength=n)
        for j, (own, n) in enumerate(zip(codes, SIZES, strict=True))
    }
    for a, b in itertools.combinations(range(len(SIZES)), 2):
        found[a, b] = np.zeros((SIZES[a], SIZES[b]), np.int64)
        np.add.at(found[a, b], (codes[a], codes[b]), 1)
    return found


def _declared(release: PublishedRelease, by_chance: str) -> PublishedRelease:
    changes = UNIT if by_chance == "chosen" else IMPUTED
    aggregate = {"method": "marginals", "cliques": {"all": 2}}
    return replace(
        release,
        configuration=configuration(**{"columns": COLUMNS, "aggregate": aggregate, **changes}),
    )


@pytest.mark.parametrize("by_chance", ["chosen", "imputed"])
def test_what_chance_decides_before_rows_are_counted_is_no_change(by_chance: str) -> None:
    """The same rows, released twice: most pages would name a change by the noise alone (false-alarm rate of this test 1e-6)."""
    rng, pages, alarms = np.random.default_rng(13), 16, 0

    def both() -> tuple[PublishedRelease, PublishedRelease]:
        before, after = (
            _declared(marginals_of(rng, _counted(rng, by_chance)), by_chance) for _ in range(2)
        )
        return before, after

    for _ in range(pages):
        found = compare_releases(*both())
        alarms += bool(found.changed or found.changed_pairs)
    assert alarms <= binom.isf(1e-6, pages, FALSE_ALARM)
    before, after = both()
    found = compare_releases(before, after)
    assert str(found.drawn_sentence).count(NAMES[by_chance]) == 1
    assert str(found.drawn_sentence) in render_comparison(found, before, after).decode()


def test_a_change_that_chance_cannot_explain_is_found_and_what_it_does_not_decide_is_as_sharp() -> (
    None
):
    rng = np.random.default_rng(14)
    one, other = (_counted(rng, "imputed") for _ in range(2))
    other[0,] = other[0,] + np.array([4000, -4000])
    other[1,][7] += 120
    before, after = (_declared(marginals_of(rng, counts), "imputed") for counts in (one, other))
    found = compare_releases(before, after)
    assert {change.words for change in found.changed} == {"c0 v0", "c0 v1", "c1 v7"}
    assert "by more than the noise and these choices can explain" in str(found.verdict)


def test_resized_tables_are_not_compared() -> None:
    rng = np.random.default_rng(15)
    release = marginals_of(rng, truth())
    imputed = {
        name: {**column, "impute": {"distribution": "uniform"}} for name, column in COLUMNS.items()
    }
    resized = configuration(columns=imputed, resize={"records": 6000, "proportion": 0.5})
    with pytest.raises(
        InputError, match="is of a resized table, whose records are drawn again in each release"
    ):
        compare_releases(release, replace(marginals_of(rng, truth()), configuration=resized))


def test_other_values_are_not_compared_and_other_datasets_are_refused() -> None:
    rng, counts = np.random.default_rng(11), truth()
    before, after = tuples_of(rng, counts), tuples_of(rng, counts)
    domain = after.aggregates.domain
    other = replace(domain, labels=(("x", "y"), *domain.labels[1:]))
    found = compare_releases(
        before, replace(after, aggregates=replace(after.aggregates, domain=other))
    )
    assert found.apart == ("c0",)
    assert not any("c0" in change.words for change in (*found.values, *found.pairs))
    page = render_comparison(found, before, after).decode()
    assert "Not compared, as their values differ or one release lacks them: c0." in page
    with pytest.raises(InputError, match="another release than RUN"):
        compare_releases(before, before)
    elsewhere = replace(before, statement=before.statement.model_copy(update={"dataset": "visits"}))
    with pytest.raises(InputError, match="must name a release of people; it is one of visits"):
        compare_releases(elsewhere, after)


_RULE = {"structure__forbidden": [{"c0": "v0", "c1": ["v7"]}]}
_WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "a rule more": (_RULE, "the rules between columns"),
    "other rows of a subject": (UNIT, "how many rows are counted of each"),
    "another reading": ({"columns__c1__impute": {"distribution": "uniform"}}, "declared of 'c1'"),
    "another file layout": (
        {"source": {"file": "people.csv", "footer": 3}},
        "how the file is read",
    ),
    "other missing texts": ({"missing": ["v"]}, "declared of 'c0', 'c1', 'c2'"),
}


@pytest.mark.parametrize("way", _WAYS)
def test_nothing_is_called_changed_where_rows_were_prepared_in_different_ways(way: str) -> None:
    rng, counts = np.random.default_rng(16), truth()
    other = {**counts, (1,): counts[1,] + 300}
    changes, part = _WAYS[way]
    aggregate = {"method": "marginals", "cliques": {"all": 2}}
    prepared = configuration(**{"columns": COLUMNS, "aggregate": aggregate, **changes})
    before = marginals_of(rng, counts)
    after = replace(marginals_of(rng, other), configuration=prepared)
    found = compare_releases(before, after)
    assert found.differing
    assert found.changed == found.changed_pairs == ()
    assert part in str(found.prepared)
    assert str(found.verdict).startswith(str(found.prepared))
    assert "changed" not in f"{found.verdict}{found.false_alarm_sentence}"
    page = render_comparison(found, before, after).decode()
    assert page.index("prepared in different ways") < page.index("Values that differ")
    assert "has changed" not in page


def test_the_order_of_columns_is_another_preparation_where_rules_change_rows() -> None:
    """What becomes of a row that breaks a rule is decided column by column; without a rule the order decides nothing."""
    rng, counts = np.random.default_rng(18), truth()
    aggregate = {"method": "marginals", "cliques": {"all": 2}}
    backwards = dict(reversed(COLUMNS.items()))
    for rule, is_other in ((_RULE, True), ({}, False)):
        before, after = (
            replace(
                marginals_of(rng, counts),
                configuration=configuration(columns=columns, aggregate=aggregate, **rule),
            )
            for columns in (COLUMNS, backwards)
        )
        found = compare_releases(before, after)
        assert ("the rules between columns" in str(found.prepared)) is is_other


def test_words_for_readers_and_columns_that_are_not_compared_are_no_other_preparation() -> None:
    rng, counts = np.random.default_rng(17), truth()
    columns = {**COLUMNS, "c1": {**COLUMNS["c1"], "label": "Place", "titles": {"v7": "Bern"}}}
    columns["c0"] = {"type": "category", "values": ["v0", "v1"], "description": "a place"}
    before = tuples_of(rng, counts)
    other = configuration(columns=columns, aggregate__method="k-tuples")
    found = compare_releases(before, replace(tuples_of(rng, counts), configuration=other))
    assert found.prepared is None
