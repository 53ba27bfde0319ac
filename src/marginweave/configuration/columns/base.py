"""Base of all kinds of column: the keys that they share, and the methods that the stages call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, model_validator

from marginweave.base.errors import MustError, UnconfirmedError
from marginweave.configuration.preparation import Imputation
from marginweave.configuration.values import (
    FROZEN,
    Confirm,
    ValueMatcher,
    Words,
    declared_number,
    listed,
    value_key,
)

OTHER = "other"
MISSING = "(missing)"
"""The label of a cell that is missing as it is declared."""
NOT_RELEASED = "(not released)"
"""The label of a cell of a private domain whose value is not released, or that has no value."""
NOT_DECLARED = "(not as declared)"
"""The label of a cell, or of a value of a set, that no declaration covers."""
RESERVED = frozenset({MISSING, NOT_RELEASED, NOT_DECLARED})
"""Labels that no value has."""

RULE_DECLARED = "every value is declared"
RULE_BOUNDS = "every value lies within bounds"
RULE_LABELS = "the labels are the declared ones"

# Keys of a drafted private column whose values may still be from the data.
_FACTS = ("separator", "max_values", "decimals", "format", "codes", "text")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of a contract: a range, a list of values, the labels of a dictionary, or a test that every text passes.

    With a range and a list, a value of either keeps the rule. With a `separator`, a text has parts, which are trimmed and not
    empty: every part passes `test`, and their number is `at_least` to `at_most`. A missing value keeps every rule.
    """

    name: str
    limits: tuple[Any, Any] | None = None
    values: tuple[Any, ...] | None = None
    labels: tuple[str, ...] | None = None
    test: Callable[[str], bool] | None = None
    separator: str | None = None
    at_least: int = 0
    at_most: int | None = None


def _texts(value: Any) -> Any:
    if not isinstance(value, list | tuple) or any(
        isinstance(item, dict | list | tuple) for item in value
    ):
        raise MustError("be a list of texts, such as [a, b]")
    return tuple(str(item) for item in value)


def _published(text: str) -> str:
    if not text.strip():
        raise MustError("say where the facts of the column are published")
    return text.strip()


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
Limits: TypeAlias = tuple[Fraction, Fraction]
"""The least and the largest value of a label."""


class ColumnBase(BaseModel, frozen=True):
    """One column of the table.

    `public` says where the facts of a column are published; privacy.json prints it as an assumption of the guarantee.

    `confirm: true` marks a column that `marginweave init` drafted from the data. Such a column is refused until it has
    `public` instead, or is private: then its values or bounds are bought under the budget, and it may have nothing else
    from the draft.

    `label` is a name of the column for people, and `description` says what it is: both are public, and shown by the pages of
    a release.
    """

    model_config = FROZEN
    measured: ClassVar[bool] = False
    """True for a column that is read and counted; any other column never enters the release."""
    is_set: ClassVar[bool] = False
    """True for a column whose cells can hold several values."""
    confirm: Confirm = None
    public: Annotated[str, AfterValidator(_published)] | None = None
    label: Words | None = None
    description: Words | None = None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Refuse a key of a kind with the name of a property of all kinds, which would hide its value (TypeError)."""
        hidden = [
            key
            for key in cls.model_fields
            if isinstance(vars(ColumnBase).get(key), property | cached_property)
        ]
        if hidden:
            raise TypeError(
                f"{cls.__name__} has {listed(hidden)}, which all columns have as a property; use an alias"
            )

    @model_validator(mode="after")
    def _check_confirmed(self) -> Self:
        if self.confirm and self.public is not None:
            raise ValueError("has confirm and public; a column that is confirmed has public alone")
        if self.confirm and not (self.private or self.buys_bounds):
            raise UnconfirmedError(
                'was drafted from the data and waits for confirmation: write public: "where this is published" instead of '
                "confirm: true, or make it private"
            )
        facts = self._drafted_facts() if self.confirm else []
        if facts:
            raise UnconfirmedError(
                f"is private, and still has {', '.join(facts)} as drafted from the data: delete what is not published, or "
                'write public: "where this is published" instead of confirm: true'
            )
        return self

    def _drafted_facts(self) -> list[str]:
        """Return the keys of a private column that may reveal facts from the data.

        A list of missing texts that has only the empty text reveals nothing.
        """
        facts = list[str]()
        missing: tuple[str, ...] | None = getattr(self, "missing", None)
        if missing is not None and {text.strip() for text in missing} != {""}:
            facts.append("missing")
        facts += [
            key
            for key in _FACTS
            if getattr(self, key, None) is not None and key in self.model_fields_set
        ]
        return facts

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the values that are counted, in canonical order; empty for a private domain."""
        return ()

    @property
    def width(self) -> int:
        """Largest number of values that a cell holds."""
        return 1

    @property
    def bin_count(self) -> int:
        """Number of labels, from the first, that are bins."""
        return 0

    @property
    def private(self) -> bool:
        """Return whether the values are discovered under the budget."""
        return getattr(self, "domain", None) == "private"

    @property
    def buys_bounds(self) -> bool:
        """Return whether the bounds are bought from the budget."""
        return getattr(self, "bounds", None) == "private"

    @property
    def public_cells(self) -> bool:
        """Return whether a cell has one value, from a domain that the configuration declares."""
        return self.measured and not (self.is_set or self.private or self.buys_bounds)

    range_end: ClassVar[str] = "a number"
    """The form of an end of a range of the column, as messages that refuse another text say it."""

    @property
    def without_order(self) -> str:
        """Words for why labels without limits cannot be compared."""
        return "of whose values none is a number"

    @property
    def type_words(self) -> str:
        """Words for the type, with all that two columns must share whose values are compared."""
        return str(getattr(self, "type", ""))

    @cached_property
    def label_limits(self) -> tuple[Limits | None, ...]:
        """Least and largest value of each label; None for a label without a value, such as that of a special code."""
        numbers = [declared_number(label) for label in self.labels]
        return tuple(
            None if number is None else (Fraction(number), Fraction(number)) for number in numbers
        )

    @property
    def step(self) -> Fraction:
        """Least distance of two values, in the units of `label_limits`."""
        return Fraction(1)

    def point_of(self, text: str) -> Fraction | None:
        """Return the end of a range that a trimmed text means, in the units of `label_limits`; None for any other text."""
        number = declared_number(text)
        return None if number is None else Fraction(number)

    @property
    def ordered(self) -> bool:
        """Return whether the labels are in the order of their values."""
        return False

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Contract of the column in the synthetic table."""
        return ()

    def code_of(self, text: str) -> int:
        """Return the position of the label that a text of the configuration or the table names, or -1."""
        label = text.strip()
        return self.labels.index(label) if label in self.labels else -1

    def accepts(self, text: str) -> bool:
        """Return whether a trimmed text that is not missing is a value of this column: the rule of `outside: error`."""
        return bool(text) if self.private else self.code_of(text) >= 0

    def value_key(self, text: str) -> Hashable | None:
        """Return a key that is the same for all texts that name one value; None for a text that names no value."""
        if self.private:
            return value_key(text)
        code = self.code_of(text)
        return code if code >= 0 else None


class IdentifierColumn(ColumnBase, frozen=True):
    """A column that identifies people, such as a number or a name: it is dropped, and the output does not have it.

    It is read only where `privacy.unit` names it; `missing` lists the texts that mean "no identifier".
    """

    type: Literal["identifier"]
    missing: Texts | None = None


class ConstantColumn(ColumnBase, frozen=True):
    """A column with one public `value` in every row: the source need not have it, the output has it as text."""

    type: Literal["constant"]
    value: Annotated[str, BeforeValidator(str)]

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Rule that every cell has the value."""
        return (Rule(name=RULE_DECLARED, values=(self.value,)),)


class MeasuredColumn(ColumnBase, frozen=True):
    """A column that is counted.

    `missing` lists the texts that mean "no value" here, instead of the configuration's list. A text that is neither missing nor
    a value of the column is outside and follows `outside`: it becomes missing (`null`) or stops the run (`error`). If neither
    key is written, nothing is declared missing: a cell that is empty or outside is counted as not as declared. With `impute` a
    missing value is replaced by a draw from a public distribution, and the column is never missing.
    """

    measured: ClassVar[bool] = True
    value_form: ClassVar[str | None] = None
    """The form of a value in words, as "a number"; None where values are declared one by one."""
    imputations: ClassVar[tuple[str, ...]] = ("uniform",)
    """The kinds of imputation that the column can have; a private domain can only have weights."""
    missing: Texts | None = None
    impute: Imputation | None = None
    outside: Literal["null", "error"] | Literal["other"] | None = None

    @property
    def input_rule(self) -> str:
        """Name of the rule that a value keeps."""
        return RULE_DECLARED if self.value_form is None else f"every value is {self.value_form}"

    @property
    def stopping_rule(self) -> str:
        """Name of the rule of `outside: error`."""
        return self.input_rule

    @property
    def clean_rules(self) -> tuple[Rule, ...]:
        """Contract of the column in the clean table: public labels are the declared ones.

        Limits of dates are days from 1970-01-01, limits of moments are seconds.
        """
        return (Rule(name=RULE_LABELS, labels=self.labels),) if self.public_cells else ()

    @property
    def explicit(self) -> tuple[str, ...]:
        """Texts that the configuration itself spells as values; none of them may also mean "no value"."""
        return ()

    def also_missing(self, missing: Sequence[str]) -> Iterator[str]:
        """Yield the texts that would be written as values and read back as missing."""
        absent = ValueMatcher(missing)
        return (text for text in self.explicit if absent.index(text) >= 0)

    def check_bins(self, missing: Sequence[str]) -> None:
        """Refuse a bin in which every value that could be drawn is a missing code; raises ValueError."""

    def uniform_weights(self, labels: Sequence[str]) -> tuple[float, ...]:
        """Return the weight of every label under `impute: {distribution: uniform}`."""
        return (1.0,) * len(labels)
