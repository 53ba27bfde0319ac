"""Columns of dates and of moments, released in calendar bins."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Sequence, Set
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from marginweave.base.errors import MustError
from marginweave.configuration.columns.base import RULE_BOUNDS, Limits, Rule
from marginweave.configuration.columns.binned import (
    MAX_BINS,
    BinnedColumn,
    ClampedEnd,
    Gap,
    PointRange,
    open_runs,
)
from marginweave.configuration.columns.periods import (
    DAY,
    EPOCH_WEEKDAY,
    WEEKDAYS,
    moment_of,
    parse_instant,
    period_label,
    period_starts,
)
from marginweave.configuration.values import ValueMatcher, declared_number

Period = Literal["year", "quarter", "month", "week", "weekday"]
_PERIODS = ("year", "quarter", "month", "week", "weekday")
_DIRECTIVES = frozenset("YymdbBaAjHMSIp%")
_DAY_DIRECTIVES = frozenset("dj")
_MONTH_DIRECTIVES = frozenset("mbBj")


def _bins(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) >= 2:
        return tuple(str(edge) for edge in value)
    if value not in _PERIODS:
        raise MustError(f"be one of {', '.join(_PERIODS)}, or a list of at least two edges")
    return value


def _bounds(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise MustError("be [first, last]")
    return tuple(str(item) for item in value)


def _format(value: Any) -> Any:
    if value is None:
        return None
    used = _directives_of(str(value))
    if not used <= _DIRECTIVES:
        raise MustError(
            "be a strptime format of %Y %y %m %b %B %d %a %A %j %H %I %p %M %S, without a time zone"
        )
    if used.isdisjoint("Yy"):
        raise MustError("have a year, %Y or %y")
    return str(value)


class DateColumn(BinnedColumn, frozen=True):
    """A date, or a moment to the second (`type: datetime`), clamped to public `bounds` and released in `bins`.

    `bounds` are the first and the last date in ISO 8601; a last day of moments counts to its end. `bins` is year,
    quarter, month, week (ISO, from Monday) or weekday, or a list of ISO edges e_0 < … < e_n: a bin is [e_i, e_i+1),
    the last one [e_n-1, e_n]. Texts are read, and written, in the strptime `format` (in quotes, as YAML reserves %).
    Without `format` they are ISO 8601, moments of a time zone count in UTC, and the output has dates. `draw` says how
    a synthetic value is chosen inside its bin: `uniform` or its `midpoint`.
    """

    value_form: ClassVar[str | None] = "a date in the declared format"
    beyond: ClassVar[Literal["numbers", "dates"]] = "dates"
    type: Literal["date", "datetime"]
    bounds: Annotated[tuple[str, str] | None, BeforeValidator(_bounds)] = None
    bins: Annotated[Period | tuple[str, ...], BeforeValidator(_bins)]
    format: Annotated[str | None, BeforeValidator(_format)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        texts = list(self.bounds or ())
        if isinstance(self.bins, tuple):
            texts += self.bins
        if any(parse_instant(text, None) is None for text in texts):
            raise ValueError(
                "has a bound or an edge that is no date in ISO 8601, such as 2019-12-31"
            )
        if self.draw not in ("uniform", "midpoint", None):
            raise ValueError("has a draw that is neither uniform nor midpoint")
        if isinstance(self.bins, tuple):
            if any(low >= high for low, high in pairwise(map(self._instant, self.bins))):
                raise ValueError("has bins out of order; edges must increase")
            if self.bounds is not None and self._ends(self.bounds) != self._ends(
                (self.bins[0], self.bins[-1])
            ):
                raise ValueError("has bins that do not begin and end at its bounds")
        elif self.bounds is None:
            raise ValueError("needs bounds [first, last]")
        self._check_span()
        self._check_format()
        return self

    def _check_span(self) -> None:
        first, stop = self._ends(self._limits)
        if not first < stop:
            raise ValueError("has bounds whose first must not come after their last")
        if self.bins == "weekday" and (stop - 1) // self.per_day - first // self.per_day < 6:
            raise ValueError("has bounds that do not hold every weekday")
        if len(self.labels) > MAX_BINS:
            raise MustError(f"have at most {MAX_BINS} bins")

    def _check_format(self) -> None:
        """Refuse a format that leaves out a unit that the bins need: a written value must be read back into its bin."""
        if self.format is None:
            return
        used = self._used
        is_complete = ("d" not in used or self._has_month) and ("I" in used) == ("p" in used)
        if not is_complete or not self._is_fine_enough():
            raise ValueError(
                f"has a format ({self.format}) that is too coarse for its bins, or incomplete"
            )
        first, stop = self._ends(self._limits)
        first_year = moment_of(first * self.seconds).year
        last_year = moment_of((stop - 1) * self.seconds).year
        if "y" in used and (first_year < 1969 or last_year > 2068):
            raise ValueError(
                "has a format with %y, which means 1969 to 2068; its bounds lie outside"
            )
        if first_year < 1000:
            raise ValueError(
                "has a format, and bounds before the year 1000, which a format does not write in four digits"
            )

    def _is_fine_enough(self) -> bool:
        """Return whether the format writes values of different bins differently."""
        if isinstance(self.bins, tuple):
            return self.exact
        if self.bins == "year":
            return True
        if self.bins in ("quarter", "month"):
            return self._has_month
        return self._has_month and self._has_day

    @cached_property
    def _used(self) -> Set[str]:
        """Directives of the format."""
        return _directives_of(self.format or "")

    @property
    def _has_day(self) -> bool:
        return bool(self._used & _DAY_DIRECTIVES)

    @property
    def _has_month(self) -> bool:
        return bool(self._used & _MONTH_DIRECTIVES)

    @property
    def exact(self) -> bool:
        """Return whether the format writes no two days, or seconds of moments, alike."""
        if self.format is None:
            return True
        used = self._used
        has_second = ("H" in used or {"I", "p"} <= used) and {"M", "S"} <= used
        return self._has_day and self._has_month and (has_second or self.type == "date")

    @property
    def seconds(self) -> int:
        """Seconds in the unit in which the column counts: days, or seconds for moments."""
        return DAY if self.type == "date" else 1

    @property
    def per_day(self) -> int:
        """Number of units in a day."""
        return DAY // self.seconds

    @property
    def _limits(self) -> tuple[str, str]:
        return self.bounds or (self.bins[0], self.bins[-1])

    def _instant(self, text: str) -> int:
        """Return the unit of an ISO text, counted from 1970-01-01."""
        return (parse_instant(text, None) or 0) // self.seconds

    def _ends(self, limits: tuple[str, str]) -> tuple[int, int]:
        """Return the first unit and the unit after the last; a last day of moments counts to its end."""
        first, last = limits
        is_whole_day = self.type == "datetime" and len(last) == len("2019-12-31")
        return self._instant(first), self._instant(last) + (DAY if is_whole_day else 1)

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """Edges of the bins as half-open ranges of units, [edges[i], edges[i+1]); for weekdays only the first and the end."""
        first, stop = self._ends(self._limits)
        if self.bins == "weekday":
            return first, stop
        if isinstance(self.bins, tuple):
            return (*map(self._instant, self.bins[:-1]), stop)
        inner = [start * self.per_day for start in self._period_starts[1:]]
        return (first, *inner, stop)

    @cached_property
    def _period_starts(self) -> list[int]:
        first, stop = self._ends(self._limits)
        return period_starts(str(self.bins), first // self.per_day, (stop - 1) // self.per_day)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the bins: 2019, 2019-Q1, 2019-01, 2019-W01, Monday, or [2019-01-01, 2020-01-01)."""
        if self.bins == "weekday":
            return WEEKDAYS
        if isinstance(self.bins, str):
            return tuple(period_label(self.bins, start) for start in self._period_starts)
        *bins, last = [f"[{first}, {stop})" for first, stop in pairwise(self.bins)]
        return (*bins, last.replace(")", "]"))

    @property
    def ordered(self) -> bool:
        """Return whether the bins have an order; weekdays, which repeat, do not."""
        return self.bins != "weekday"

    range_end: ClassVar[str] = "a date like 2019-12-31"

    @property
    def without_order(self) -> str:
        """Words for why labels without limits cannot be compared."""
        return "which is counted by days of the week, and these repeat"

    @cached_property
    def label_limits(self) -> tuple[Limits | None, ...]:
        """First and last day, or second, of each bin; None for weekdays, which repeat."""
        if not self.ordered:
            return (None,) * len(self.labels)
        return tuple((Fraction(first), Fraction(stop - 1)) for first, stop in pairwise(self.edges))

    @property
    def span(self) -> Limits:
        """First and last day, or second, within the bounds."""
        return Fraction(self.edges[0]), Fraction(self.edges[-1] - 1)

    @property
    def clamp(self) -> tuple[float, float]:
        """First and last day, or second, to which dates and moments are clamped."""
        return float(self.edges[0]), float(self.edges[-1] - 1)

    @property
    def clamp_texts(self) -> tuple[str, str]:
        """First and last date or moment as a configuration has them."""
        return self._limits

    @property
    def clamped_ends(self) -> tuple[ClampedEnd, ...]:
        """First and last day, or second, of the bounds: dates beyond them count as these."""
        first, last = self._limits
        if self.ordered:
            last_code = len(self.labels) - 1
            return (
                ClampedEnd(bound=first, is_upper=False, code=0),
                ClampedEnd(bound=last, is_upper=True, code=last_code),
            )
        first_weekday = self._weekday(self.edges[0])
        last_weekday = self._weekday(self.edges[-1] - 1)
        return (
            ClampedEnd(bound=f"{first} ({first_weekday})", is_upper=False, code=None),
            ClampedEnd(bound=f"{last} ({last_weekday})", is_upper=True, code=None),
        )

    def _weekday(self, unit: int) -> str:
        """Return the name of the day of the week of a day, or second, since 1970."""
        return WEEKDAYS[(unit // self.per_day + EPOCH_WEEKDAY) % 7]

    def point_of(self, text: str) -> Fraction | None:
        """Return a date in ISO 8601 in days, or seconds, since 1970; None for any other text."""
        instant = parse_instant(text, None)
        return None if instant is None else Fraction(instant, self.seconds)

    @property
    def clean_rules(self) -> tuple[Rule, ...]:
        """Rule that days, or seconds, lie within the bounds."""
        return (Rule(name=RULE_BOUNDS, limits=(self.edges[0], self.edges[-1] - 1)),)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Rule that texts are dates of the declared format, or that dates and moments lie within the bounds."""
        if self.format is not None:
            return (Rule(name=self.input_rule, test=self.accepts),)
        first = moment_of(self.edges[0] * self.seconds)
        last = moment_of((self.edges[-1] - 1) * self.seconds)
        limits = (first.date(), last.date()) if self.type == "date" else (first, last)
        return (Rule(name=RULE_BOUNDS, limits=limits),)

    def uniform_weights(self, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ARG002 - the bins are public
        """Return the number of days, or seconds, of each bin; of a weekday, those within the bounds."""
        weights = [0.0] * len(self.labels)
        for index, first, last in self._units:
            weights[index] += last - first + 1
        return tuple(weights)

    def runs(self, missing: Sequence[str]) -> tuple[PointRange, ...] | None:
        """Return the units of the bins without the missing codes; None where no code lies within the bounds."""
        gaps = list[Gap]()
        for text in missing:
            for first, last in self._gaps(text.strip()):
                if first < self.edges[-1] and last >= self.edges[0]:
                    gaps.append((first, last))
        return open_runs(self._units, gaps) if gaps else None

    @property
    def _units(self) -> Iterator[PointRange]:
        """First and last unit of every bin; for weekdays, of every day within the bounds."""
        if self.bins != "weekday":
            for index, (first, stop) in enumerate(pairwise(self.edges)):
                yield index, first, stop - 1
            return
        first, stop = self.edges
        length = self.per_day
        for day in range(first // length, (stop - 1) // length + 1):
            day_start = day * length
            yield (
                (day + EPOCH_WEEKDAY) % 7,
                max(first, day_start),
                min(stop, day_start + length) - 1,
            )

    def _gaps(self, text: str) -> Iterator[Gap]:
        """Yield the first and last unit of the times that are written as the missing `text`.

        If the text is a number, other spellings of the number are the same text.
        """
        for spelled in {text, self._padded(text)}:
            instant = parse_instant(spelled, self.format)
            if instant is None:
                continue
            if self.format is None:
                first = instant
                stop = instant + 1
            elif ValueMatcher([text]).index(moment_of(instant).strftime(self.format)) < 0:
                continue
            else:
                first, stop = _span_written_alike(instant, self.format)
            yield -(-first // self.seconds), (stop - 1) // self.seconds

    def _padded(self, text: str) -> str:
        """Return a missing number with as many digits as the format writes: 1012020 is 01012020 for %d%m%Y."""
        code = declared_number(text)
        if code is None or self.format is None:
            return text
        sample = moment_of(self.edges[0] * self.seconds).strftime(self.format)
        _, _, decimals = sample.partition(".")
        digits = format(code, f".{len(decimals)}f")
        return digits.zfill(len(sample))

    def accepts(self, text: str) -> bool:
        """Return whether the text is a date in the declared format; its bounds clamp it."""
        return parse_instant(text, self.format) is not None


def _directives_of(format_: str) -> Set[str]:
    """Return the letters that follow % in a strptime format."""
    return set(re.findall(r"%(.)", format_.replace("%%", "")))


def _span_written_alike(instant: int, format_: str) -> tuple[int, int]:
    """Return the seconds [first, stop) around a moment that a format writes like the moment.

    A format that skips a unit, such as %Y %H, is treated as if it ended before that unit: the span is never too short.
    """
    used = _directives_of(format_)
    moment = moment_of(instant)
    midnight = instant - instant % DAY
    if not used & _MONTH_DIRECTIVES:
        day_of_year = moment.timetuple().tm_yday
        first = midnight - (day_of_year - 1) * DAY
        days = 366 if calendar.isleap(moment.year) else 365
        return first, first + days * DAY
    if not used & _DAY_DIRECTIVES:
        first = midnight - (moment.day - 1) * DAY
        _, days = calendar.monthrange(moment.year, moment.month)
        return first, first + days * DAY
    size = DAY
    for directives, unit in (("HI", 3600), ("M", 60), ("S", 1)):
        if used.isdisjoint(directives):
            break
        size = unit
    first = instant - instant % size
    return first, first + size
