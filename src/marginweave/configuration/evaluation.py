"""What guards a release before it is published, what is compared after it, and what is kept."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from marginweave.configuration.columns import Texts
from marginweave.configuration.values import FrozenModel, OpenFraction, PositiveWhole, Words

LONGEST_PAID = 3


class PaidSettings(FrozenModel):
    """A releasable comparison with the sensitive table: the mean count error of all marginals of `length` attributes.

    It has the `share` of the budget, mu², and is one planned draw like the counts.
    """

    share: OpenFraction
    length: Annotated[PositiveWhole, Field(le=LONGEST_PAID)] = 2


class EvaluationSettings(FrozenModel):
    """`internal` also compares with the sensitive table; the result never leaves `internal/`.

    `paid` buys a comparison that may leave, from the budget; nothing is bought without it.
    `target` is a column that a classifier predicts from all others in the internal evaluation. `ordered` are
    categories whose values are declared in their order: rank correlations take them in, beside numbers and dates.
    """

    internal: bool = False
    paid: PaidSettings | None = None
    target: str | None = None
    ordered: Texts | None = None

    @property
    def paid_share(self) -> float:
        """The share of the budget that buys the comparison; 0 where nothing is bought."""
        return 0.0 if self.paid is None else self.paid.share


class ExpectationSettings(FrozenModel):
    """Great Expectations suites (files, relative to the configuration) for the raw input and the synthetic output."""

    input: str | None = None
    output: str | None = None


class PublishSettings(FrozenModel):
    """`keep_private` keeps the sensitive checkpoints of a finished run instead of purging them.

    Where `approval` is required, somebody has to approve the release before it is published. `publisher`, `contact` and
    `license` are for readers of the release: report.html and croissant.json have them.
    """

    keep_private: bool = False
    approval: Literal["required"] | None = None
    publisher: Words | None = None
    contact: Words | None = None
    license: Words | None = None
