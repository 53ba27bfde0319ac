"""The section beyond marginals: its cells, measures and lines; nothing is measured here."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.accuracy import beyond_page
from benchmarks.accuracy.beyond_measures import measure_beyond, subgroups
from benchmarks.accuracy.figures import Cell, Figure
from benchmarks.accuracy.methods import DEFAULT, ROWS, settings
from benchmarks.accuracy.small_page import grouped
from benchmarks.accuracy.tables import delta, table


def test_what_is_tested_on_is_never_released() -> None:
    """Four fifths of the rows and the rest, which every method shares; yardsticks are measured at one epsilon."""
    name = beyond_page.sample("affairs", 1)
    part = table(name)
    assert (len(part.rows), len(part.outside)) == (5092, 1274)
    assert sorted(part.rows + part.outside) == sorted(table("affairs").rows)
    assert part.rows != table(beyond_page.sample("affairs", 2)).rows
    assert (delta(name), delta("adult/9/0")) == (1e-6, delta("adult"))


def test_cells_are_all_of_a_split_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond_page, "sample", lambda name, split: f"{name}/9/{split}")
    every = beyond_page.cells(beyond_page.ALL)
    assert [cell.seed for cell in every] == sorted(cell.seed for cell in every)
    assert len(every) == len(set(every)) == 3 * 3 * (2 * 4 + 2)
    assert {cell.epsilon for cell in every if cell.method == ROWS} == {1.0}
    assert all(settings(cell) for cell in every if cell.method != DEFAULT)


def test_the_rows_themselves_have_no_error_and_one_row_teaches_nothing() -> None:
    """Of the rows every distance is 0 and both classifiers learn; of copies of one row they know as much as a coin."""
    name = beyond_page.sample("affairs", 0)
    rows = table(name).rows
    perfect, worst = (measure_beyond(name, those) for those in (rows, rows[:1] * 50))
    errors = ("tvd4", "tvd5", "v", "groups", "small", "counts")
    assert [perfect[key] for key in errors] == [0] * len(errors)
    assert min(perfect["gb_auc"], perfect["lr_auc"]) > 0.7
    assert min(perfect["gb_f1"], perfect["lr_f1"]) > 0.4
    assert [worst[key] for key in ("gb_auc", "lr_auc", "gb_f1", "lr_f1")] == [0.5, 0.5, 0, 0]
    assert all(worst[key] > 0.5 for key in errors if key not in ("v", "counts"))


def test_groups_are_compared_within_themselves() -> None:
    """By hand: three columns, so that each pair of them makes groups in which the third is compared.

    The rows are 40 of (0, 0, 0), 30 of (0, 1, 1) and 5 of (2, 0, 1): a group of 5 is none. The records lack the second kind,
    and half of the first have another last value.
    """
    real = np.repeat([[0, 0, 0], [0, 1, 1], [2, 0, 1]], [40, 30, 5], axis=0)
    made = np.repeat([[0, 0, 0], [0, 0, 3], [2, 0, 1]], [40, 40, 70], axis=0)
    found = subgroups(real, made, (3, 2, 4))
    # of the first kind; the group (b = 0, c = 0) has its rows alone
    first = {"ab": 0.5, "ac": 0.0, "bc": 0.0}
    second = {"ab": 1.0, "ac": 1.0, "bc": 1.0}
    assert found["groups"] == pytest.approx(np.mean([*first.values(), *second.values()]))
    assert found["small"] == 1.0
    assert found["counts"] == 1.0
    twice = subgroups(real, np.repeat(real, 2, axis=0), (3, 2, 4))
    assert set(twice.values()) == {0.0}
    elsewhere = subgroups(np.zeros((30, 4), np.int64), np.ones((30, 4), np.int64), (2, 2, 2, 2))
    assert set(elsewhere.values()) == {1.0}


def test_lines_of_what_was_asked() -> None:
    """A mean that is asked for is reached or not, by adult at epsilon 1 alone."""

    def made(auc: float, split: int, table_name: str = "adult", ended: str = "") -> Figure:
        cell = Cell(table=f"{table_name}/9/{split}", epsilon=1.0, method=DEFAULT, seed=split)
        facts = {"system": "", "version": "", "date": "", "machine": {}, "settings": {}}
        return Figure(
            cell=cell,
            delta=0.1,
            rows=9,
            columns=2,
            load=0,
            numbers={"gb_auc": auc, "ended": ended},
            **facts,
        )

    figures = [
        made(0.890, 0),
        made(0.906, 1),
        made(0.0, 2, ended="stopped"),
        made(0.99, 0, "affairs"),
    ]
    assert list(beyond_page.asked_lines(grouped(figures)))[2:] == [
        "| default | 2 | 0.8980 | yes so far | **no** so far |"
    ]
