"""Questions to a release: which records, by which columns, and what of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from marginweave.base.errors import InputError
from marginweave.configuration.parse import broken_rules, shortened, together
from marginweave.configuration.rules.conditions import Allowed
from marginweave.configuration.values import FrozenModel, OpenFraction, number
from marginweave.configuration.yaml_source import read_yaml

_COMPARED = {">=": "from", ">": "above", "<=": "to", "<": "below"}
_CONDITION = re.compile(
    r"\s*(?P<column>[^<>=!]+?)\s*(?:(?P<sign>>=|<=|!=|>|<|==(?=\s)|=)|\s(?P<word>not\s+in|in)\s)\s*(?P<values>.*?)\s*"
)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _pairs(value: Any) -> Any:
    if not isinstance(value, dict | list | tuple):
        raise ValueError("must be conditions by their columns, such as {age: {from: 60}}")
    return tuple(value.items()) if isinstance(value, dict) else value


Columns = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Asked = Literal["count", "share", "mean", "sum", "quantile"]


class Question(FrozenModel):
    """One question; `count` is asked where nothing else is.

    `where` has conditions, all of which records meet, as the rules of a configuration have them. `by` asks for each value of a
    column, or each combination of values. `share` is that of the records of a group that meet the conditions. `sum` adds up a
    number: of a column of weights it is the weighted count. `quantile` is COLUMN:Q. `of` says whether an answer is about the
    table, or about the population that its rows are a simple sample of.
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
    level: OpenFraction = 0.95

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len([one for one in (self.count, self.share, self.mean, self.sum, self.median, self.quantile) if one]) > 1:
            raise ValueError(
                "must ask for one of count, share, mean, sum, median and quantile; a file has several questions"
            )
        if self.share and not self.where:
            raise ValueError(
                "must have where with share: the share of which records? For shares of all values use table"
            )
        if len(set(self.by)) < len(self.by):
            raise ValueError("must not name a column twice in by")
        if self.of == "population" and self.asked in ("count", "sum"):
            raise ValueError(
                "must ask for a share, a mean or a quantile of a population, whose size no sample tells; or ask of the table"
            )
        _ = self.fraction
        return self

    @property
    def asked(self) -> Asked:
        """What is asked for."""
        if self.median or self.quantile:
            return "quantile"
        return "mean" if self.mean else "sum" if self.sum else "share" if self.share else "count"

    @property
    def column(self) -> str | None:
        """The column whose mean, sum or quantile is asked for."""
        return self.mean or self.sum or self.median or (self.quantile.rpartition(":")[0] if self.quantile else None)

    @property
    def fraction(self) -> float:
        """Of a quantile the share of values up to it."""
        found = number(self.quantile.rpartition(":")[2].strip()) if self.quantile else number(".5")
        if found is None or not 0 < found < 1 or (self.quantile and not self.column):
            raise ValueError("must have a quantile like COLUMN:.9, with a number between 0 and 1")
        return float(found)

    @property
    def words(self) -> str:
        """What is asked for, in a word or two."""
        shown = f"{self.fraction:g} quantile of {self.column}"
        return {
            "count": "count",
            "share": "share",
            "mean": f"mean {self.column}",
            "sum": f"sum {self.column}",
            "quantile": f"median {self.column}" if self.median else shown,
        }[self.asked]


def read_condition(text: str) -> tuple[str, Any]:
    """The column and the condition of a text like `age >= 60`, `region in north, south` or `sex != f`.

    Raises:
        InputError: another form.
    """
    found = _CONDITION.fullmatch(text)
    values = [part.strip() for part in found["values"].split(",")] if found else []
    if found is None or (found["sign"] in _COMPARED and len(values) != 1):
        raise InputError(
            f"--where ({text}) must be a column, one of >=, >, <=, <, =, !=, in and not in, and a value, or values with commas"
        )
    sign = found["sign"] or "".join(found["word"].split())
    if sign in _COMPARED:
        end = number(values[0])  # a range has numbers in one spelling, or dates
        return found["column"], {_COMPARED[sign]: values[0] if end is None else str(end)}
    return found["column"], {"but": values} if sign in ("!=", "notin") else values


def read_question(content: Mapping[str, Any], option: str = "") -> Question:
    """The question of what was written; `option` stands before a key in errors. Raises InputError for what is none."""
    try:
        return Question.model_validate(content)
    except ValidationError as error:
        found = [{**item, "loc": _keys(item["loc"], content, option)} for item in error.errors(include_url=False)]
    raise InputError(together(broken_rules(found, Question)))


def _keys(loc: tuple[int | str, ...], content: Mapping[str, Any], option: str) -> tuple[int | str, ...]:
    """The keys of what was written: pydantic numbers the conditions, which were turned into pairs."""
    first, *below = loc or ("",)
    if first == "where" and len(below) > 1 and isinstance(content["where"], dict):
        below = [list(content["where"])[int(below[0])], *below[2:]]
    return (f"{option}{first}", *below) if loc else ()


def read_questions(path: Path, defaults: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each question of the list `questions` in a YAML file is called and says, with what it leaves out from `defaults`.

    Raises:
        InputError: there is no such list, or what stands in it is no mapping.
    """
    content = read_yaml(path, "file of questions", as_text=True)
    asked = content.get("questions")
    if set(content) != {"questions"} or not isinstance(asked, list) or not asked:
        raise InputError(f"{path} must have one key, questions, with a list of questions")
    others = [str(i) for i, entry in enumerate(asked, start=1) if not isinstance(entry, dict)]
    if others:
        raise InputError(
            f"{path}: question {', '.join(others)} must be a mapping, such as {{where: {{age: {{from: 60}}}}, share: true}}"
        )
    return {f"question {i} ({shortened(entry)})": {**defaults, **entry} for i, entry in enumerate(asked, start=1)}
