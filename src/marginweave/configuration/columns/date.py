"""Columns of dates and of moments, released in calendar bins."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Sequence, Set
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from marginweave.configuration.columns.base import RULE_BOUNDS, Limits, Rule
from marginweave.configuration.columns.binned import MAX_BINS, BinnedColumn, Gap, Run, open_runs
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
_DIRECTIVES = frozenset("YymdbBjHMSIp%")


def _bins(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) >= 2:
        return tuple(str(edge) for edge in value)
    if value not in _PERIODS:
        raise ValueError(f"must be one of {', '.join(_PERIODS)}, or a list of at least two edges")
    return value


def _bounds(value: Any) -> Any:
    if value is not None and (not isinstance(value, list | tuple) or len(value) != 2):
        raise ValueError("must be [first, last]")
    return None if value is None else tuple(str(item) for item in value)


def _format(value: Any) -> Any:
    if value is not None:
        used = set(re.findall(r"%(.)", str(value).replace("%%", "")))
        if not used <= _DIRECTIVES:
            raise ValueError("must be a strptime format of %Y %y %m %b %B %d %j %H %I %p %M %S, without a time zone")
        if not used & set("Yy"):
            raise ValueError("must have a year, %Y or %y")
    return None if value is None else str(value)


class DateColumn(BinnedColumn, frozen=True):
    """A date, or a moment to the second (`type: datetime`), clamped to public `bounds` and released in `bins`.

    `bounds` are the first and the last one, in ISO 8601; a last day of moments counts to its end. `bins` is year, quarter,
    month, week (ISO, from Monday) or weekday, or a list of ISO edges e_0 < … < e_n: a bin is [e_i, e_i+1), the last one
    [e_n-1, e_n]. Texts are read, and written, in the strptime `format` (in quotes: YAML keeps % for itself); without one
    they are ISO 8601 without a time zone, and the output has dates. `draw` says how a synthetic value is chosen inside its
    bin: `uniform` or its `midpoint`.
    """

    input_rule: ClassVar[str] = "every value is a date in the declared format"
    type: Literal["date", "datetime"]
    bounds: Annotated[tuple[str, str] | None, BeforeValidator(_bounds)] = None
    bins: Annotated[Period | tuple[str, ...], BeforeValidator(_bins)]
    format: Annotated[str | None, BeforeValidator(_format)] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        texts = (*(self.bounds or ()), *(self.bins if isinstance(self.bins, tuple) else ()))
        if any(parse_instant(text, None) is None for text in texts):
            raise ValueError("has a bound or an edge that is no date in ISO 8601, such as 2019-12-31")
        if self.draw not in ("uniform", "midpoint", None):
            raise ValueError("has a draw that is neither uniform nor midpoint")
        if isinstance(self.bins, tuple):
            if any(low >= high for low, high in pairwise(self._instant(edge) for edge in self.bins)):
                raise ValueError("has bins out of order; edges must increase")
            if self.bounds is not None and self._ends(self.bounds) != self._ends((self.bins[0], self.bins[-1])):
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
            raise ValueError(f"must have at most {MAX_BINS} bins")

    def _check_format(self) -> None:
        """Refuse a format that forgets what the bins need: a written value must be read back into its bin."""
        if self.format is None:
            return
        used = self._used
        day, month = bool(used & set("dj")), bool(used & set("mbBj"))
        enough = {"year": True, "quarter": month, "month": month}.get(str(self.bins), month and day)
        enough = self.exact if isinstance(self.bins, tuple) else enough
        if not enough or ("d" in used and not month) or ("I" in used) != ("p" in used):
            raise ValueError(f"has a format ({self.format}) that is too coarse for its bins, or incomplete")
        first, stop = self._ends(self._limits)
        years = moment_of(first * self.seconds).year, moment_of((stop - 1) * self.seconds).year
        if "y" in used and not (years[0] >= 1969 and years[1] <= 2068):
            raise ValueError("has a format with %y, which means 1969 to 2068; its bounds lie outside")
        if years[0] < 1000:
            raise ValueError(
                "has a format, and bounds before the year 1000, which a format does not write in four digits"
            )

    @cached_property
    def _used(self) -> Set[str]:
        return set(re.findall(r"%(.)", (self.format or "").replace("%%", "")))

    @property
    def exact(self) -> bool:
        """Whether the format writes every day, or second, in its own way."""
        used = self._used
        day = bool(used & set("dj")) and bool(used & set("mbBj"))
        second = ("H" in used or {"I", "p"} <= used) and {"M", "S"} <= used
        return self.format is None or (day and (second or self.type == "date"))

    @property
    def seconds(self) -> int:
        """Seconds in the unit in which the column counts: days, or seconds for moments."""
        return DAY if self.type == "date" else 1

    @property
    def per_day(self) -> int:
        """Units of a day."""
        return DAY // self.seconds

    @property
    def _limits(self) -> tuple[str, str]:
        return self.bounds or (self.bins[0], self.bins[-1])

    def _instant(self, text: str) -> int:
        """An ISO text in units."""
        return (parse_instant(text, None) or 0) // self.seconds

    def _ends(self, limits: tuple[str, str]) -> tuple[int, int]:
        """First unit and the one after the last; a last day of moments counts to its end."""
        whole_day = self.type == "datetime" and len(limits[1]) == 10
        return self._instant(limits[0]), self._instant(limits[1]) + (DAY if whole_day else 1)

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """Bins as half-open ranges of units, [edges[i], edges[i+1]); for weekdays the two ends only."""
        first, stop = self._ends(self._limits)
        if self.bins == "weekday":
            return first, stop
        if isinstance(self.bins, tuple):
            return (*(self._instant(edge) for edge in self.bins[:-1]), stop)
        return (first, *(start * self.per_day for start in self._period_starts[1:]), stop)

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
        bins = [f"[{first}, {stop})" for first, stop in pairwise(self.bins)]
        return (*bins[:-1], f"{bins[-1][:-1]}]")

    @property
    def ordered(self) -> bool:
        """Weekdays go round and have no order."""
        return self.bins != "weekday"

    range_end: ClassVar[str] = "a date like 2019-12-31"

    @cached_property
    def label_limits(self) -> tuple[Limits | None, ...]:
        """The first and the last day, or second, of each bin; none of a weekday, which comes again."""
        if not self.ordered:
            return (None,) * len(self.labels)
        return tuple((Fraction(first), Fraction(stop - 1)) for first, stop in pairwise(self.edges))

    @property
    def span(self) -> Limits:
        """The first and the last day, or second, of weekdays as well."""
        return Fraction(self.edges[0]), Fraction(self.edges[-1] - 1)

    def point_of(self, text: str) -> Fraction | None:
        """Return a date in ISO 8601 in days, or seconds, since 1970; None for any other text."""
        instant = parse_instant(text, None)
        return None if instant is None else Fraction(instant, self.seconds)

    @property
    def clean_rules(self) -> tuple[Rule, ...]:
        """Days, or seconds, lie within the bounds."""
        return (Rule(name=RULE_BOUNDS, limits=(self.edges[0], self.edges[-1] - 1)),)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Texts of a format are dates of it; dates and moments lie within the bounds."""
        if self.format is not None:
            return (Rule(name=self.input_rule, each=self.accepts),)
        first, last = (moment_of(unit * self.seconds) for unit in (self.edges[0], self.edges[-1] - 1))
        limits = (first.date(), last.date()) if self.type == "date" else (first, last)
        return (Rule(name=RULE_BOUNDS, limits=limits),)

    def uniform_weights(self, labels: Sequence[str]) -> tuple[float, ...]:  # noqa: ARG002 - the bins are public
        """The days, or seconds, of each bin; of a weekday, those within the bounds."""
        weights = [0.0] * len(self.labels)
        for owner, first, last in self._units:
            weights[owner] += last - first + 1
        return tuple(weights)

    def runs(self, missing: Sequence[str]) -> tuple[Run, ...] | None:
        """What the missing codes leave of the units of the bins; None where none of them lies within the bounds."""
        gaps = [gap for text in missing for gap in self._gaps(text.strip())]
        gaps = [gap for gap in gaps if gap[0] < self.edges[-1] and gap[1] >= self.edges[0]]
        return open_runs(self._units, gaps) if gaps else None

    @property
    def _units(self) -> Iterable[Run]:
        """First and last unit of every bin; of a weekday, of every day."""
        if self.bins != "weekday":
            return ((i, first, stop - 1) for i, (first, stop) in enumerate(pairwise(self.edges)))
        first, last, length = self.edges[0], self.edges[-1] - 1, self.per_day
        days = range(first // length, last // length + 1)
        return (
            ((day + EPOCH_WEEKDAY) % 7, max(first, day * length), min(last, day * length + length - 1)) for day in days
        )

    def _gaps(self, text: str) -> Iterable[Gap]:
        """Units that are written as the missing `text`, or as another spelling of the number that it is."""
        for spelled in {text, self._padded(text)}:
            instant = parse_instant(spelled, self.format)
            if instant is None:
                continue
            first, stop = instant, instant + 1
            if self.format is not None:
                if ValueMatcher([text]).index(moment_of(instant).strftime(self.format)) < 0:
                    continue
                first, stop = _written_alike(instant, self.format)
            yield -(-first // self.seconds), (stop - 1) // self.seconds

    def _padded(self, text: str) -> str:
        """A missing number with as many digits as the format writes: 1012020 is 01012020 for %d%m%Y."""
        code = declared_number(text)
        if code is None or self.format is None:
            return text
        sample = moment_of(self.edges[0] * self.seconds).strftime(self.format)
        return f"{code:.{len(sample.partition('.')[2])}f}".zfill(len(sample))

    def accepts(self, text: str) -> bool:
        """Whether the text is a date in the declared format; its bounds clamp it."""
        return parse_instant(text, self.format) is not None


def _written_alike(instant: int, format_: str) -> tuple[int, int]:
    """Seconds [first, stop) around a moment that a format cannot tell from it.

    A format that skips a unit, such as %Y %H, counts as one that ends before it: more is left out, never less.
    """
    used = set(re.findall(r"%(.)", format_.replace("%%", "")))
    moment = moment_of(instant)
    if not used & set("mbBj"):
        start = instant - instant % DAY - (moment.timetuple().tm_yday - 1) * DAY
        return start, start + (366 if calendar.isleap(moment.year) else 365) * DAY
    if not used & set("dj"):
        start = instant - instant % DAY - (moment.day - 1) * DAY
        return start, start + calendar.monthrange(moment.year, moment.month)[1] * DAY
    size = DAY
    for names, finer in (("HI", 3600), ("M", 60), ("S", 1)):
        if not used & set(names):
            break
        size = finer
    return instant - instant % size, instant - instant % size + size
