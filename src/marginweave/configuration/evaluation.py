"""What guards a release before it is published, what is compared after it, and what is kept."""

from __future__ import annotations

from typing import Literal

from marginweave.configuration.columns import Texts
from marginweave.configuration.values import FrozenModel, Words


class EvaluationSettings(FrozenModel):
    """`internal` also compares with the sensitive table; the result never leaves `internal/`.

    `ordered` are categories whose values are declared in their order: rank correlations take them in, beside numbers and dates.
    """

    internal: bool = False
    ordered: Texts | None = None


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
