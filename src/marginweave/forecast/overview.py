"""Collect what is known of a release before it is made: a line for each draw, sentences, and what it will be good for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from marginweave.configuration.release import Configuration
from marginweave.forecast.accuracy import RelativeErrors, relative_errors
from marginweave.forecast.layout import aligned
from marginweave.forecast.noise import DrawForecast, forecast
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.texts.sentences import Sentence, Share

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
    `find` finds, run and ledger, is read when the sentences are. `most` has the cells of the noisiest table of a draw, where
    they differ from those of the least noisy one.
    """

    configuration: Configuration
    find: Callable[[], Request]
    schedule: Times | None
    draws: dict[str, dict[str, str]]
    most: dict[str, dict[str, str]]
    numbers: dict[str, dict[str, float]]
    epsilon: float

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        find: Callable[[], Request],
        schedule: Times | None = None,
    ) -> PlannedRelease:
        """Return the plan of a configuration, of which `find` makes a request, and how long its account lasts on a schedule."""
        rows, epsilon = forecast(configuration)
        errors = relative_errors(configuration, configuration.rows) if configuration.rows else None
        draws = {row.name: _cells(row, errors) for row in rows}
        most = {row.name: _most_cells(row, errors) for row in rows}
        numbers = {row.name: {"share": row.share, **row.numbers} for row in rows}
        return cls(
            configuration=configuration,
            find=find,
            schedule=schedule,
            draws=draws,
            most=most,
            numbers=numbers,
            epsilon=epsilon,
        )

    @cached_property
    def request(self) -> Request:
        """Request of the configuration's release."""
        return self.find()

    @property
    def heading(self) -> str:
        """Dataset, epsilon, delta and unit."""
        privacy = self.configuration.privacy
        return str(
            plan_sentence(
                "heading.one",
                dataset=self.configuration.dataset,
                epsilon=privacy.epsilon,
                delta=privacy.delta,
                unit=self.configuration.unit_words,
                neighbors=privacy.neighbors,
            )
        )

    @property
    def ending(self) -> str:
        """Epsilon of all draws together."""
        return str(
            plan_sentence(
                "draws.ending", epsilon=self.epsilon, delta=self.configuration.privacy.delta
            )
        )

    @property
    def frame(self) -> pd.DataFrame:
        """Table of the draws, in words; a draw of tables that differ in noise has a second line, of the noisiest."""
        import pandas as pd

        lines: dict[str, dict[str, str]] = {}
        for name, cells in self.draws.items():
            lines[name] = cells
            if self.most[name]:
                lines[f"{name}, most"] = self.most[name]
        return pd.DataFrame.from_dict(lines, orient="index").rename_axis("draw").fillna("")

    @cached_property
    def notes(self) -> list[str]:
        """Sentences below the table of draws: methods, noise, preparation, earlier releases, the account."""
        from marginweave.forecast.earlier import earlier_forecast

        sentences = [*earlier_forecast(self.request), *self.account.sentences]
        return [*self.public_notes, *self.pair_notes, *map(str, sentences)]

    @cached_property
    def public_notes(self) -> list[str]:
        """Sentences that follow from the configuration alone: methods, noise, preparation."""
        from marginweave.forecast import accuracy, delta, noise, sizes

        forecasts = (
            delta.delta_forecast,
            noise.observer_forecast,
            noise.combinations_forecast,
            noise.noise_forecast,
            noise.rounds_forecast,
            noise.preparation_forecast,
            noise.known_forecast,
            sizes.bins_forecast,
            accuracy.method_forecast,
        )
        sentences: list[Sentence] = []
        for forecast_of in forecasts:
            sentences += forecast_of(self.configuration)
        return list(map(str, sentences))

    @cached_property
    def pair_notes(self) -> list[str]:
        """Sentences on the pairs of columns that will not be measured, and on what is not claimed of a population."""
        from marginweave.forecast.missing_pairs import pairs_forecast, population_forecast

        sentences = [*pairs_forecast(self.configuration), *population_forecast(self.configuration)]
        return list(map(str, sentences))

    @cached_property
    def account(self) -> AccountForecast:
        """Answer of the ledger to the release."""
        from marginweave.forecast.account import account_forecast

        return account_forecast(self.request, self.schedule)

    @cached_property
    def sizes(self) -> list[SizeForecast]:
        """Forecasts of what it will be good for, by the number of rows."""
        from marginweave.forecast.sizes import size_forecast

        return size_forecast(self.configuration)

    @property
    def good_for(self) -> list[str]:
        """Lines of these forecasts, with the time a run takes; none where sizes of domains are not public."""
        if not self.sizes:
            return []
        return [
            str(plan_sentence("good-for.errors")),
            *aligned(size_rows(self.sizes)),
            *self.size_notes,
        ]

    @property
    def size_notes(self) -> list[str]:
        """Sentences below the forecasts: pairs that are mostly noise, conditions of the time, and what rows would change."""
        from marginweave.forecast.sizes import declared_forecast

        notes = [
            plan_sentence("sizes.noisy", rows=size.rows, noisy=size.noise)
            for size in self.sizes
            if size.noise is not None
        ]
        notes.append(self._time())
        say_rows = declared_forecast(self.configuration)
        if say_rows is not None:
            notes.append(say_rows)
        return list(map(str, notes))

    def _time(self) -> Sentence:
        """Return the conditions of the time that a run takes, and the rules that can make it longer."""
        from marginweave.base.parallel import available_cores
        from marginweave.forecast.cost import SERVER, tied_columns

        columns = tied_columns(self.configuration)
        key = "sizes.time-ties" if columns else "sizes.time"
        return plan_sentence(
            key, cores=available_cores(), server=SERVER, columns=", ".join(columns)
        )

    def __repr__(self) -> str:
        return "\n".join(
            [
                self.heading,
                *aligned(draw_rows({"": self})),
                self.ending,
                *self.notes,
                *self.good_for,
            ]
        )

    def _repr_html_(self) -> str:
        from html import escape

        notes = "".join(f"<p>{escape(line)}</p>" for line in (self.ending, *self.notes))
        sizes = escape("\n".join(self.good_for))
        return f"<p>{escape(self.heading)}</p>{self.frame.to_html()}{notes}<pre>{sizes}</pre>"


_HEADS = {
    "noise": "draws.noise",
    "share of budget": "draws.share",
    "typical error": "draws.error",
    "of all rows": "draws.of-rows",
    "of a mean count": "draws.of-mean",
    "least count": "draws.threshold",
}
"""Keys of the heads of the columns, by their names in a frame and in JSON."""


def _cells(row: DrawForecast, errors: Mapping[str, RelativeErrors] | None) -> dict[str, str]:
    """Return the cells of a draw, by the names of their columns; `errors` are None where the number of rows is not public."""
    share = str(plan_sentence("draw.share", share=Share(row.share)))
    cells = {"noise": str(row.noise), "share of budget": share, "typical error": str(row.error)}
    if errors is not None:
        relative = errors.get(row.name, RelativeErrors(None, None))
        cells["of all rows"] = (
            "" if relative.of_rows is None else str(relative.of_rows.sentences[0])
        )
        cells["of a mean count"] = (
            "" if relative.of_mean is None else str(relative.of_mean.sentences[0])
        )
    cells["least count"] = row.threshold
    return cells


def _most_cells(row: DrawForecast, errors: Mapping[str, RelativeErrors] | None) -> dict[str, str]:
    """Return the cells of the noisiest table of a draw, those that differ from `_cells`; none where nothing does."""
    cells: dict[str, str] = {}
    if row.most_noise is not None and row.most_error is not None:
        cells |= {"noise": str(row.most_noise), "typical error": str(row.most_error)}
    relative = (errors or {}).get(row.name, RelativeErrors(None, None))
    for column, span in (("of all rows", relative.of_rows), ("of a mean count", relative.of_mean)):
        least, most = ("", "") if span is None else map(str, span.sentences)
        if least != most:
            cells[column] = most
    if row.private_threshold:
        cells["least count"] = str(
            plan_sentence("draw.private-threshold", threshold=row.private_threshold)
        )
    return cells


def draw_rows(plans: Mapping[str, PlannedRelease]) -> list[list[str]]:
    """Return a head, and one or two lines for each draw of each plan, a number a cell.

    Columns in which no draw has anything are left out.
    """
    draws = [name for plan in plans.values() for name in plan.draws]
    all_cells = [cells for plan in plans.values() for cells in plan.draws.values()]
    columns: list[str] = []
    for cells_of_draw in all_cells:
        for column in cells_of_draw:
            if column not in columns and any(cells.get(column) for cells in all_cells):
                columns.append(column)
    has_sides = len(plans) > 1
    head = str(plan_sentence("draws.draw"))
    table = [
        _row(head, "", {column: str(plan_sentence(_HEADS[column])) for column in columns}, columns)
    ]
    for name in dict.fromkeys(draws):
        for side, plan in plans.items():
            if name not in plan.draws:
                continue
            table.append(_row(name, side, plan.draws[name], columns))
            if plan.most[name]:
                table.append(_row(str(plan_sentence("draws.most")), side, plan.most[name], columns))
    return table if has_sides else [[row[0], *row[2:]] for row in table]


def _row(name: str, side: str, cells: Mapping[str, str], columns: Sequence[str]) -> list[str]:
    """Return a line of the table of draws: its name, the plan that it is of, and its cells."""
    return [name, side, *(cells.get(column, "") for column in columns)]


def size_rows(sizes: Sequence[SizeForecast]) -> list[list[str]]:
    """Return a head with the numbers of rows, and a line for each figure that any of them has, a number a cell."""

    def line(key: str, values: Iterable[object]) -> list[str]:
        return [
            str(plan_sentence(f"good-for.{key}")),
            *("" if value is None else str(value) for value in values),
        ]

    table = [
        line("with", [plan_sentence("good-for.rows", rows=size.rows) for size in sizes]),
        line("single", [size.single for size in sizes]),
        line("pairs", [size.pairs for size in sizes]),
        line("chosen", [size.most_chosen for size in sizes]),
    ]
    not_measured = plan_sentence("size.not-measured")
    if all(size.errors is None for size in sizes):
        table.append(line("records", [not_measured for _ in sizes]))
    else:
        for key, place in (("record-pairs", 0), ("record-triples", 1)):
            cells = [
                (not_measured, None, None) if size.errors is None else size.errors[place].cells
                for size in sizes
            ]
            table += list(map(line, (key, "from", "to"), zip(*cells, strict=True)))
    takes = [(not_measured, None, None) if size.cost is None else size.cost.cells for size in sizes]
    table += list(map(line, ("time", "cpu", "memory"), zip(*takes, strict=True)))
    return [row for row in table if any(row[1:])]
