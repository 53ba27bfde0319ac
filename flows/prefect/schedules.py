"""Prefect's schedules: their times, and the names of their runs."""

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
    """A schedule of a deployment in Prefect: a cron expression of five fields, and the name of a time zone.

    Raises:
        InputError: Prefect would refuse it, or it has no time in the future.
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
            has_times = len(self.cron.split()) == 5 and any(self.after(datetime.now(UTC)))
        except ValueError:
            has_times = False
        if not has_times:
            raise InputError(
                f"schedule ({self.cron}) must be a cron expression of five fields, such as '0 3 1 */3 *'"
            )

    def after(self, start: datetime) -> Iterator[datetime]:
        """Yield the times from `start` on at which a deployment would run; Prefect computes a chunk at a time."""
        schedule = self._server_schedule()
        zone = ZoneInfo(self.timezone)
        size = 2
        while times := asyncio.run(schedule.get_dates(n=size, start=start)):
            for time in times:
                yield time.astimezone(zone)
            start = times[-1] + timedelta(seconds=1)
            size = min(8 * size, _CHUNK)

    def run_name(self, dataset: str, moment: datetime) -> str:
        """Return the name of the run of `moment`, if this is the only schedule of the dataset."""
        period = period_name([self._server_schedule()], self.timezone, moment)
        return f"{dataset}-{period}"

    def _server_schedule(self) -> CronSchedule:
        # Prefect warns of its home, which exists only after something ran
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from prefect.server.schemas.schedules import CronSchedule

        return CronSchedule(cron=self.cron, timezone=self.timezone)

    def __str__(self) -> str:
        return f"{self.cron} ({self.timezone})"
