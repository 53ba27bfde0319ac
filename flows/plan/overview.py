"""What is known of a release from its configuration alone, as one value: a line a draw, and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from marginweave.flows.plan.accuracy import relative_errors
from marginweave.flows.plan.noise import forecast
from marginweave.schemas.configuration.release import Configuration

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, repr=False)
class PlannedRelease:
    """The plan of a release: noise, share of the budget, typical error and least count of each of its draws.

    Nothing is read but the configuration, and nothing is charged. `draws` has the cells of the table by the name of a draw,
    `epsilon` is what all draws have together at the release's delta.
    """

    configuration: Configuration
    draws: dict[str, dict[str, str]]
    epsilon: float

    @classmethod
    def of(cls, configuration: Configuration) -> PlannedRelease:
        """The plan of a configuration."""
        drawn, epsilon = forecast(configuration)
        errors = relative_errors(configuration, configuration.rows) if configuration.rows else {}
        draws = {}
        for row in drawn:
            draws[row.name] = {
                "noise": row.noise,
                "share of budget": f"{100 * row.share:.1f} %",
                "typical error": row.error,
            }
            if configuration.rows:
                beside = errors.get(row.name, ("", ""))
                draws[row.name] |= dict(zip(("of all rows", "of a mean count"), beside, strict=True))
            draws[row.name]["least count"] = row.threshold
        return cls(configuration=configuration, draws=draws, epsilon=epsilon)

    @property
    def heading(self) -> str:
        """What is asked for: dataset, epsilon, delta and unit."""
        configuration, privacy = self.configuration, self.configuration.privacy
        return (
            f"{configuration.dataset}: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, "
            f"one {privacy.unit_words}, {privacy.neighbors}, accountant {privacy.accountant}"
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
        """What there is to say beside the table, a sentence each: methods, noise, preparation, measured errors."""
        from marginweave.flows.plan import accuracy, noise, sizes

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
        return [line for forecast in forecasts for line in forecast(self.configuration)]

    def __repr__(self) -> str:
        rows = [
            ["draw", *next(iter(self.draws.values()))],
            *([name, *row.values()] for name, row in self.draws.items()),
        ]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([self.heading, *lines, self.ending])

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(self.heading)}</p>{self.frame.to_html()}<p>{escape(self.ending)}</p>"
