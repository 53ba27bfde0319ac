"""Columns of codes or names, of yes-or-no answers, and of sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from marginweave.base.errors import MustError
from marginweave.configuration.columns.base import (
    OTHER,
    RESERVED,
    RULE_DECLARED,
    MeasuredColumn,
    Rule,
    Texts,
)
from marginweave.configuration.values import PositiveWhole, ValueMatcher, first_duplicate

FALSE_VALUES = ("false", "0", "no", "f", "n")
TRUE_VALUES = ("true", "1", "yes", "t", "y")


def _titles(value: Any) -> Any:
    if not isinstance(value, dict):
        raise MustError("be a mapping of values to their titles")
    return {str(code).strip(): str(title).strip() for code, title in value.items()}


class ValuedColumn(MeasuredColumn, frozen=True):
    """A column whose values are declared, or discovered under the budget."""

    values: Texts | None = None
    domain: Literal["public", "private"] = "public"
    outside: Literal["null", "other", "error"] | None = None
    titles: Annotated[dict[str, str], BeforeValidator(_titles)] | None = None
    """The meanings of values, for the pages of a release."""

    @model_validator(mode="after")
    def _check_domain(self) -> Self:
        """Refuse a domain that is neither declared nor private, or declared badly."""
        if self.private:
            if self.values is not None:
                raise ValueError(
                    "has both values and domain: private; a private domain is discovered, not declared"
                )
            if self.outside in ("other", "error"):
                raise ValueError(
                    "has outside, which needs declared values: a private domain has no outside"
                )
        elif not self.values:
            raise ValueError("needs values (its public domain) or domain: private")
        else:
            reserved = RESERVED.intersection(self.labels)
            if reserved:
                raise ValueError(
                    f"declares {min(reserved)!r}, which is the name of cells without a value in a release"
                )
            pair = first_duplicate(self.values)
            if pair:
                raise ValueError(f"declares a value twice: {pair[0]!r} and {pair[1]!r}")
        for code, title in (self.titles or {}).items():
            if code not in self.labels:
                raise ValueError(f"has a title for {code!r}, which is none of its values")
            if title in RESERVED:
                raise ValueError(
                    f"has the title {title!r}, which is the name of cells without a value in a release"
                )
        return self

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Public domain in declared order (trimmed), with `other` last where values outside become it."""
        declared = tuple(text.strip() for text in self.values or ())
        return (*declared, OTHER) if self.outside == OTHER and OTHER not in declared else declared

    @property
    def explicit(self) -> tuple[str, ...]:
        """Declared values, and `other` where values outside become it."""
        return self.labels

    @cached_property
    def _matcher(self) -> ValueMatcher:
        return ValueMatcher(self.labels)

    def code_of(self, text: str) -> int:
        """Return the position of the label that a text equals, or -1."""
        return self._matcher.index(text)


def _spellings(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise MustError("be a mapping of other spellings to the declared value that each means")
    spellings = {str(text).strip(): str(meant).strip() for text, meant in value.items()}
    if len(spellings) < len(value):
        raise MustError("name each spelling once; two of them differ by spaces around them alone")
    return spellings


class Category(ValuedColumn, frozen=True):
    """A column of codes or names.

    `values` is its public domain; `domain: private` instead has the values discovered under the budget. A cell whose text is
    a spelling of `same` counts as the declared value that this means. A value outside the domain follows `outside`: it
    becomes missing (`null`), the value `other`, or stops the run (`error`).
    """

    imputations: ClassVar[tuple[str, ...]] = ("uniform", "weights")
    type: Literal["category"]
    same: Annotated[dict[str, str], BeforeValidator(_spellings)] | None = None
    """Other spellings of values, each with the declared value that it means."""

    @model_validator(mode="after")
    def _check_spellings(self) -> Self:
        """Refuse a spelling of an undeclared value, or one that is itself a value (ValueError)."""
        if self.same is None:
            return self
        if self.private:
            raise ValueError("has same, which needs declared values: a private domain has none")
        for text, meant in self.same.items():
            if meant not in self.labels:
                raise ValueError(
                    f"has same, in which {text!r} means {meant!r}, which is none of its values"
                )
            if text in RESERVED:
                raise ValueError(
                    f"has same with {text!r}, which is the name of cells without a value in a release"
                )
        pair = first_duplicate(self.explicit)
        if pair:
            raise ValueError(f"has same with {pair[1]!r}, which is the value {pair[0]!r} already")
        return self

    @property
    def explicit(self) -> tuple[str, ...]:
        """Declared values, `other` where values outside become it, and the other spellings of values."""
        return (*self.labels, *(self.same or ()))

    @cached_property
    def _spelling_matcher(self) -> ValueMatcher:
        return ValueMatcher([*(self.same or ())])

    def code_of(self, text: str) -> int:
        """Return the position of the label that a text equals, or that it means as a spelling of `same`; or -1."""
        place = super().code_of(text)
        if place >= 0 or self.same is None:
            return place
        spelling = self._spelling_matcher.index(text)
        if spelling < 0:
            return -1
        return self.labels.index([*self.same.values()][spelling])

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Rule that every value is declared; no rule for a private domain."""
        return () if self.private else (Rule(name=RULE_DECLARED, values=self.labels),)


def _no_truth(value: Any) -> Any:
    if isinstance(value, list | tuple) and any(isinstance(item, bool) for item in value):
        raise MustError(
            'be texts, and YAML can read yes and no as true and false; write them in quotes: ["yes"]'
        )
    return value


_BooleanTexts = Annotated[Texts, BeforeValidator(_no_truth)]


class BooleanColumn(MeasuredColumn, frozen=True):
    """A column of true and false; it is released as booleans.

    `true_values` and `false_values` spell the two, in any case: true, 1, yes, t, y and false, 0, no, f, n unless declared.
    The words true and false, as the output has them, are always understood.
    """

    imputations: ClassVar[tuple[str, ...]] = ("uniform", "weights")
    type: Literal["boolean"]
    true_values: _BooleanTexts | None = None
    false_values: _BooleanTexts | None = None
    outside: Literal["null", "error"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.true_values == () or self.false_values == ():
            raise ValueError("needs at least one spelling in true_values and in false_values")
        pair = first_duplicate(self._spellings)
        if pair:
            raise ValueError(
                f"declares a value twice: {pair[0]!r} and {pair[1]!r}, which count as one in any case"
            )
        return self

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels `false` and `true`."""
        return ("false", "true")

    @property
    def explicit(self) -> tuple[str, ...]:
        """Declared spellings, and true and false as the output has them; a default spelling may also mean "no value"."""
        return (*(self.false_values or ()), *(self.true_values or ()), *self.labels)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Rule that every value is true or false."""
        return (Rule(name=RULE_DECLARED, values=(False, True)),)

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        """Spellings of false, then of true, in lower case."""
        false_values = self.false_values or FALSE_VALUES
        true_values = self.true_values or TRUE_VALUES
        return tuple(text.casefold() for text in (*false_values, *true_values))

    @cached_property
    def _matcher(self) -> ValueMatcher:
        return ValueMatcher(self._spellings)

    def code_of(self, text: str) -> int:
        """Return 0 for false, 1 for true, -1 for any other text."""
        spelled = text.strip().casefold()
        place = self._matcher.index(spelled)
        if place >= 0:
            return int(place >= len(self.false_values or FALSE_VALUES))
        return self.labels.index(spelled) if spelled in self.labels else -1


MAX_VALUES = 64
RULE_CAP = "no cell has more values than max_values"


class SetColumn(ValuedColumn, frozen=True):
    """A column whose cells hold several values, between `separator`s; their order and repetition do not count.

    `values` or `domain: private` as for a category. A cell keeps at most `max_values`, a public cap: if it has more, a
    uniformly chosen subset is kept. Empty parts are no values; a cell without a value is missing. `outside` is about single
    values: a value outside the domain is left out (`null`), becomes `other`, or stops the run (`error`). Without `outside` it
    is left out, and marginals count the records of which a value is left out. With `min_values` every cell has a value: a cell
    without a value stops the run.
    """

    is_set: ClassVar[bool] = True
    type: Literal["set"]
    separator: Annotated[str, BeforeValidator(str)] = ";"
    max_values: Annotated[PositiveWhole, Field(le=MAX_VALUES)]
    min_values: Literal[1] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_values is not None and self.outside != "error":
            raise ValueError(
                "has min_values, which needs outside: error: a cell without a value stops the run, as nothing is made up for it"
            )
        if not self.separator:
            raise ValueError("has an empty separator")
        if any(self.separator in label or not label for label in self.labels):
            raise ValueError("declares a value that is empty or holds the separator")
        return self

    @property
    def width(self) -> int:
        """Largest number of values that a cell holds after the cap."""
        return self.max_values if self.private else min(self.max_values, len(self.labels))

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Rules that every value is a public one, and that no cell has too many."""
        return self.part_rule, Rule(
            name=RULE_CAP, separator=self.separator, at_most=self.max_values
        )

    @property
    def part_rule(self) -> Rule:
        """Rule that a cell keeps if `accepts` is true of it, as a rule about its parts."""
        if self.private:
            return Rule(name=RULE_DECLARED, separator=self.separator)
        return Rule(
            name=RULE_DECLARED,
            separator=self.separator,
            test=self._is_declared,
            at_least=self.min_values or 0,
        )

    def _is_declared(self, part: str) -> bool:
        return self.code_of(part) >= 0

    @property
    def stopping_rule(self) -> str:
        """Name of the rule of `outside: error`; with `min_values` a cell without a value breaks it, too."""
        return (
            self.input_rule
            if self.min_values is None
            else f"every cell has a value, and {self.input_rule}"
        )

    @property
    def marks_undeclared(self) -> bool:
        """Return whether a clean cell says that it held a value that no declaration covers."""
        return not self.private and self.outside is None

    def parts(self, text: str) -> list[str]:
        """Return the values of a cell, trimmed."""
        return [part for item in text.split(self.separator) if (part := item.strip())]

    def also_missing(self, missing: Sequence[str]) -> Iterator[str]:
        """Yield the texts that would be written as values, or as a cell of several values, and read back as missing."""
        yield from super().also_missing(missing)
        for text in missing:
            if 1 < len(self.parts(text)) <= self.max_values and self.accepts(text):
                yield text

    def accepts(self, text: str) -> bool:
        """Return whether the cell has enough values, all of them declared; a private domain accepts every text."""
        parts = self.parts(text)
        if self.private:
            return True
        return len(parts) >= (self.min_values or 0) and all(map(self._is_declared, parts))
