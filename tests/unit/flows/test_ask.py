"""What a steward answers stands in the draft as it was said; what a configuration may not say is asked for again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts.draft import draft_configuration, flow
from marginweave.flows.cli.ask import answered, parsed

YES, WHERE = "yes", "the questionnaire"
PATIENTS = ["patient_id,sex,age,level", *(f"p{i // 3},{'fm'[i % 2]},{i % 90},{'xy'[i % 2]}" for i in range(200))]
TOWNS = ["town,sex", *(f"T{i % 60},{'fm'[i % 2]}" for i in range(180))]
Steward = Callable[[list[str], Sequence[str]], dict[str, Any]]


def drafted(place: Path, lines: list[str]) -> str:
    (place / "t.csv").write_text("\n".join(lines) + "\n")
    return draft_configuration(str(place / "t.csv"), SourceFile.model_validate({"file": "t.csv"}))


@pytest.fixture
def steward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steward:
    """The configuration that a table becomes by the answers, each of which is asked for."""

    def decide(lines: list[str], answers: Sequence[str]) -> dict[str, Any]:
        left = iter(answers)
        monkeypatch.setattr("builtins.input", lambda *_: next(left))
        *_, text = answered(drafted(tmp_path, lines), tmp_path)
        assert next(left, None) is None
        assert "confirm" not in text
        raw = parse_yaml(text)
        parse_configuration(raw)
        return raw

    return decide


def test_the_draft_stands_where_nothing_else_is_said(steward: Steward, tmp_path: Path) -> None:
    """Enter takes what was drafted, but where the facts are published: that nobody can draft."""
    raw = steward(PATIENTS, ["", "", "", "", WHERE, "", "", "", ""])
    before = parse_yaml(drafted(tmp_path, PATIENTS))
    assert raw["privacy"]["unit"] == before["privacy"]["unit"]
    assert "rows" not in raw
    assert {column.pop("public", WHERE) for column in raw["columns"].values()} == {WHERE}
    assert {name: {**column, "confirm": True} for name, column in raw["columns"].items()} == before["columns"]


def test_each_answer_is_written_as_it_was_given(steward: Steward) -> None:
    """Another unit, a kind, an order, private bounds, a column that is dropped; what breaks a rule is asked again."""
    unit, sex = ["patient", "row", YES, "0", "250"], ["change", "m, f, x", "N", WHERE]
    age, level = (
        ["private", "5", "0, 120"],
        ["type", "number", "0", "4", "0", "", "", "0, 9", "3", "0", "", "page, 9"],
    )
    raw = steward(PATIENTS, [*unit, "drop", *sex, *age, *level])
    assert raw["privacy"]["unit"] == "row"
    assert raw["rows"] == 250
    assert raw["columns"] == {
        "sex": {"type": "category", "values": ["m", "f", "x"], "missing": ["N"], "public": WHERE},
        "age": {"type": "number", "bounds": "private", "within": [0, 120], "bins": 10},
        "level": {"type": "number", "bounds": [0, 9], "bins": 3, "decimals": 0, "public": "page, 9"},
    }


def test_what_is_left_for_later_waits_in_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No question is without a way out: Enter where nothing is said of the place, or the word, leaves the column as it was."""
    left = iter(["row", "", "drop", "", "", "later", "change", "x, y, z", "", "later"])
    monkeypatch.setattr("builtins.input", lambda *_: next(left))
    *_, text = answered(drafted(tmp_path, PATIENTS), tmp_path)
    columns = parse_yaml(text)["columns"]
    assert [column["confirm"] for column in columns.values()] == [True, True, True]
    assert columns["level"]["values"] == ["x", "y", "z"]
    assert text.startswith("# SENSITIVE")


def test_what_is_no_code_is_missing(steward: Steward) -> None:
    ages = ["age,sex", *(f"{999 if i % 9 == 0 else i % 90},{'fm'[i % 2]}" for i in range(200))]
    raw = steward(ages, ["", "", "change", "0, 120", "", "", "{}", "999", WHERE, "drop"])
    assert raw["columns"]["age"] == {
        "type": "number",
        "bounds": [0, 120],
        "bins": 10,
        "decimals": 0,
        "missing": ["999"],
        "public": WHERE,
    }


def test_a_unit_that_was_not_drafted_needs_its_rows(steward: Steward) -> None:
    raw = steward(TOWNS, ["town", "", "2", "", "", WHERE])
    assert raw["privacy"]["unit"] == {"column": "town", "max_records": 2}
    assert raw["columns"]["town"] == {"type": "identifier"}


def test_a_private_column_can_be_given_values(steward: Steward) -> None:
    bought = steward(TOWNS, ["", "", YES, "drop"])["columns"]
    assert bought == {"town": {"type": "category", "domain": "private"}}
    listed = steward(TOWNS, ["", "", "type", "category", "T0, T1", "", WHERE, "drop"])["columns"]
    assert listed == {"town": {"type": "category", "values": ["T0", "T1"], "public": WHERE}}


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), max_size=5))
def test_what_is_shown_can_be_typed(texts: list[str]) -> None:
    """The text in parentheses is read back as the values that it shows."""
    for key in ("values", "missing"):
        assert parsed(key, flow(key, texts)) == texts
