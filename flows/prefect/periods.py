"""What the period of a schedule is called, in which each of its times is the only one."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from pydantic import BaseModel

_TIMES = 800  # looked at from the beginning of the year on: of a schedule of days, all of it

# From the coarsest on; an hour that clocks show twice has a letter the second time.
_NAMES: tuple[Callable[[datetime], str], ...] = (
    lambda time: f"{time.year}-q{(time.month + 2) // 3}",
    lambda time: f"{time:%Y-%m}",
    lambda time: f"{time:%G-w%V}",
    lambda time: f"{time:%Y-%m-%d}",
    lambda time: f"{time:%Y-%m-%d-%H%M}{'b' if time.fold else ''}",
)


def period_name(schedules: Sequence[BaseModel], zone: str, moment: datetime) -> str:
    """Quarter, month, week, day or minute of `moment`: the coarsest that no two times of the schedules share.

    Args:
        schedules: Prefect's cron, interval or rrule schedules, all those of a deployment.
        zone: name of the time zone whose clocks count.
        moment: a scheduled time, with a time zone.

    Returns:
        Such as 2026-q4, 2026-11, 2026-w47, 2026-11-20 or 2026-11-20-0130.
    """
    here = moment.astimezone(ZoneInfo(zone))
    start = datetime(here.year, 1, 1, tzinfo=here.tzinfo)
    times = sorted(
        {time.astimezone(here.tzinfo) for schedule in schedules for time in _times(schedule, start)} | {here}
    )
    return next((name(here) for name in _NAMES if len({name(time) for time in times}) == len(times)), _NAMES[-1](here))


def _times(schedule: BaseModel, start: datetime) -> list[datetime]:
    with warnings.catch_warnings():  # Prefect's, of a home that is made only when something runs
        warnings.simplefilter("ignore")
        from prefect.server.schemas.schedules import SCHEDULE_TYPES

    known: Any = TypeAdapter(SCHEDULE_TYPES).validate_python(schedule.model_dump(mode="json"))
    return asyncio.run(known.get_dates(n=_TIMES, start=start.astimezone(UTC)))
