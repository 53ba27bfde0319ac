"""What a question may ask, and how a condition is written."""

from __future__ import annotations

from bisect import bisect_right
from operator import ge, gt, le, lt
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.columns import Category, DateColumn, NumberColumn
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.question import read_condition, read_question, read_questions
from marginweave.configuration.rules.conditions import Condition, labels_of
from tests.support.configurations import raw

NAMES = st.text(alphabet="abcxyz_0123456789", min_size=1, max_size=8)
VALUES = (
    st.text(alphabet="abcäöü0123456789-.[) ", min_size=1, max_size=8).map(str.strip).filter(bool)
)
SPACE = st.sampled_from(["", " ", "  "])


@given(
    name=NAMES,
    values=st.lists(VALUES, min_size=1, max_size=4),
    spaces=st.tuples(SPACE, SPACE),
    denied=st.booleans(),
)
def test_values_are_read_as_they_were_written(
    name: str, values: list[str], spaces: tuple[str, str], denied: bool
) -> None:
    listed = ", ".join(values)
    for sign in ("!=", " not in ") if denied else ("=", " in "):
        text = f"{name}{spaces[0]}{sign}{spaces[1]}{listed}"
        assert read_condition(text) == (name, {"but": values} if denied else values)


@given(name=NAMES, number=st.integers(-999, 999), spaces=st.tuples(SPACE, SPACE))
def test_ranges_have_the_ends_of_a_configuration(
    name: str, number: int, spaces: tuple[str, str]
) -> None:
    for sign, key in ((">=", "from"), (">", "above"), ("<=", "to"), ("<", "below")):
        found = read_condition(f"{name}{spaces[0]}{sign}{spaces[1]}{number}")
        assert found == (name, {key: str(number)})
        (_, condition) = read_question({"where": [found]}).where[0]
        assert condition == Condition.model_validate({key: str(number)})


def test_a_value_with_a_comma_is_written_in_quotes() -> None:
    assert read_condition('town = "Weston, north", Eastham') == (
        "town",
        ["Weston, north", "Eastham"],
    )
    assert read_condition('town != "a ""b"", c"') == ("town", {"but": ['a "b", c']})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b = c", ("a=b", ["c"])),
        ("a=b=c", ("a=b", ["c"])),
        ("a = b=c", ("a", ["b=c"])),
        (" a=b != d", ("a=b", {"but": ["d"]})),
        ("a >= 3", ("a", {"from": "3"})),
        ("age in years >= 60", ("age in years", {"from": "60"})),
        ("age in 60", ("age", ["60"])),
        ("ab = c", ("ab", ["c"])),
    ],
)
def test_the_longest_column_that_fits_is_meant(text: str, expected: object) -> None:
    assert read_condition(text, ["a", "age", "a=b", "age in years"]) == expected


def test_two_signs_of_equality_are_one() -> None:
    assert read_condition("region == north, south") == read_condition("region = north, south")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age >= 40 and age < 50", "write one --where for each"),
        ("sex=f,region=north", "write one --where for each"),
        ("sex = f and region in north, south", "write one --where for each"),
        ('sex = "f" and region = "north"', "write one --where for each"),
        ("region = 'north'", "its values as they are"),
        ("region in (north, south)", "its values as they are"),
    ],
)
def test_conditions_of_other_languages_say_how_they_are_written(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_condition(text)
    doubled = text.replace('"', '""')
    assert read_condition(f'town = "{doubled}"') == ("town", [text])


@pytest.mark.parametrize("value", [None, ["f", None], {"but": [None]}])
def test_nothing_is_no_value(value: object) -> None:
    with pytest.raises(InputError, match="a missing value has a text"):
        read_question({"where": {"sex": value}})


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
        ({"of": "population"}, "whose size no sample tells"),
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
def test_a_question_that_goes_not_together_is_refused(
    content: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        read_question(content)


def test_a_refused_option_is_called_what_was_typed() -> None:
    with pytest.raises(InputError, match=r"^--level \(2\) must be below 1$"):
        read_question({"level": "2"}, "--")


def test_questions_of_a_file_keep_codes_and_take_defaults(tmp_path: Path) -> None:
    file = tmp_path / "questions.yaml"
    file.write_text(
        "questions:\n  - {where: {code: [01, no]}, by: sex, level: .8}\n  - {quantile: 'age:.9'}\n"
    )
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


@given(
    low=st.sampled_from(["from", "above", ""]),
    high=st.sampled_from(["to", "below", ""]),
    ends=st.tuples(st.integers(-3, 103), st.integers(-3, 103)),
)
@settings(deadline=None)
def test_a_range_has_whole_bins_or_is_refused(low: str, high: str, ends: tuple[int, int]) -> None:
    """Every whole number of the column against the range: a bin is in it, or not, or the range is refused."""
    asked = {key: str(end) for key, end in zip((low, high), ends, strict=True) if key}
    assume(asked)
    column = parse_configuration(raw()).columns["age"]
    meets = {"from": ge, "above": gt, "to": le, "below": lt, "": lambda *_: True}
    values = range(101)
    inside = [meets[low](value, ends[0]) and meets[high](value, ends[1]) for value in values]
    bins = [min(bisect_right([0, 18, 30, 50, 65], value), 5) - 1 for value in values]
    whole = {b for b in range(5) if all(inside[v] for v in values if bins[v] == b)}
    some = {bins[v] for v in values if inside[v]}
    refusal = ""
    try:
        found = {
            column.labels.index(str(label))
            for label in labels_of("age", column, Condition.model_validate(asked), ())
        }
    except ValueError as error:
        found, refusal = set(), str(error)
    # one without a value may lie in a bin, too
    assert ("ends inside a bin" in refusal) == (some != whole) or not some
    assert refusal or found == whole


@pytest.mark.parametrize("kind", ["date", "datetime"])
@pytest.mark.parametrize("bins", ["year", "quarter", "month", "week", "weekday"])
def test_a_date_that_no_bin_knows_is_refused(kind: str, bins: str) -> None:
    """In ranges and by itself: days of the week have no dates, and the middle of another bin is no end of it."""
    column = DateColumn.model_validate(
        {"type": kind, "bounds": ["2024-01-01", "2024-12-31"], "bins": bins}
    )
    wednesday = "2024-07-03"
    for end in ("from", "above", "to", "below"):
        with pytest.raises(ValueError, match="range of column 'day'"):
            labels_of("day", column, Condition.model_validate({end: wednesday}), ())
    for named in ((wednesday,), Condition(but=(wednesday,))):
        with pytest.raises(ValueError, match="no value of column 'day'"):
            labels_of("day", column, named, ())


def test_a_range_of_days_of_the_week_is_refused_by_what_they_are() -> None:
    column = DateColumn.model_validate(
        {"type": "date", "bounds": ["2024-01-01", "2024-12-31"], "bins": "weekday"}
    )
    with pytest.raises(ValueError, match="by days of the week, and these repeat; name values: Mon"):
        labels_of("day", column, Condition.model_validate({"from": "2024-07-03"}), ())


def test_a_range_of_texts_is_refused() -> None:
    column = Category.model_validate({"type": "category", "values": ["north", "south"]})
    with pytest.raises(ValueError, match="none is a number; name values: north"):
        labels_of("region", column, Condition.model_validate({"from": "5"}), ())


@pytest.mark.parametrize(
    "asked", [{"below": "200"}, {"from": "110"}, {"from": "-5"}, {"to": "119"}, {"from": "500"}]
)
def test_no_range_ends_inside_an_open_bin(asked: dict[str, str]) -> None:
    """A number of 900 is in it, too, and is not below 200."""
    column = NumberColumn.model_validate(
        {"type": "number", "bounds": [0, 100], "bins": 5, "outer": "open"}
    )
    with pytest.raises(ValueError, match="ends inside a bin"):
        labels_of("cost", column, Condition.model_validate(asked), ())
    assert labels_of("cost", column, Condition.model_validate({"from": "80"}), ()) == (
        "[80, 100)",
        "≥ 100",
    )
    assert labels_of("cost", column, Condition.model_validate({"below": "20"}), ()) == (
        "< 0",
        "[0, 20)",
    )


@pytest.mark.parametrize("text", ['sex = "f', 'sex = m, "f', 'sex = "f" m'])
def test_quotes_that_are_not_closed_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="closing quote for each opening one"):
        read_condition(text)
    assert read_condition('pipe = 5", 7"') == ("pipe", ['5"', '7"'])  # inches


@pytest.mark.parametrize("word", ["and", "or"])
def test_one_text_is_one_condition(word: str) -> None:
    with pytest.raises(InputError, match="write one --where for each, and all of them hold"):
        read_condition(f"sex = f {word} smokes = yes")
    assert read_condition(f"town = Marsh {word} Moor") == ("town", [f"Marsh {word} Moor"])


def test_conditions_in_a_list_of_texts_are_refused_by_what_they_must_be() -> None:
    with pytest.raises(InputError, match="must be conditions by their columns"):
        read_question({"where": ["sex = f"]})
