"""Tables whose rows are linked to those of the source by the id of the unit of privacy, and columns derived from their rows."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer, model_validator

from marginweave.base.errors import MustError, UnconfirmedError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import ConstantColumn, NamedColumns, Texts
from marginweave.configuration.execution import Source
from marginweave.configuration.rules.conditions import Allowed, Condition
from marginweave.configuration.rules.structure import Structure
from marginweave.configuration.values import (
    Confirm,
    FrozenModel,
    OpenFraction,
    Whole,
    check_name,
)

DerivationKind = Literal["count", "any", "largest", "smallest", "within"]
_KINDS: tuple[DerivationKind, ...] = ("count", "any", "largest", "smallest", "within")
_DAYS = re.compile(r"([0-9]{1,5}) days?")

MOST_ROWS_OF_UNIT = 10_000
"""Largest `at_most`: the noise of counts of rows grows with it."""

Conditions = Annotated[dict[str, Allowed], Field(min_length=1)]
"""Conditions on columns of a linked table, all of which a row meets."""


def _days(text: str) -> str:
    if not _DAYS.fullmatch(text.strip()):
        raise MustError("be a number of days, such as 30 days")
    return text.strip()


def _in_words(name: str, allowed: Condition | Texts) -> str:
    """Return the condition on a column in words."""
    if not isinstance(allowed, Condition):
        return f"{name} is {' or '.join(allowed)}"
    if allowed.but:
        return f"{name} is not {' or '.join(allowed.but)}"
    ends = {
        "at least": allowed.at_least,
        "above": allowed.above,
        "at most": allowed.at_most,
        "below": allowed.below,
    }
    return f"{name} is {' and '.join(f'{word} {end}' for word, end in ends.items() if end)}"


class Derivation(FrozenModel):
    """How a column of the source follows from the rows that the unit of a row has in a linked table.

    Exactly one of five keys: `count`, the number of rows; `any`, whether a row meets all of these conditions; `largest` or
    `smallest`, an end of a column's values, in the rows that meet `where`; `within`, whether a row has its `to` at most so
    many days after the `from` of another row. `confirm: true` marks a suggestion of `marginweave init`.
    """

    count: bool = False
    any_row: Annotated[Conditions | None, Field(alias="any")] = None
    largest: str | None = None
    smallest: str | None = None
    where: Conditions | None = None
    within: Annotated[str, AfterValidator(_days)] | None = None
    start: Annotated[str | None, Field(alias="from")] = None
    end: Annotated[str | None, Field(alias="to")] = None
    confirm: Confirm = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.confirm:
            raise UnconfirmedError(
                "was drafted from the data and waits for confirmation: is the column wanted, and is all of it public? Then "
                "delete confirm: true; otherwise delete the entry here and under columns"
            )
        if len(self._kinds) != 1:
            raise MustError("have one of count, any, largest, smallest and within")
        has_ends = (self.start is not None, self.end is not None)
        if has_ends != (self.kind == "within",) * 2:
            raise MustError(
                "have from and to, two columns of dates, beside within and nowhere else"
            )
        if self.where is not None and self.kind not in {"largest", "smallest"}:
            raise MustError(
                "have where beside largest or smallest alone; any has conditions already"
            )
        return self

    @property
    def _kinds(self) -> tuple[DerivationKind, ...]:
        values = (self.count, self.any_row, self.largest, self.smallest, self.within)
        return tuple(kind for kind, value in zip(_KINDS, values, strict=True) if value)

    @property
    def kind(self) -> DerivationKind:
        """Which of the five it is."""
        return self._kinds[0]

    @property
    def always_has_value(self) -> bool:
        """Return whether a unit without rows has a value, too: 0, or false."""
        return self.kind not in {"largest", "smallest"}

    @property
    def days(self) -> int:
        """Most days of `within`."""
        return int((self.within or "0 days").partition(" ")[0])

    @property
    def column(self) -> str:
        """Column of `largest` or `smallest`."""
        return self.largest or self.smallest or ""

    @property
    def conditions(self) -> dict[str, Condition | Texts]:
        """Conditions on the rows that count; empty where all do."""
        return self.any_row or self.where or {}

    @property
    def condition_words(self) -> str:
        """Conditions in words, such as "kind is emergency, days is at least 3"."""
        return ", ".join(_in_words(name, allowed) for name, allowed in self.conditions.items())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the linked table that it reads, each once."""
        named = (*self.conditions, self.largest, self.smallest, self.start, self.end)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @model_serializer
    def _written(self) -> str | dict[str, Any]:
        """Return the word `count`, or the keys that are written."""
        if self.count:
            return "count"
        written: dict[str, Any] = {}
        for key, field in type(self).model_fields.items():
            value = getattr(self, key)
            if value:
                written[field.alias or key] = value
        return written


def _derivation(value: Any) -> Any:
    if value == "count":
        return {"count": True}
    if not isinstance(value, dict | Derivation):
        raise MustError(
            "be count, or a mapping such as {any: {kind: emergency}}, {largest: days} or "
            "{within: 30 days, from: leaving, to: arrival}"
        )
    return value


def _confirmed(confirm: bool | None) -> bool | None:
    # a question of the field, as one of the table is not asked before all of its columns are confirmed
    if confirm:
        raise UnconfirmedError(
            "was drafted and waits for confirmation: does by name the column with the id of the unit of privacy? Correct it, "
            "and delete confirm: true"
        )
    return confirm


class LinkedTable(FrozenModel):
    """A table with any number of rows for a unit of privacy, whose id is in its column `by`.

    `columns` declares the columns that are read, as the columns of a release are declared. `missing` lists the texts that mean
    "no value" in this table, instead of the configuration's list. `derive` has, by the names of columns of the source, how each
    follows from the rows. `confirm: true` marks a table that `marginweave init` has found.

    With `at_most` the table is counted: each of its columns alone, in pairs, and beside the columns of the source that `beside`
    names, by default all whose values are public. Counts of rows take at most this many rows of a unit. `share` is the part of
    the budget that this takes; shares of other draws are of what counted tables leave. `structure` has the rules `forbidden`,
    `applies` and `ordered` of its columns, which its synthetic rows keep; rows that break them are counted as they are.
    """

    source: Source
    confirm: Annotated[Confirm, AfterValidator(_confirmed)] = None
    by: str | None = None
    missing: Texts | None = None
    columns: Annotated[NamedColumns, Field(default_factory=dict)]
    at_most: Annotated[Whole, Field(ge=1, le=MOST_ROWS_OF_UNIT)] | None = None
    structure: Structure | None = None
    beside: Texts | None = None
    share: OpenFraction | None = None
    derive: Annotated[
        dict[str, Annotated[Derivation, BeforeValidator(_derivation)]],
        Field(default_factory=dict),
    ]

    @property
    def read_names(self) -> tuple[str, ...]:
        """Names of the columns that are read, but that of the ids: those that are counted, and those that `derive` names."""
        counted = () if self.at_most is None else tuple(self.columns)
        derived = (name for rule in self.derive.values() for name in rule.columns)
        return tuple(dict.fromkeys((*counted, *derived)))

    @property
    def clamped_names(self) -> frozenset[str]:
        """Names of the columns in which a value beyond the bounds counts as the bound: all but those of `within` alone."""
        if self.at_most is not None:
            return frozenset(self.columns)
        clamped = ((*rule.conditions, rule.column) for rule in self.derive.values())
        return frozenset(name for names in clamped for name in names if name)

    def can_be_missing(self, column: str, usual: Texts) -> bool:
        """Return whether a cell of a column can be missing as it is declared; `usual` is as in `missing_texts`."""
        return bool(self.missing_texts(column, usual)) or (
            getattr(self.columns[column], "outside", None) == "null"
        )

    def attribute(self, column: str, usual: Texts) -> Attribute:
        """Return what is counted of a measured column: its values, and as codes of their own what can be no value.

        A cell can be missing as it is declared, or not as declared unless `outside` says what such a cell is; `usual` is as in
        `missing_texts`.
        """
        declared = self.columns[column]
        is_declared = getattr(declared, "outside", None) is not None
        return Attribute(
            name=column,
            column=column,
            labels=declared.labels,
            optional=is_declared or self.can_be_missing(column, usual),
            undeclared=not is_declared,
        )

    def missing_texts(self, column: str, usual: Texts) -> Texts:
        """Return the texts that mean "no value" in a column of this table; `usual` are those of the configuration."""
        declared = self.columns.get(column)
        texts = None
        if declared is not None and not isinstance(declared, ConstantColumn):
            texts = declared.missing
        return next(known for known in (texts, self.missing, usual) if known is not None)


LinkedTables = Annotated[
    dict[Annotated[str, AfterValidator(check_name)], LinkedTable], Field(min_length=1)
]
