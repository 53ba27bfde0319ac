"""What is known of a release before it is made, as one value: a line a draw, sentences, and what it will be good for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from marginweave.configuration.release import Configuration
from marginweave.forecast.accuracy import relative_errors
from marginweave.forecast.noise import forecast

if TYPE_CHECKING:
    import pandas as pd

    from marginweave.forecast.account import AccountForecast, Times
    from marginweave.forecast.sizes import SizeForecast
    from marginweave.runs.request import Request


@dataclass(frozen=True, kw_only=True, repr=False)
class PlannedRelease:
    """The plan of a release: noise, share of the budget, typical error and least count of each of its draws.

    Nothing is read but the configuration and the ledger, and nothing is charged. `draws` has the cells of the table by the
    name of a draw, `numbers` its share and noise, `epsilon` is what all draws have together at the release's delta. What
    `find` finds, run and ledger, is read when the sentences are.
    """

    configuration: Configuration
    find: Callable[[], Request]
    schedule: Times | None
    draws: dict[str, dict[str, str]]
    numbers: dict[str, dict[str, float]]
    epsilon: float

    @classmethod
    def of(
        cls, configuration: Configuration, find: Callable[[], Request], schedule: Times | None = None
    ) -> PlannedRelease:
        """The plan of a configuration, of which `find` makes a request, and how long its account lasts on a schedule."""
        drawn, epsilon = forecast(configuration)
        errors = relative_errors(configuration, configuration.rows) if configuration.rows else {}
        draws = {}
        for row in drawn:
            share = f"{100 * row.share:.1f} %"
            draws[row.name] = {"noise": row.noise, "share of budget": share, "typical error": row.error}
            if configuration.rows:
                beside = errors.get(row.name, ("", ""))
                draws[row.name] |= dict(zip(("of all rows", "of a mean count"), beside, strict=True))
            draws[row.name]["least count"] = row.threshold
        numbers = {row.name: {"share": row.share, **row.numbers} for row in drawn}
        return cls(
            configuration=configuration, find=find, schedule=schedule, draws=draws, numbers=numbers, epsilon=epsilon
        )

    @cached_property
    def request(self) -> Request:
        """What is asked for."""
        return self.find()

    @property
    def heading(self) -> str:
        """What is asked for: dataset, epsilon, delta and unit."""
        configuration, privacy = self.configuration, self.configuration.privacy
        return (
            f"{configuration.dataset}: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, "
            f"one {privacy.unit_words}, {privacy.neighbors}"
        )

    @property
    def ending(self) -> str:
        """What all draws have together."""
        return f"All draws together: epsilon {self.epsilon:.6g} at delta {self.configuration.privacy.delta:g}"

    @property
    def frame(self) -> pd.DataFrame:
        """A line a draw, in words."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.draws, orient="index").rename_axis("draw")

    @cached_property
    def notes(self) -> list[str]:
        """What there is to say beside the table, a sentence each: methods, noise, preparation, the account."""
        from marginweave.forecast import accuracy, noise, sizes
        from marginweave.forecast.earlier import earlier_forecast

        forecasts = (
            noise.observer_forecast,
            noise.combinations_forecast,
            noise.noise_forecast,
            noise.rounds_forecast,
            noise.preparation_forecast,
            noise.known_forecast,
            sizes.bins_forecast,
            accuracy.method_forecast,
        )
        said = [line for forecast in forecasts for line in forecast(self.configuration)]
        return [*said, *earlier_forecast(self.request), *self.account.lines]

    @cached_property
    def account(self) -> AccountForecast:
        """What the ledger says to the release."""
        from marginweave.forecast.account import account_forecast

        return account_forecast(self.request, self.schedule)

    @cached_property
    def sizes(self) -> list[SizeForecast]:
        """What it will be good for, by the number of rows."""
        from marginweave.forecast.sizes import size_forecast

        return size_forecast(self.configuration)

    @property
    def good_for(self) -> list[str]:
        """The same in lines, with the time it takes; none where sizes of domains are not public."""
        if not self.sizes:
            return []
        from marginweave.base.parallel import available_cores
        from marginweave.forecast.cost import SERVER, slow_rules
        from marginweave.forecast.sizes import declared_forecast

        heads = ["rows", "counted", "columns", "pairs", "synthetic records", "time, memory"]
        server = f"{SERVER:.0f} s of it for Prefect's server where none runs (and .3 GB more)"
        rules = slow_rules(self.configuration)
        public = declared_forecast(self.configuration)
        return [
            "What it will be good for: how far off noise alone puts shares (TVD), and how far off records are expected to be,",
            "in brackets between which eight of ten tables of our benchmarks were that the forecast was not fitted to:",
            *aligned([heads, *([f"{row.rows:,}", *row[1:-1]] for row in self.sizes)]),
            *(f"Pairs that are mostly noise with {row.rows:,} rows: {row.noise}" for row in self.sizes if row.noise),
            f"Time on {available_cores()} idle cores like our benchmarks', {server}{rules}; more where others work",
            *([public] if public else []),
        ]

    def __repr__(self) -> str:
        return "\n".join([self.heading, *aligned(draw_rows({"": self})), self.ending, *self.notes, *self.good_for])

    def _repr_html_(self) -> str:
        from html import escape

        said = "".join(f"<p>{escape(line)}</p>" for line in (self.ending, *self.notes))
        sizes = escape("\n".join(self.good_for))
        return f"<p>{escape(self.heading)}</p>{self.frame.to_html()}{said}<pre>{sizes}</pre>"


def draw_rows(plans: Mapping[str, PlannedRelease]) -> list[list[str]]:
    """A head, and a line a draw of each plan; columns in which no draw has anything are left out."""
    cells = {(name, side): plan.draws[name] for side, plan in plans.items() for name in plan.draws}
    keys = [*dict.fromkeys(key for row in cells.values() for key in row if any(one.get(key) for one in cells.values()))]
    heads = [key.removeprefix("typical ").removesuffix(" of budget") for key in keys]
    names = dict.fromkeys(name for name, _ in cells)
    order = [(name, side) for name in names for side in plans if (name, side) in cells]
    rows = [[name, side, *(cells[name, side].get(key, "") for key in keys)] for name, side in order]
    table = [["draw", "", *heads], *rows]
    return table if len(plans) > 1 else [[name, *row] for name, _, *row in table]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, its columns one below the other."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
