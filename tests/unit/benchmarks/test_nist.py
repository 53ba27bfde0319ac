"""NIST's scores: the excerpt and its rules, and the page; nothing is measured here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.accuracy import nist, nist_page
from benchmarks.accuracy.figures import Cell, Figure, current, read
from benchmarks.accuracy.methods import DEFAULT, configuration, settings
from benchmarks.accuracy.nist_tables import BINNED, EDGES, PREFIX, SETS, Excerpt, label, unbinned
from benchmarks.accuracy.tables import table
from marginweave.configuration.load import parse_configuration
from marginweave.runs.limits import check_size
from tests.support.places import DATA

HERE = pytest.mark.skipif(
    not DATA.is_dir(),
    reason="the test tables are not here; MARGINWEAVE_TEST_DATA names their folder",
)
MADE = Figure(
    cell=Cell(table=f"{PREFIX}all", epsilon=1.0, method=DEFAULT, seed=0),
    settings={"a": 1},
    system="marginweave",
    version="1",
    delta=1e-5,
    rows=7634,
    columns=24,
    date="2026-01-01",
    load=0.0,
    machine={},
    numbers={
        "ended": "",
        "cpu": 30.0,
        "records": 7000,
        "k_marginal": 850.4,
        "pmse": 0.01234,
        "inconsistent": 3,
    },
)


def figure(method: str, seed: int, **numbers: float | str) -> Figure:
    return replace(
        MADE, cell=replace(MADE.cell, method=method, seed=seed), numbers=MADE.numbers | numbers
    )


@HERE
@pytest.mark.parametrize("name", SETS)
def test_the_excerpt_keeps_the_rules_that_are_declared(name: str) -> None:
    """By their own words, a row at a time: a rule that the dictionary does not say would change rows without a sign."""
    excerpt = table(PREFIX + name)
    assert isinstance(excerpt, Excerpt)
    made = parse_configuration(configuration(replace(MADE.cell, table=PREFIX + name), "table.csv"))
    check_size(made)
    rules = excerpt.structure()
    rows = [dict(zip(excerpt.header, row, strict=True)) for row in excerpt.rows]
    for entry in rules["applies"]:
        (column,) = entry["columns"]
        assert all(
            holds(entry["where"], row) == (row[column] != entry["otherwise"]) for row in rows
        ), entry
    for rule in rules["forbidden"]:
        assert not any(holds(rule, row) for row in rows), rule
    for entry in rules["determined"]:
        assert all(entry["mapping"][row[entry["by"]]] == row[entry["column"]] for row in rows)


def holds(where: dict[str, object], row: dict[str, str]) -> bool:
    """Whether a row meets conditions, by column."""
    return all(meets(condition, row[name]) for name, condition in where.items())


def meets(condition: object, value: str) -> bool:
    if not isinstance(condition, dict):
        return value in condition if isinstance(condition, list) else value == condition
    if "but" in condition:
        return value != condition["but"]
    ends = {
        "from": lambda n, end: n >= end,
        "above": lambda n, end: n > end,
        "to": lambda n, end: n <= end,
    }
    ends["below"] = lambda n, end: n < end
    return value != "N" and all(ends[key](float(value), end) for key, end in condition.items())


@HERE
def test_bins_of_a_peer_hold_every_value_and_give_one_of_theirs_back() -> None:
    """With every public value of the binned table among those that a peer is told."""
    binned = table(f"{PREFIX}all{BINNED}")
    binned.codes(binned.rows)
    back = unbinned(binned.header, binned.rows, 1)
    assert [
        [label(n, v) for n, v in zip(binned.header, row, strict=True)] for row in back
    ] == binned.rows
    assert back != table(f"{PREFIX}all").rows
    assert [label("WGTP", value) for value in ("0", "1", "9", "10", "9999")] == [
        "0",
        "1",
        "1",
        "10",
        "1000",
    ]
    assert (label("PINCP", "N"), label("PINCP", str(EDGES["PINCP"][0]))) == ("N", "-9000")


def test_the_page_says_what_was_asked_reached_and_stopped() -> None:
    page = nist_page.render(
        [MADE, figure(DEFAULT, 1, k_marginal=860.4), figure("dpmm-mst", 0, k_marginal=790.0)], 9
    )
    assert "| all | MST + 60 | MST +65 (855 and 790) | 2 | yes |" in page
    assert "| demographic | 960 | not yet measured | | |" in page
    assert "| 1 | ours, default | 2 | 855 ± 7 |  | 0.0123 ± 0.0000 | 3 ± 0 | 7,000 | 30 |" in page
    assert "6 of\n9 cells are not measured yet" in page
    worse = nist_page.render([MADE, figure("dpmm-mst", 0, k_marginal=795.0)], 9)
    assert "| all | MST + 60 | MST +55 (850 and 795) | 1 | **no** |" in worse
    stopped = nist_page.render([MADE, figure("dpmm-mst", 0, ended="stopped after 900 CPU s")], 9)
    assert "| 1 | MST (dpmm) | 1 | stopped after 900 CPU s |" in stopped
    assert "| all | MST + 60 | not yet measured | | |" in stopped


@HERE
def test_the_page_is_made_of_the_figures() -> None:
    """After a change of the default, of figures or of the page: python -m benchmarks.accuracy.nist --seeds 0 --write"""
    kept = current(read(nist.FIGURES), settings)
    assert nist.PAGE.read_text(encoding="utf-8") == nist_page.render(
        kept.values(), len(nist.cells(nist.ALL))
    )
