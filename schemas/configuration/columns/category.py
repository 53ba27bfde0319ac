"""Columns of codes, names and yes-or-no answers."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from marginweave.schemas.configuration.columns.base import (
    OTHER,
    RULE_DECLARED,
    MeasuredColumn,
    Rule,
    Texts,
)
from marginweave.schemas.configuration.values import ValueMatcher, first_duplicate

FALSE_VALUES = ("false", "0", "no", "f", "n")
TRUE_VALUES = ("true", "1", "yes", "t", "y")


class ValuedColumn(MeasuredColumn, frozen=True):
    """A column whose values are declared, or discovered under the budget."""

    values: Texts | None = None
    domain: Literal["public", "private"] = "public"
    outside: Literal["null", "other", "error"] = "null"

    @model_validator(mode="after")
    def _check_domain(self) -> Self:
        """Refuse a domain that is neither declared nor private, or declared badly."""
        if self.private:
            if self.values is not None:
                raise ValueError("has both values and domain: private; a private domain is discovered, not declared")
            if self.outside != "null":
                raise ValueError("has outside, which needs declared values: a private domain has no outside")
        elif not self.values:
            raise ValueError("needs values (its public domain) or domain: private")
        else:
            pair = first_duplicate(self.values)
            if pair:
                raise ValueError(f"declares a value twice: {pair[0]!r} and {pair[1]!r}")
        return self

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The public domain in declared order (trimmed), with `other` last where values outside become it."""
        declared = tuple(text.strip() for text in self.values or ())
        return (*declared, OTHER) if self.outside == OTHER and OTHER not in declared else declared

    @property
    def explicit(self) -> tuple[str, ...]:
        """The declared values, and `other` where values outside become it."""
        return self.labels

    @cached_property
    def _matcher(self) -> ValueMatcher:
        return ValueMatcher(self.labels)

    def code_of(self, text: str) -> int:
        """Position of the label that a text equals, or -1."""
        return self._matcher.index(text)


class Category(ValuedColumn, frozen=True):
    """A column of codes or names.

    `values` is its public domain; `domain: private` instead has the values discovered under the budget. A value outside
    the domain follows `outside`: it becomes missing (`null`), the value `other`, or stops the run (`error`).
    """

    imputations: ClassVar[tuple[str, ...]] = ("uniform", "weights")
    type: Literal["category"]

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Every value is a public one."""
        return () if self.private else (Rule(name=RULE_DECLARED, values=self.labels),)


class BooleanColumn(MeasuredColumn, frozen=True):
    """A column of true and false; it is released as booleans.

    `true_values` and `false_values` spell the two, in any case: true, 1, yes, t, y and false, 0, no, f, n unless declared.
    The words true and false, as the output has them, are always understood.
    """

    imputations: ClassVar[tuple[str, ...]] = ("uniform", "weights")
    type: Literal["boolean"]
    true_values: Texts | None = None
    false_values: Texts | None = None
    outside: Literal["null", "error"] = "null"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.true_values == () or self.false_values == ():
            raise ValueError("needs at least one spelling in true_values and in false_values")
        pair = first_duplicate(self._spellings)
        if pair:
            raise ValueError(f"declares a value twice: {pair[0]!r} and {pair[1]!r}, which count as one in any case")
        return self

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """`false` and `true`."""
        return ("false", "true")

    @property
    def explicit(self) -> tuple[str, ...]:
        """The declared spellings, and true and false as the output has them; the default ones give way to `missing`."""
        return (*(self.false_values or ()), *(self.true_values or ()), *self.labels)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Every value is true or false."""
        return (Rule(name=RULE_DECLARED, values=(False, True)),)

    @cached_property
    def _spellings(self) -> tuple[str, ...]:
        spelled = (*(self.false_values or FALSE_VALUES), *(self.true_values or TRUE_VALUES))
        return tuple(text.casefold() for text in spelled)

    @cached_property
    def _matcher(self) -> ValueMatcher:
        return ValueMatcher(self._spellings)

    def code_of(self, text: str) -> int:
        """0 for false, 1 for true, -1 for any other text."""
        spelled = text.strip().casefold()
        found = self._matcher.index(spelled)
        if found >= 0:
            return int(found >= len(self.false_values or FALSE_VALUES))
        return self.labels.index(spelled) if spelled in self.labels else -1
