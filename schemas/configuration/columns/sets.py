"""Columns whose cells hold several values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from marginweave.schemas.configuration.columns.base import RULE_DECLARED, Rule
from marginweave.schemas.configuration.columns.category import ValuedColumn
from marginweave.schemas.configuration.values import PositiveWhole

MAX_VALUES = 64
RULE_CAP = "no cell has more values than max_values"


class SetColumn(ValuedColumn, frozen=True):
    """A column whose cells hold several values, between `separator`s; their order and repetition do not count.

    `values` or `domain: private` as for a category. A cell keeps at most `max_values`, a public cap: of more, a uniformly
    chosen subset is kept. Empty parts are no values; a cell without a value is missing. `outside` is about single values:
    one outside the domain is left out (`null`), becomes `other`, or stops the run (`error`).
    """

    is_set: ClassVar[bool] = True
    type: Literal["set"]
    separator: Annotated[str, BeforeValidator(str)] = ";"
    max_values: Annotated[PositiveWhole, Field(le=MAX_VALUES)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.separator:
            raise ValueError("has an empty separator")
        if any(self.separator in label or not label for label in self.labels):
            raise ValueError("declares a value that is empty or holds the separator")
        return self

    @property
    def width(self) -> int:
        """The most values that a cell holds after the cap."""
        return self.max_values if self.private else min(self.max_values, len(self.labels))

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Every value is a public one, and no cell has too many."""
        return (
            Rule(name=RULE_DECLARED, each=self.accepts),
            Rule(name=RULE_CAP, each=lambda text: len(self.parts(text)) <= self.max_values),
        )

    def parts(self, text: str) -> list[str]:
        """The values of a cell, trimmed."""
        return [part for item in text.split(self.separator) if (part := item.strip())]

    def also_missing(self, missing: Sequence[str]) -> Iterator[str]:
        """As for every column; and the missing texts as which a cell of several values can be written."""
        yield from super().also_missing(missing)
        yield from (text for text in missing if 1 < len(self.parts(text)) <= self.max_values and self.accepts(text))

    def accepts(self, text: str) -> bool:
        """Whether every value of the cell is a declared one; a private domain accepts every text."""
        return self.private or all(self.code_of(part) >= 0 for part in self.parts(text))
