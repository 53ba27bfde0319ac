"""Finds the column that tells apart the subjects whose privacy a draft proposes to protect, and rounds numbers of rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Integers
from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import to_numpy

_PEOPLE = (
    "person|individual|pat|patient(?:in|en)?|subject|respondent|participant|household|member|customer|client|user|student|employee|pupil|"
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
_COUNTED = 0.85
_FEW_TIMES = 3
_MUCH = 0.1
_MANY_TIMES = 10
_NOBODY = (
    "one value has {} of the rows: is it a person? If it means nobody, such as a guest, empty these cells in the table, draft "
    "again, and write missing_subject: own into unit"
)
_KEY = "one row each here, and any number of rows in the linked tables"
_SHARED = "tract|county|state|zip|region|district|ward|school|hospital|clinic|station|site|store|shop|product|item|zone"
_REPEATED = "location|team|route|provider|doctor|physician|event|order|invoice|session|device|country|city|gemeinde|kreis|land"
_PLACE = re.compile(
    rf"(?i)(^|[^a-z])({_SHARED}|{_REPEATED})([^a-z]|$)"
    r"|(?-i:(Location|Zone|Product|Station|Store|School|Site|Item|Order)(ID|Id)$)"
)
"""Names of what many people share, or one person has many of: these are no people."""
_QUALITY = re.compile(
    r"(?i)[^a-z](age|alter|edad|weight|height|gewicht|bmi|income|salary|cost|costs|price|score|rate|date|year|time|count|sum|"
    r"born|birth|dob|geburt|geboren|since|seit|admitted|discharged)$"
)
"""Ends of names of what a person has, as in `patient age`, also where a header of two rows has both words."""

_DATE = re.compile(
    r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}([ T].*)?|[0-9]{1,2}[ -][^\W\d]{3,9}\.?[ -][0-9]{2,4}"
)
_SAMPLE = 50


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A column whose values repeat as ids of subjects do.

    A subject has `mean` rows. A draft proposes to count at most `most` of each; `shares` has what that and other caps would
    leave of the rows, by cap.
    """

    column: str
    mean: float
    most: int
    shares: Mapping[int, float]
    nobody: float = 0.0
    """Share of the rows of a value that has too many for a person; 0 where none has."""

    @classmethod
    def of_key(cls, column: str) -> Subject:
        """Return the subject whose rows in linked tables are found by a key: it has one row in its own."""
        return cls(column=column, mean=1.0, most=1, shares={})

    @property
    def words(self) -> str:
        """The choice of a cap, with its price, in words; of a key what it is."""
        if not self.shares:
            return _KEY
        choices = [
            f"{self.mean:.1f} rows each; {self.most} counts {_share_words(self.shares[self.most])} of the rows"
        ]
        for cap, share in self.shares.items():
            if cap != self.most:
                times = f"{cap / self.most:.2g}".removesuffix(".0")
                noise = "half" if 2 * cap == self.most else f"{times} times"
                choices.append(f"{cap}: {noise} the noise, {_share_words(share)} of the rows")
        if self.nobody:
            choices.append(_NOBODY.format(_share_words(self.nobody)))
        return "; ".join(choices)


def _share_words(share: float) -> str:
    """Return a share, never more than there is."""
    return "all" if share >= 1 else f"{math.floor(100 * share)} %"


def names_subjects(name: str) -> bool:
    """Return whether a column of this name may tell subjects apart, as no column of places, products or ages does."""
    return bool(SUBJECT.search(name)) and not _PLACE.search(name) and not _QUALITY.search(name)


def subject_of(table: pa.Table) -> Subject | None:
    """Return the first column whose name and repeated values are those of subjects with several rows. Private."""
    for name in table.column_names:
        if not names_subjects(name):
            continue
        ids = table.column(name).drop_null()
        if _are_dates(ids):
            continue
        counted = pc.value_counts(ids).field("counts")
        counts = np.sort(to_numpy(counted))
        if are_subjects(len(counts), int(counts.sum())):
            return capped(name, counts)
    return None


def _are_dates(ids: pa.ChunkedArray) -> bool:
    """Return whether the first cells are dates, such as a day of birth: two people may have the same one."""
    first = ids.slice(0, _SAMPLE).cast(pa.string()).to_pylist()
    return bool(first) and all(_DATE.fullmatch(text.strip()) for text in first)


def capped(name: str, counts: Integers) -> Subject:
    """Return the subject whose numbers of rows are `counts`, in order; its cap is the least that counts 85 % of the rows.

    A larger one has more noise in all counts, to keep more rows of the few who have most. Half of that cap has half the noise.
    No cap leaves out a row if it is the most rows of any, which is a choice if it is near. Where all have nearly as many rows,
    the cap is that number. A value with a tenth of all rows, and ten times as many as others have, may be nobody: the cap is
    that of the others.
    """
    rows = int(counts.sum())
    may_be_nobody = counts[-1] > max(_MUCH * rows, _MANY_TIMES * rows / len(counts))
    nobody = int(counts[-1]) / rows if may_be_nobody else 0.0
    people = counts[:-1] if may_be_nobody else counts
    people_rows = int(people.sum())
    most = int(people[0])
    while np.minimum(people, most).sum() < _COUNTED * people_rows:
        most += 1
    if people[-1] - most <= 1:
        most = int(people[-1])
    caps = {most, max(1, most // 2)}
    if people[-1] <= _FEW_TIMES * most:
        caps.add(int(people[-1]))
    shares = {cap: int(np.minimum(counts, cap).sum()) / rows for cap in sorted(caps)}
    return Subject(
        column=name, mean=people_rows / len(people), most=most, shares=shares, nobody=nobody
    )


def are_subjects(ids: int, rows: int) -> bool:
    """Return whether this number of distinct ids in this number of rows can be subjects, some with several rows."""
    return ids >= _LEAST_SUBJECTS and ids < rows <= _MOST_ROWS_EACH * ids


def near_on_grid(rows: int) -> int:
    """Return the nearest of 1, 2, 5, 10, 20, 50, … by ratio: an order of size that hides the count."""
    counted = max(rows, 1)
    power = 10 ** math.floor(math.log10(counted))
    steps = [step * power for step in (*_GRID, 10)]
    return int(min(steps, key=lambda step: abs(math.log(step / counted))))
