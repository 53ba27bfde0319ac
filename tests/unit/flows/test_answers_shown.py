"""What `query` and `table` print of answers that were not measured: they look different, and a guess claims nothing."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.answers.answer import About, Answer, Counted, Note
from marginweave.flows.cli.query import _cross, _show


def _answer(**changes: Any) -> Answer:
    given = {
        "question": "count",
        "asked": "count",
        "estimate": 20.0,
        "low": 15.0,
        "high": 25.0,
        "level": 0.95,
    }
    return Answer(**{**given, **changes})


def test_a_guess_is_printed_without_a_probability(capsys: pytest.CaptureFixture[str]) -> None:
    _show(
        [_answer(question="mean age", asked="mean", how="model", level=None)],
        as_json=False,
        as_csv=False,
    )
    shown = capsys.readouterr().out
    assert "no coverage is claimed" in shown
    assert "with probability" not in shown
    _show([_answer(how="bounds"), _answer()], as_json=False, as_csv=False)
    shown = capsys.readouterr().out
    assert "with probability 0.95" in shown
    assert "no coverage is claimed" not in shown
    _show(
        [_answer(question="mean age", asked="mean", how="model", level=None), _answer()],
        as_json=False,
        as_csv=False,
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert "no coverage claimed" in shown
    assert "count, table, 95%" in shown
    _show([_answer(how="model", level=None)], as_json=True, as_csv=False)
    assert '"level": null' in capsys.readouterr().out


def test_a_table_marks_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        _answer(group={"a": "x", "b": str(n)}, how=how)
        for n, how in enumerate(("measured", "rule", "bounds"))
    ]
    _cross(cells, ["a", "b"])
    shown = capsys.readouterr().out
    assert shown.count("20~ (15–25)") == 1
    assert shown.count("20 (15–25)") == 2
    assert "~ was not measured" in shown


def test_a_table_says_once_what_values_beyond_bounds_count_as(
    capsys: pytest.CaptureFixture[str],
) -> None:
    beyond = Note("of a, numbers above 9 count as 9", of_column=True)
    cells = [
        _answer(group={"a": "x", "b": str(number)}, notes=(beyond, Note("there may be none")))
        for number in range(2)
    ]
    _cross(cells, ["a", "b"])
    shown = capsys.readouterr().out
    assert shown.count("Of a, numbers above 9 count as 9.") == 1
    assert "there may be none" not in shown


def test_a_table_marks_what_should_not_be_used_and_says_what_is_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the fields of an answer: words that only look like a warning are none."""
    about = About(Counted.PART, "only some combinations of records that hold many")
    notes = [
        (Note("it may be anything", unusable=True), Note("the rest is left out")),
        (Note("do not worry"),),
    ]
    cells = [
        _answer(group={"a": "x", "b": str(number)}, about=about, notes=notes_of_cell)
        for number, notes_of_cell in enumerate(notes)
    ]
    _cross(cells, ["a", "b"])
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("20* (15–25)") == 1
    assert shown.count("20 (15–25)") == 1
    assert "Each count of only some combinations of records that hold many with its" in shown
    assert cells[0].row()["flag"] == "do not use: it may be anything; the rest is left out"
    assert list(cells[0].row()) == [
        "question",
        "group",
        "estimate",
        "low",
        "high",
        "noise_sd",
        "level",
        "of",
        "how",
        "flag",
    ]
