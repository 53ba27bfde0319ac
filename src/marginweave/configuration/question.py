"""Questions to a release: the records that they are about, the columns of their groups, and the quantity."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from marginweave.base.errors import InputError, MustError
from marginweave.configuration.parse import broken_rules, join_messages, shortened
from marginweave.configuration.rules.conditions import Allowed
from marginweave.configuration.values import FrozenModel, OpenFraction, number
from marginweave.configuration.yaml_source import read_yaml

_COMPARED = {">=": "from", ">": "above", "<=": "to", "<": "below"}
_AFTER_COLUMN = (
    r"\s*(?:(?P<sign>>=|<=|!=|>|<|==(?=\s)|=)|\s(?P<word>not\s+in|in)\s)\s*(?P<values>.*?)\s*"
)
_CONDITION = re.compile(rf"\s*(?P<column>[^<>=!]+?){_AFTER_COLUMN}")

_QUOTED = re.compile(r'"(?:[^"]|"")*"')
# "and", "or", or a comma, before what looks like a column and a sign
_SECOND_CONDITION = re.compile(r"(?:\b(?:and|or)\b|,)[^,]*?(?:>=|<=|!=|>|<|=|\s(?:not\s+)?in\s)")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _pairs(value: Any) -> Any:
    if value is None:  # the default of many functions in Python
        return ()
    if isinstance(value, dict):
        return tuple(value.items())
    # a text in a list is what --where gets, and no pair
    if not isinstance(value, list | tuple) or any(isinstance(entry, str) for entry in value):
        raise MustError("be conditions by their columns, such as {age: {from: 60}}")
    return value


Columns = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Asked = Literal["count", "share", "mean", "sum", "quantile"]


class Question(FrozenModel):
    """One question, which asks for one quantity: `count` if no other is named.

    `where` has conditions, all of which records meet, as the rules of a configuration have them. `by` asks for each value of a
    column, or each combination of values. `share` is the share of the records of a group that meet the conditions. `sum` adds
    up a number: for a column of weights it is the weighted count. `quantile` is COLUMN:Q. `of` says whether an answer is about
    the table, or about the population of which its rows are a simple sample. With `table` the records are the rows of this
    linked table; `each` says which of them count one: each row, or each unit, whose rows weigh one together.
    """

    where: Annotated[tuple[tuple[str, Allowed], ...], BeforeValidator(_pairs)] = ()
    by: Columns = ()
    count: bool = False
    share: bool = False
    mean: str | None = None
    sum: str | None = None
    median: str | None = None
    quantile: str | None = None
    of: Literal["table", "population"] = "table"
    table: str | None = None
    each: Literal["row", "unit"] = "row"
    level: OpenFraction = 0.95

    @model_validator(mode="after")
    def _check(self) -> Self:
        quantities = (self.count, self.share, self.mean, self.sum, self.median, self.quantile)
        if len(list(filter(None, quantities))) > 1:
            raise MustError(
                "ask for one of count, share, mean, sum, median and quantile; a file has several questions"
            )
        if self.share and not self.where:
            raise MustError(
                "have where with share: the share of which records? For shares of all values use table"
            )
        if self.table is None and self.each == "unit":
            raise MustError("have table with each: unit, the linked table whose rows are meant")
        if len(set(self.by)) < len(self.by):
            raise MustError("not name a column twice in by")
        if self.of == "population" and self.asked in ("count", "sum"):
            raise MustError(
                "ask for a share, a mean or a quantile of a population, whose size no sample tells; or ask of the table"
            )
        _ = self.fraction  # raises ValueError for a quantile in another form
        return self

    @property
    def asked(self) -> Asked:
        """Quantity that is asked for."""
        if self.median or self.quantile:
            return "quantile"
        if self.mean:
            return "mean"
        if self.sum:
            return "sum"
        return "share" if self.share else "count"

    @property
    def column(self) -> str | None:
        """Name of the column whose mean, sum or quantile is asked for."""
        column = self.mean or self.sum or self.median
        if not column and self.quantile:
            column, _, _ = self.quantile.rpartition(":")
        return column or None

    @property
    def fraction(self) -> float:
        """Share of values up to the quantile that is asked for; 0.5 for a median. Raises ValueError for another form."""
        if not self.quantile:
            return 0.5
        _, _, text = self.quantile.rpartition(":")
        fraction = number(text.strip())
        if fraction is None or not 0 < fraction < 1 or not self.column:
            raise MustError("have a quantile like COLUMN:.9, with a number between 0 and 1")
        return float(fraction)

    @property
    def words(self) -> str:
        """Words for the quantity that is asked for."""
        if self.asked in ("count", "share"):
            return self.asked
        if self.asked in ("mean", "sum"):
            return f"{self.asked} {self.column}"
        return (
            f"median {self.column}"
            if self.median
            else f"{self.fraction:g} quantile of {self.column}"
        )


def read_condition(text: str, columns: Iterable[str] = ()) -> tuple[str, Any]:
    """Return the column and the condition of a text like `age >= 60`, `region in north, south` or `sex != f`.

    The column is the longest of `columns` that the text begins with and that a sign follows, so that `a=b = c` asks for the
    value c of a column `a=b` where there is one. A value with a comma is written in quotes, as in a CSV file:
    `town = "Weston, north"`.

    Raises:
        InputError: another form.
    """
    match = _match(text, columns)
    values = _values(text, match["values"]) if match else []
    if match is None or (match["sign"] in _COMPARED and len(values) != 1):
        raise InputError(
            f"--where ({text}) must be a column, one of >=, >, <=, <, =, !=, in and not in, and a value, or values with commas"
        )
    column = match["column"]
    sign = match["sign"] or "".join(match["word"].split())
    if sign in _COMPARED:
        end = number(values[0])  # a range has numbers in one spelling, or dates
        return column, {_COMPARED[sign]: values[0] if end is None else str(end)}
    if sign in ("!=", "notin"):
        return column, {"but": values}
    return column, values


def _values(text: str, written: str) -> list[str]:
    """Return the values of a condition; raises InputError where they are written as elsewhere, or quotes stay open."""
    _check_values(text, written)
    try:
        values = next(csv.reader([written], skipinitialspace=True, strict=True)) or [""]
    except csv.Error:
        raise InputError(
            f"--where ({text}) must have a closing quote for each opening one, and a comma or nothing after it"
        ) from None
    return [value.strip() for value in values]


def _check_values(text: str, values: str) -> None:
    """Refuse values as other languages write them: several conditions in one, single quotes, parentheses. Raises InputError."""
    unquoted = _QUOTED.sub("", values)
    if _SECOND_CONDITION.search(unquoted):
        raise InputError(
            f"--where ({text}) has several conditions: write one --where for each, and all of them hold; either of two "
            'values is a list with a comma; a value with such signs is written in "quotes"'
        )
    in_parentheses = unquoted.startswith("(") and unquoted.endswith(")") and "," in unquoted
    if in_parentheses or (len(unquoted) > 1 and unquoted[0] == unquoted[-1] == "'"):
        raise InputError(
            f'--where ({text}) must have its values as they are, with commas between them, or in "double quotes"'
        )


def _match(text: str, columns: Iterable[str]) -> re.Match[str] | None:
    """Return the parts of a condition, with the longest of the columns that it may be on; None where it has another form."""
    for column in sorted(columns, key=len, reverse=True):
        match = re.fullmatch(rf"\s*(?P<column>{re.escape(column)}){_AFTER_COLUMN}", text)
        if match:
            return match
    return _CONDITION.fullmatch(text)


def read_question(content: Mapping[str, Any], option: str = "") -> Question:
    """Return the question that `content` describes; in errors `option` is written before a key.

    Raises:
        InputError: the content is no question.
    """
    try:
        return Question.model_validate(content)
    except ValidationError as error:
        errors = [
            {**item, "loc": _keys(item["loc"], content, option)}
            for item in error.errors(include_url=False)
        ]
    raise InputError(join_messages(broken_rules(errors, Question)))


def _keys(
    loc: tuple[int | str, ...], content: Mapping[str, Any], option: str
) -> tuple[int | str, ...]:
    """Return the keys in `content` of pydantic's location, which numbers the conditions: they were turned into pairs."""
    if not loc:
        return ()
    first, *below = loc
    # ("where", number of the condition, 0 for its column or 1 for its rule, …): the column replaces the first two numbers.
    if first == "where" and len(below) > 1 and isinstance(content["where"], dict):
        columns = list(content["where"])
        below = [columns[int(below[0])], *below[2:]]
    return (f"{option}{first}", *below)


def read_questions(path: Path, defaults: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the content of each question of the list `questions` in a YAML file, by its number and a short form of it.

    Keys that a question leaves out are from `defaults`.

    Raises:
        InputError: there is no such list, or an entry of it is no mapping.
    """
    content = read_yaml(path, "file of questions", as_text=True)
    questions = content.get("questions")
    if set(content) != {"questions"} or not isinstance(questions, list) or not questions:
        raise InputError(f"{path} must have one key, questions, with a list of questions")
    refused = [str(i) for i, entry in enumerate(questions, start=1) if not isinstance(entry, dict)]
    if refused:
        raise InputError(
            f"{path}: question {', '.join(refused)} must be a mapping, such as {{where: {{age: {{from: 60}}}}, share: true}}"
        )
    return {
        f"question {i} ({shortened(entry)})": {**defaults, **entry}
        for i, entry in enumerate(questions, start=1)
    }
