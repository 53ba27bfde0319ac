"""Settings of evaluation, expectations and publication: checks before a release is published, and files that are kept."""

from __future__ import annotations

from typing import Literal

from marginweave.configuration.columns import Texts
from marginweave.configuration.values import FrozenModel, Words


class EvaluationSettings(FrozenModel):
    """Settings of the evaluation. `internal` also compares with the sensitive table; the result never leaves `internal/`.

    `ordered` are categories whose values are declared in their order: rank correlations include them, as numbers and dates.
    """

    internal: bool = False
    ordered: Texts | None = None


class ExpectationSettings(FrozenModel):
    """Great Expectations suites (files, relative to the configuration) for the raw input and the synthetic output."""

    input: str | None = None
    output: str | None = None


class PublishSettings(FrozenModel):
    """Settings of publication. `keep_private` keeps the sensitive checkpoints of a finished run instead of purging them.

    Where `approval` is required, a person must approve the release before it is published. `publisher`, `contact` and
    `license` are for readers of the release: report.html and croissant.json have them.
    """

    keep_private: bool = False
    approval: Literal["required"] | None = None
    publisher: Words | None = None
    contact: Words | None = None
    license: Words | None = None
