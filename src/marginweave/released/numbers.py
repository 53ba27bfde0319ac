"""Means and quantiles of number columns, as both evaluations have them."""

from __future__ import annotations

from pydantic import Field

from marginweave.released.contract import Described


class NumberStatistic(Described):
    """A statistic of a number column, in its unit; missing values are left out."""

    quantile: float | None = Field(
        description="Probability of the quantile, 0.5 of the median; null for the mean."
    )
    released: float | None = Field(
        description="By the released counts, values inside a bin where draw puts them; null without any."
    )
    low: float | None = Field(
        description="Lower end of the 95 % interval for the rows as prepared, wherever values lie inside bins; null if unknown."
    )
    high: float | None = Field(description="Upper end of this interval; null if unknown.")
    synthetic: float | None = Field(
        description="Of the synthetic records, a quantile to a 256th of its bin; null without any."
    )


class NumberSummary(Described):
    """The mean and some quantiles of one number column."""

    column: str = Field(description="Name of the column.")
    statistics: tuple[NumberStatistic, ...] = Field(description="The mean, then quantiles.")


class ExactStatistic(Described):
    """A statistic of a number column of both tables, in its unit; missing values are left out."""

    quantile: float | None = Field(
        description="Probability of the quantile, 0.5 of the median; null for the mean."
    )
    sensitive: float | None = Field(
        description="Of the sensitive rows, a quantile to a 256th of its bin."
    )
    synthetic: float | None = Field(description="Of the synthetic records, likewise.")


class ExactSummary(Described):
    """The mean and some quantiles of one number column of both tables."""

    column: str = Field(description="Name of the column.")
    statistics: tuple[ExactStatistic, ...] = Field(description="The mean, then quantiles.")
