"""An answer to a question: an estimate, an interval around it, and whether it should be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from marginweave.configuration.question import Asked

How = Literal["measured", "rule", "bounds", "model"]
COLUMNS = (
    "question",
    "group",
    "estimate",
    "low",
    "high",
    "noise_sd",
    "level",
    "of",
    "how",
    "flag",
)
"""The columns of a table of answers, in order."""


@dataclass(frozen=True)
class Note:
    """A remark on an answer. `unusable` is True where the answer should not be used, and the words say why.

    `of_column` is True for a public fact on a column, which is no doubt of a number.
    """

    words: str
    unusable: bool = False
    of_column: bool = False

    def __str__(self) -> str:
        """Return the remark as a table of answers has it."""
        return f"do not use: {self.words}" if self.unusable else self.words


MAY_BE_NONE = Note("there may be none")


class Counted(Enum):
    """The kinds of records that answers are about; `PART` is less than the table, where contributions were bounded."""

    TABLE = "table"
    RESIZED = "resized table"
    POPULATION = "population"
    JOINED_POPULATION = "population of persons, one joined record each"
    ONE_ROW_POPULATION = "population of persons, one row of each"
    PART = "part of the table"


@dataclass(frozen=True)
class About:
    """The records that an answer is about; `part` says in words which of the table are counted, where some are not."""

    kind: Counted
    part: str = ""

    @property
    def is_table(self) -> bool:
        """True where the answer is about the table as it is."""
        return self.kind == Counted.TABLE

    def __str__(self) -> str:
        """Return the records as a table of answers has them."""
        return self.part or self.kind.value


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer of a release to a question about one group of records.

    `asked` is the quantity that the words in `question` ask for. `low` to `high` covers the truth with probability `level`,
    None where nobody knows how often it does. `noise_sd` is the standard deviation of the noise of a count, in records.
    `about` is what the answer is about: table, resized table, population, or at most some rows of each person or values of
    each cell where others were not counted.

    `how` says where the answer is from: measured tables alone, a rule that every record keeps, bounds that follow from
    measured tables, or the fitted model. Where nothing can be said, estimate, ends, level and `how` are None. The mean of
    records that a rule excludes has a `how`, and no number. `notes` say why the answer should not be used, else what it rests
    on, or that there may be no such record.
    """

    question: str
    asked: Asked
    group: dict[str, str] = field(default_factory=dict)
    estimate: float | None
    low: float | None
    high: float | None
    noise_sd: float | None = None
    level: float | None
    about: About = field(default_factory=lambda: About(Counted.TABLE))
    how: How | None = "measured"
    notes: tuple[Note, ...] = ()

    @property
    def unusable(self) -> bool:
        """True where the answer should not be used."""
        return any(note.unusable for note in self.notes)

    @property
    def of(self) -> str:
        """Words for the records that the answer is about."""
        return str(self.about)

    @property
    def flag(self) -> str:
        """All notes in words; empty where there is none."""
        return "; ".join(map(str, self.notes))

    def row(self) -> dict[str, Any]:
        """Return the answer as a table of answers has it, by the names in `COLUMNS`."""
        return {name: getattr(self, name) for name in COLUMNS}


def group_columns(group: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a group by the names that they have in a table of answers.

    A column that is called as a column of such a table, such as `level`, is `level (column)` there.
    """
    return {f"{name} (column)" if name in COLUMNS else name: label for name, label in group.items()}
