"""An answer to a question: an estimate, an interval around it, and whether it should be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

How = Literal["measured", "rule", "bounds", "model"]
MAY_BE_NONE = "there may be none"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer of a release to a question about one group of records.

    `low` to `high` covers the truth with probability `level`, None where nobody knows how often it does. `noise_sd` is the
    standard deviation of the noise of a count, in records. `of` is what the answer is about: table, resized table,
    population, or at most some rows of each person or values of each cell where others were not counted.

    `how` says where the answer is from: measured tables alone, a rule that every record keeps, bounds that follow from
    measured tables, or the fitted model. Where nothing can be said, estimate, ends, level and `how` are None. The mean of
    records that a rule excludes has a `how`, and no number. `flag` says why the answer should not be used, else what it rests
    on, or that there may be no such record.
    """

    question: str
    group: dict[str, str] = field(default_factory=dict)
    estimate: float | None
    low: float | None
    high: float | None
    noise_sd: float | None = None
    level: float | None
    of: str = "table"
    how: How | None = "measured"
    flag: str = ""


def group_columns(group: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a group by the names that they have in a table of answers.

    A column that is called as a field of an answer, such as `level`, is `level (column)` there.
    """
    taken = {answer_field.name for answer_field in fields(Answer)}
    return {f"{name} (column)" if name in taken else name: label for name, label in group.items()}
