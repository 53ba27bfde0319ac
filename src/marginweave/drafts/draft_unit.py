"""Whose privacy a draft proposes, and how many rows it says there are: questions that the steward answers first."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.base.arrow import compute as pc

_PEOPLE = (
    "person|pat|patient(?:in|en)?|subject|respondent|participant|household|member|customer|client|user|student|employee|pupil|"
    "case|fall|proband(?:in|en)?|versicherten?|kunden?|schüler|mitarbeiter|teilnehmer|haushalts?|paciente|cliente|alumno|élève"
)
SUBJECT = re.compile(
    rf"(?i)(^|[^a-z])(id|uid|uuid|guid|ssn|nin|mrn|pid|{_PEOPLE})([^a-z]|$)"
    rf"|({_PEOPLE})[ ._-]*(id|nr|no|nummer|number|key|code)[.]?$|(?-i:[a-z](ID|Id))$"
)
"""Names of columns that tell subjects apart; what else must hold is that there are many, most of them with few rows."""
_LEAST_SUBJECTS = 30
_MOST_ROWS_EACH = 50
_GRID = (1, 2, 5)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A column whose values repeat as those of subjects do: rows of a subject on average, and of all but 5 % at most."""

    column: str
    mean: float
    most: int


def subject_of(table: pa.Table) -> Subject | None:
    """The column that tells subjects with several rows apart, by its name and by how often its values repeat. Private."""
    for name in table.column_names:
        if not SUBJECT.search(name):
            continue
        counts = pc.value_counts(table.column(name).drop_null()).field("counts").to_numpy(zero_copy_only=False)
        if are_subjects(len(counts), int(counts.sum())):
            return Subject(column=name, mean=float(counts.mean()), most=on_grid(float(np.quantile(counts, 0.95))))
    return None


def are_subjects(ids: int, rows: int) -> bool:
    """Whether so many different ids in so many rows can be those of subjects, some of whom have several rows."""
    return ids >= _LEAST_SUBJECTS and ids < rows <= _MOST_ROWS_EACH * ids


def on_grid(rows: float) -> int:
    """The least of 1, 2, 5, 10, 20, 50, … that is no less."""
    power = 10 ** max(0, math.floor(math.log10(max(rows, 1))))
    return int(next(step * power for step in (*_GRID, 10) if step * power >= rows))


def near_on_grid(rows: int) -> int:
    """The nearest of 1, 2, 5, 10, 20, 50, … by ratio: an order of size, and no count."""
    low = 10 ** math.floor(math.log10(max(rows, 1)))
    return int(min((step * low for step in (*_GRID, 10)), key=lambda step: abs(math.log(step / max(rows, 1)))))


def privacy_lines(subject: Subject | None, column: str, rows: int) -> str:
    """The section `privacy` and the line `rows`, which wait for a yes; `column` is the subject's as YAML has it."""
    about = near_on_grid(rows)
    if subject is None:
        unit = (
            "  unit: row     # one row is one person; where a person has several rows: {column: ID, max_records: 4}\n"
        )
    else:
        unit = (
            f"  unit: {{column: {column}, max_records: {subject.most}}}  # {subject.mean:.1f} rows each; 95 % have at most "
            f"{subject.most}: of those with more, {subject.most} are counted\n"
        )
    return (
        "privacy:\n"
        "  confirm: true  # whose privacy is it? Look at unit, and delete this line when it is right\n"
        f"{unit}"
        "  epsilon: 1.0  # what this release may spend; the account's cap is set by `marginweave ledger open`\n"
        "  delta: 1e-6   # well below 1 / (number of people)\n"
        f"rows: {{about: {about}, confirm: true}}  # of the table (people with join: true), rounded. Delete unless the size is "
        "published; then, rows: that number\n"
    )
