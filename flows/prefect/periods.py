"""Names for the periods of a schedule, each with a single one of its times."""

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

# times that are compared, from the beginning of the year on: a daily schedule has fewer in a year
_TIMES = 800

# From the coarsest to the finest; an hour that clocks show twice has a letter the second time.
_NAMES: tuple[Callable[[datetime], str], ...] = (
    lambda time: f"{time.year}-q{(time.month + 2) // 3}",
    lambda time: f"{time:%Y-%m}",
    lambda time: f"{time:%G-w%V}",
    lambda time: f"{time:%Y-%m-%d}",
    lambda time: f"{time:%Y-%m-%d-%H%M}{'b' if time.fold else ''}",
)


def period_name(schedules: Sequence[BaseModel], zone: str, moment: datetime) -> str:
    """Return the quarter, month, week, day or minute of `moment`: the coarsest that no two times of the schedules share.

    Args:
        schedules: Prefect's cron, interval or rrule schedules, all those of a deployment.
        zone: name of the time zone whose clocks count.
        moment: a scheduled time, with a time zone.

    Returns:
        Such as 2026-q4, 2026-11, 2026-w47, 2026-11-20 or 2026-11-20-0130.
    """
    local_moment = moment.astimezone(ZoneInfo(zone))
    start = datetime(local_moment.year, 1, 1, tzinfo=local_moment.tzinfo)
    times = {local_moment}
    for schedule in schedules:
        times.update(time.astimezone(local_moment.tzinfo) for time in _times(schedule, start))
    for period_of in _NAMES:
        periods = {period_of(time) for time in times}
        if len(periods) == len(times):
            return period_of(local_moment)
    finest = _NAMES[-1]
    return finest(local_moment)


def _times(schedule: BaseModel, start: datetime) -> list[datetime]:
    # Prefect warns of its home, which exists only after something ran
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from prefect.server.schemas.schedules import SCHEDULE_TYPES

    server_schedule: Any = TypeAdapter(SCHEDULE_TYPES).validate_python(
        schedule.model_dump(mode="json")
    )
    return asyncio.run(server_schedule.get_dates(n=_TIMES, start=start.astimezone(UTC)))
