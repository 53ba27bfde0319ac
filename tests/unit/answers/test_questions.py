"""What a question may ask, and how a condition is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.schemas.configuration.conditions import Condition
from marginweave.schemas.errors import InputError
from marginweave.schemas.question import read_condition, read_question, read_questions

NAMES = st.text(alphabet="abcxyz_0123456789", min_size=1, max_size=8)
VALUES = st.text(alphabet="abcäöü0123456789-.[) ", min_size=1, max_size=8).map(str.strip).filter(bool)
SPACE = st.sampled_from(["", " ", "  "])


@given(
    name=NAMES, values=st.lists(VALUES, min_size=1, max_size=4), spaces=st.tuples(SPACE, SPACE), denied=st.booleans()
)
def test_values_are_read_as_they_were_written(
    name: str, values: list[str], spaces: tuple[str, str], denied: bool
) -> None:
    listed = ", ".join(values)
    for sign in ("!=", " not in ") if denied else ("=", " in "):
        text = f"{name}{spaces[0]}{sign}{spaces[1]}{listed}"
        assert read_condition(text) == (name, {"but": values} if denied else values)


@given(name=NAMES, number=st.integers(-999, 999), spaces=st.tuples(SPACE, SPACE))
def test_ranges_have_the_ends_of_a_configuration(name: str, number: int, spaces: tuple[str, str]) -> None:
    for sign, key in ((">=", "from"), (">", "above"), ("<=", "to"), ("<", "below")):
        found = read_condition(f"{name}{spaces[0]}{sign}{spaces[1]}{number}")
        assert found == (name, {key: str(number)})
        (_, condition) = read_question({"where": [found]}).where[0]
        assert condition == Condition.model_validate({key: str(number)})


@pytest.mark.parametrize("text", ["age", "age 60", "age >= 1, 2", ">= 60", "age between 1", ""])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="must be a column, one of"):
        read_condition(text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"share": True, "mean": "age", "where": {"age": "1"}}, "must ask for one of"),
        ({"share": True}, "must have where with share"),
        ({"by": ["sex", "sex"]}, "must not name a column twice"),
        ({"of": "population"}, "how large it is, no sample tells"),
        ({"quantile": "age"}, "COLUMN:.9"),
        ({"quantile": "age:1"}, "COLUMN:.9"),
        ({"level": "1"}, r"^level \(1\) must be below 1$"),
        ({"where": {"age": {"from": "1", "above": "2"}}}, "not both of two"),
        ({"medain": "age"}, "^unknown key medain; did you mean median\\?$"),
        ({"of": "rows"}, r"^of \(rows\) must be table or population$"),
        ({"where": "age >= 60"}, r"where \(age >= 60\) must be conditions by their columns"),
        ({"where": {"age": {"form": "1"}}}, "^unknown key where.age.form; did you mean from"),
    ],
)
def test_a_question_that_goes_not_together_is_refused(content: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_question(content)


def test_a_refused_option_is_called_what_was_typed() -> None:
    with pytest.raises(InputError, match=r"^--level \(2\) must be below 1$"):
        read_question({"level": "2"}, "--")


def test_questions_of_a_file_keep_codes_and_take_defaults(tmp_path: Path) -> None:
    file = tmp_path / "questions.yaml"
    file.write_text("questions:\n  - {where: {code: [01, no]}, by: sex, level: .8}\n  - {quantile: 'age:.9'}\n")
    named = read_questions(file, {"level": ".9", "of": "table"})
    assert [*named] == [
        "question 1 ({where: {code: [01, no]}, by: sex, level: .8})",
        "question 2 ({quantile: age:.9})",
    ]
    first, second = (read_question(content) for content in named.values())
    assert first.where == (("code", ("01", "no")),)
    assert (first.by, first.level, first.asked) == (("sex",), 0.8, "count")
    assert (second.column, second.fraction, second.level) == ("age", 0.9, 0.9)
    for wrong in ("questions: []", "questions: [age]", "query: [{}]"):
        file.write_text(wrong)
        with pytest.raises(InputError, match="question"):
            read_questions(file, {})
    with pytest.raises(InputError, match=r"^file of questions \(.*\) does not exist"):
        read_questions(tmp_path / "nope.yaml", {})
