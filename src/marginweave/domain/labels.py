"""The attributes of a table with their public or released values, and what was found outside of these."""

from __future__ import annotations

import math
from dataclasses import dataclass

from marginweave.domain.shares import ratio_ends, share_ends


@dataclass(frozen=True, kw_only=True)
class UndeclaredCells:
    """How many records have a cell of the attribute `name` that is not as declared: as counted, and what noise leaves of it.

    `deviation` is that of the noise of `count`, in records, `low` and `high` are an interval at 95 %. `found` says whether
    there are more than noise explains, `kept` whether estimates and records have the code of such cells; else what was counted
    there is ignored. `of_set`: `name` is a set, and such cells hold a value that is not declared, which is left out of records.
    """

    name: str
    count: int
    deviation: float
    low: int
    high: int
    found: bool
    kept: bool
    of_set: bool = False

    def share_ends(self, records: float, deviation: float) -> tuple[float, float]:
        """Both ends of the share of so many records, a number with noise of this deviation, that has such cells: at 95 %."""
        half = float(self.high - self.count)
        of_records = half * deviation / self.deviation if self.deviation else 0.0
        low = share_ends(self.low + half, half, records, of_records)[0] if self.low else 0.0
        return low, share_ends(self.count, half, records, of_records)[1]

    def words(self, records: float, deviation: float, called: str) -> str:
        """What share of so many records has such cells, for a reader; `deviation` is that of the noise of this number."""
        shares = (min(self.count / max(records, 1.0), 1.0), *self.share_ends(records, deviation))
        count, low, high = (100 * one for one in shares)
        digits = 0 if count >= 10 else 1
        low = math.floor(low * 10**digits) / 10**digits
        high = math.ceil(high * 10**digits) / 10**digits
        if not self.found:
            at_most = f"at most {high:.{digits}f} % (with 95 % confidence)"
            return f"Noise explains all that was counted of {called} outside the declared values: {at_most}"
        share = f"{count:.{digits}f} % ({low:.{digits}f} to {high:.{digits}f})"
        if self.of_set:
            return f"About {share} of records hold a value of {called} that was not declared, and that is left out"
        return f"About {share} of {called} were not among the declared values"


@dataclass(frozen=True, kw_only=True)
class UncountedRows:
    """How many rows are not counted, as subjects have more than the `cap` that is counted of each: what noise leaves of it.

    `subjects` have more, `rows` are those beyond the cap, of each subject `most` at most: where some have more than that, rows
    are more as well. Both as counted, never below 0; the deviations are of their noise, and each pair of ends is an interval
    at 95 %.
    """

    cap: int
    most: int
    subjects: int
    subjects_deviation: float
    subjects_ends: tuple[int, int]
    rows: int
    rows_deviation: float
    rows_ends: tuple[int, int]

    @property
    def found(self) -> bool:
        """Whether there are more than noise explains."""
        return self.subjects_ends[0] > 0 or self.rows_ends[0] > 0

    def words(self, records: float, deviation: float, column: str) -> str:
        """The same for a reader, by `column`, which tells subjects apart, and how many records are counted."""
        low, high = self.subjects_ends
        more = f"of {column} have more than {self.cap:,} row{'' if self.cap == 1 else 's'}"
        cap_is = f"{self.cap:,} {'is' if self.cap == 1 else 'are'}"
        if not self.found:
            return f"At most {high:,} values {more} (with 95 % confidence), of which {cap_is} counted"
        about, least = self.least_share(records, deviation)
        digits = 0 if about >= 0.1 else 1
        floor = math.floor(least * 10 ** (digits + 2)) / 10**digits
        return (
            f"At least about {100 * about:.{digits}f} % of the rows ({floor:.{digits}f} % or more, with 95 % confidence) "
            f"are not counted: about {self.subjects:,} values ({low:,} to {high:,}) {more}, and {cap_is} counted of each"
        )

    def least_share(self, records: float, deviation: float) -> tuple[float, float]:
        """At least what share of all rows is not counted: about, and at least with a confidence of 97.5 %.

        `records` is how many are counted, a number with noise of this `deviation`. Of x rows beyond the cap and n counted
        ones it is x / (x + n), by the share x / n and its lower end.
        """
        counted = max(records, 1.0)
        half = float(self.rows_ends[1] - self.rows)
        of_records = half * deviation / self.rows_deviation if self.rows_deviation else 0.0
        low = ratio_ends(self.rows, half, counted, of_records)[0] if self.rows_ends[0] else 0.0
        about = self.rows / counted
        return about / (1 + about), low / (1 + low)


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Column names and, for each, the labels of its values; code v of a column is `labels[column][v]`.

    A missing value has the code one past the last label. Only public or released labels ever stand here. `undeclared` has
    each attribute a cell of which may not be as declared, `uncounted` the rows that are left out of every number; None where
    that was not measured.
    """

    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    undeclared: tuple[UndeclaredCells, ...] = ()
    uncounted: UncountedRows | None = None

    @property
    def with_undeclared(self) -> tuple[str, ...]:
        """The attributes whose missing code stands for cells that are not as declared."""
        return tuple(cells.name for cells in self.undeclared if cells.kept)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each column, the missing value not counted."""
        return tuple(len(values) for values in self.labels)
