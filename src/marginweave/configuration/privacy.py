"""Settings of the guarantee of a release: its budget, and the unit of privacy."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from marginweave.base.budget import MOST_DELTA, Neighbors, Stability
from marginweave.base.errors import MustError, UnconfirmedError
from marginweave.configuration.values import Confirm, Delta, FrozenModel, Positive, PositiveWhole
from marginweave.texts.sentences import counts_sentence

# With this limit sums of one subject's rows fit easily into 64 bits.
MAX_RECORDS_OF_A_SUBJECT = 10**4
SUBJECT_PREFIX = "subject:"
MOST_EPSILON = 10.0
"""The largest epsilon that is advised: beyond, an observer is right four times in five (delta 1e-6); protection is weak."""


def unit_noun(unit: str) -> str:
    """Return `subject` or `row`, the noun of an account's unit, which is `row` or `subject:COLUMN`."""
    return "subject" if unit.startswith(SUBJECT_PREFIX) else "row"


class SubjectUnit(FrozenModel):
    """A person with several rows, identified by `column`; ids are compared as trimmed texts.

    `max_records` (theta) rows of a person are counted, chosen uniformly where there are more; or `join: true` makes one
    record of all rows: it has the union of their sets, and no value in another column where the rows disagree. A row without
    an id is dropped (`missing_subject: drop`) or is a separate person (`own`).
    """

    column: str
    max_records: Annotated[PositiveWhole, Field(le=MAX_RECORDS_OF_A_SUBJECT)] | None = None
    join: bool = False
    missing_subject: Literal["drop", "own"] = "drop"

    @model_validator(mode="after")
    def _check(self) -> SubjectUnit:
        if not self.column.strip() or self.column != self.column.strip():
            raise ValueError("has a column name that is empty, or begins or ends with a space")
        if self.join == (self.max_records is not None):
            raise ValueError(
                "needs either max_records, the number of rows of one subject that are counted, or join: true, "
                "which makes one record of them"
            )
        return self


def _unit(value: Any) -> Any:
    if isinstance(value, dict):
        return SubjectUnit.model_validate(value)
    if value != "row" and not isinstance(value, SubjectUnit):
        raise MustError(
            "be row, {column: ID, max_records: N} or {column: ID, join: true}, ID being the column that tells whose row "
            "it is"
        )
    return value


Unit = Annotated[Literal["row"] | SubjectUnit, BeforeValidator(_unit)]


class PrivacySettings(FrozenModel):
    """Settings of the guarantee: (epsilon, delta) of the whole release. Delta is public; with only Laplace noise it is 0.

    A delta above .001 needs a reason, `weak_delta`, which is published.

    `confirm: true` marks a section that `marginweave init` drafted: nothing runs before the user has confirmed the unit.
    """

    epsilon: Positive
    delta: Delta
    unit: Unit
    neighbors: Neighbors = "add-remove"
    weak_delta: str | None = None
    confirm: Confirm = None

    @model_validator(mode="after")
    def _check_confirmed(self) -> PrivacySettings:
        if self.confirm:
            question = f"is one {self.unit_words} one person?"
            raise UnconfirmedError(
                f"was drafted and waits for confirmation: {question} Correct unit, and delete confirm: true"
            )
        return self

    @model_validator(mode="after")
    def _check_delta(self) -> PrivacySettings:
        if self.weak_delta is not None and not self.weak_delta.strip():
            raise ValueError("has weak_delta without a reason")
        if Decimal(repr(self.delta)) > MOST_DELTA and self.weak_delta is None:
            raise ValueError(
                f"has delta ({self.delta:g}) above {MOST_DELTA}: with that probability all may be disclosed; choose one "
                'far below 1 / (number of people), or say why not in the configuration: privacy: {weak_delta: "reason"}'
            )
        return self

    @property
    def subject(self) -> SubjectUnit | None:
        """Settings of the subject unit, or None where the unit is a row."""
        return None if self.unit == "row" else self.unit

    @property
    def unit_key(self) -> str:
        """Unit as the ledger's account and the option `ledger open --unit` write it: `row` or `subject:COLUMN`."""
        return "row" if self.subject is None else SUBJECT_PREFIX + self.subject.column

    @property
    def unit_words(self) -> str:
        """Words for the unit, after "one"."""
        subject = self.subject
        if subject is None:
            return "row"
        rows = "all rows joined" if subject.join else f"at most {subject.max_records} row(s)"
        return f"subject of column {subject.column!r}, {rows}"

    @property
    def joins(self) -> bool:
        """Whether all rows of a subject are joined into one record."""
        return self.subject is not None and self.subject.join

    @property
    def counted_words(self) -> str | None:
        """Words for what is counted of a subject, after "counts are of"; None where that is every row."""
        subject = self.subject
        if subject is None:
            return None
        if subject.join:
            return str(counts_sentence("of.joined", column=subject.column))
        rows = subject.max_records or 1
        key = "of.row" if rows == 1 else "of.rows"
        return str(counts_sentence(key, rows=rows, column=subject.column))

    @property
    def stability(self) -> Stability:
        """Number of records by which one unit changes the table: theta rows of a bounded subject, otherwise one."""
        records = self.subject.max_records if self.subject is not None else None
        return Stability(records=records or 1, neighbors=self.neighbors)
