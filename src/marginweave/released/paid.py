"""The part of evaluation.json that is bought from the budget."""

from __future__ import annotations

from pydantic import Field

from marginweave.released.contract import Described


class Estimate(Described):
    """A noisy value and the ends of its confidence interval, none below 0."""

    value: int | float = Field(description="The noisy value.")
    low: int | float = Field(description="Lower end of the interval.")
    high: int | float = Field(description="Upper end of the interval.")


class PaidEvaluation(Described):
    """A comparison with the sensitive table that was bought from the budget, by one noisy number."""

    metric: str = Field(description="Name of what was bought.")
    share: float = Field(description="Share of the budget that it cost, from 0 to 1.")
    length: int = Field(description="Attributes of the marginals that were compared.")
    marginals: int = Field(description="Number of these marginals.")
    deviation: float = Field(description="Standard deviation of the noise of count_error, in records.")
    level: float = Field(description="Confidence of the intervals, from 0 to 1.")
    count_error: Estimate = Field(description="Mean sum of |count - synthetic count| of a marginal, in records.")
    mean_l1: Estimate | None = Field(description="The same by the released number of records; null where that is 0.")
    tvd: Estimate | None = Field(description="Half of mean_l1: the mean distance; null where that is null.")
    about: str = Field(description="What it means and what it leaves out, in words.")
