"""A schedule as Prefect has it: its times, and the names of its runs."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from marginweave.base.errors import InputError

from .periods import period_name

if TYPE_CHECKING:
    from prefect.server.schemas.schedules import CronSchedule


_CHUNK = 1000  # as many as Prefect computes at a time


@dataclass(frozen=True)
class Schedule:
    """Times as Prefect has them for a deployment: a cron expression of five fields, and the name of a time zone.

    Raises:
        InputError: Prefect would not take it, or it never comes.
    """

    cron: str
    timezone: str

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError):
            rule = "must be the name of a time zone, such as Europe/Berlin"
            raise InputError(f"timezone ({self.timezone}) {rule}") from None
        try:
            fitting = len(self.cron.split()) == 5 and next(self.after(datetime.now(UTC)), None) is not None
        except ValueError:
            fitting = False
        if not fitting:
            raise InputError(f"schedule ({self.cron}) must be a cron expression of five fields, such as '0 3 1 */3 *'")

    def after(self, start: datetime) -> Iterator[datetime]:
        """The times from `start` on at which a deployment would run; Prefect computes a chunk at a time."""
        schedule, zone = self._known(), ZoneInfo(self.timezone)
        size = 2
        while times := asyncio.run(schedule.get_dates(n=size, start=start)):
            yield from (time.astimezone(zone) for time in times)
            start, size = times[-1] + timedelta(seconds=1), min(8 * size, _CHUNK)

    def run_name(self, dataset: str, moment: datetime) -> str:
        """What the run of `moment` is called where this is the only schedule of the dataset."""
        return f"{dataset}-{period_name([self._known()], self.timezone, moment)}"

    def _known(self) -> CronSchedule:
        with warnings.catch_warnings():  # Prefect's, of a home that is made only when something runs
            warnings.simplefilter("ignore")
            from prefect.server.schemas.schedules import CronSchedule

        return CronSchedule(cron=self.cron, timezone=self.timezone)

    def __str__(self) -> str:
        return f"{self.cron} ({self.timezone})"
