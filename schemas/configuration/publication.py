"""What guards a release before it is published, and what is kept when it was."""

from __future__ import annotations

from typing import Literal

from marginweave.schemas.configuration.values import FrozenModel


class ExpectationSettings(FrozenModel):
    """Great Expectations suites (files, relative to the configuration) for the raw input and the synthetic output."""

    input: str | None = None
    output: str | None = None


class PublishSettings(FrozenModel):
    """`keep_private` keeps the sensitive checkpoints of a finished run instead of purging them.

    Where `approval` is required, somebody has to approve the release before it is published.
    """

    keep_private: bool = False
    approval: Literal["required"] | None = None
