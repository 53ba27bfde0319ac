"""Finds the column that tells apart the subjects whose privacy a draft proposes to protect, and rounds numbers of rows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy

_PEOPLE = (
    "person|pat|patient(?:in|en)?|subject|respondent|participant|household|member|customer|client|user|student|employee|pupil|"
    "case|fall|proband(?:in|en)?|versicherten?|kunden?|schüler|mitarbeiter|teilnehmer|haushalts?|paciente|cliente|alumno|élève"
)
SUBJECT = re.compile(
    rf"(?i)(^|[^a-z])(id|uid|uuid|guid|ssn|nin|mrn|pid|{_PEOPLE})([^a-z]|$)"
    rf"|({_PEOPLE})[ ._-]*(id|nr|no|nummer|number|key|code)[.]?$|(?-i:[a-z](ID|Id))$"
)
"""Names of columns that tell subjects apart, if there are many subjects and most of them have few rows."""
_LEAST_SUBJECTS = 30
_MOST_ROWS_EACH = 50
_GRID = (1, 2, 5)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A column whose values repeat as ids of subjects do: `mean` rows a subject, and at most `most` for 95 % of them."""

    column: str
    mean: float
    most: int


def subject_of(table: pa.Table) -> Subject | None:
    """Return the first column whose name and repeated values are those of subjects with several rows. Private."""
    for name in table.column_names:
        if not SUBJECT.search(name):
            continue
        ids = table.column(name).drop_null()
        counted = pc.value_counts(ids).field("counts")
        counts = to_numpy(counted)
        if are_subjects(len(counts), int(counts.sum())):
            most = on_grid(float(np.quantile(counts, 0.95)))
            return Subject(column=name, mean=float(counts.mean()), most=most)
    return None


def are_subjects(ids: int, rows: int) -> bool:
    """Return whether this number of distinct ids in this number of rows can be subjects, some with several rows."""
    return ids >= _LEAST_SUBJECTS and ids < rows <= _MOST_ROWS_EACH * ids


def on_grid(rows: float) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, … that is at least `rows`."""
    power = 10 ** max(0, math.floor(math.log10(max(rows, 1))))
    for step in _GRID:
        if step * power >= rows:
            return int(step * power)
    return int(10 * power)


def near_on_grid(rows: int) -> int:
    """Return the nearest of 1, 2, 5, 10, 20, 50, … by ratio: an order of size that hides the count."""
    counted = max(rows, 1)
    power = 10 ** math.floor(math.log10(counted))
    steps = [step * power for step in (*_GRID, 10)]
    return int(min(steps, key=lambda step: abs(math.log(step / counted))))
