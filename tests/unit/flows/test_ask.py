"""What a steward answers stands in the draft as it was said; what a configuration may not say is asked for again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.flows.cli.ask import Questions, _parsed
from marginweave.schemas.configuration.execution import SourceFile
from marginweave.schemas.configuration.yaml_source import parse_yaml
from marginweave.tasks.accounting.plan.resolve import parse_configuration
from marginweave.tasks.validate.draft import Draft, draft_configuration, flow

YES, WHERE = "yes", "the questionnaire"
LINES = ["patient_id,sex,age,level", *(f"p{i // 3},{'fm'[i % 2]},{i % 90},{['low', 'mid'][i % 2]}" for i in range(200))]


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    (tmp_path / "t.csv").write_text("\n".join(LINES) + "\n")
    return draft_configuration(str(tmp_path / "t.csv"), SourceFile.model_validate({"file": "t.csv"}))


def answered(draft: Draft, place: Path, answers: Sequence[str], patch: pytest.MonkeyPatch) -> dict[str, object]:
    """The configuration after the answers, every one of which is asked for."""
    left = iter(answers)
    patch.setattr("builtins.input", lambda *_: next(left))
    *_, last = Questions(place).answered(draft)
    assert next(left, None) is None
    assert not last.waits
    assert "confirm" not in last.text
    raw = parse_yaml(last.text)
    parse_configuration(raw)
    return raw


def test_the_draft_stands_where_nothing_else_is_said(
    draft: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enter takes what was drafted, but where the facts are published: that nobody can draft."""
    raw = answered(draft, tmp_path, ["", "", "", "", "", WHERE, "", "", "", ""], monkeypatch)
    before = parse_yaml(draft.text)
    assert raw["privacy"]["unit"] == before["privacy"]["unit"]  # type: ignore[index]
    assert "rows" not in raw
    columns = {name: {**c, "confirm": True} for name, c in raw["columns"].items()}  # type: ignore[attr-defined]
    for column in columns.values():
        assert column.pop("public", WHERE) == WHERE
    assert columns == before["columns"]


def test_each_answer_is_written_as_it_was_given(
    draft: Draft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another unit brings back what its column was; a kind, an order, private bounds; a column that is dropped."""
    unit = ["patient", "row", YES, "0", "250"]
    drop, sex = ["drop"], ["change", "category", "m, f, x", "N", WHERE]
    age = ["private", "5", "0, 120"]
    level = ["change", "number", "0", "4", "0", "", "0, 9", "3", "0", "", "page 9"]
    raw = answered(draft, tmp_path, [*unit, *drop, *sex, *age, *level], monkeypatch)
    assert raw["privacy"]["unit"] == "row"  # type: ignore[index]
    assert raw["rows"] == 250
    assert raw["columns"] == {
        "sex": {"type": "category", "values": ["m", "f", "x"], "missing": ["N"], "public": WHERE},
        "age": {"type": "number", "bounds": "private", "within": [0, 120], "bins": 10},
        "level": {"type": "number", "bounds": [0, 9], "bins": 3, "decimals": 0, "public": "page 9"},
    }


def test_a_private_column_can_be_given_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("town,sex\n" + "".join(f"T{i % 60},{'fm'[i % 2]}\n" for i in range(180)))
    draft = draft_configuration(str(tmp_path / "t.csv"), SourceFile.model_validate({"file": "t.csv"}))
    raw = answered(draft, tmp_path, ["", "", YES, "drop"], monkeypatch)
    assert raw["columns"] == {"town": {"type": "category", "domain": "private"}}
    raw = answered(draft, tmp_path, ["", "", "change", "category", "T0, T1", "", WHERE, "drop"], monkeypatch)
    assert raw["columns"] == {"town": {"type": "category", "values": ["T0", "T1"], "public": WHERE}}


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), max_size=5))
def test_what_is_shown_can_be_typed(texts: list[str]) -> None:
    """The text in parentheses is read back as the values that it shows."""
    for key in ("values", "missing"):
        assert _parsed(key, flow(key, texts)) == texts
