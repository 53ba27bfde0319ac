"""What guards a release before it is published, and what is kept when it was."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from marginweave.schemas.configuration.values import FROZEN


class ExpectationSettings(BaseModel):
    """Great Expectations suites (files, relative to the configuration) for the raw input and the synthetic output."""

    model_config = FROZEN
    input: str | None = None
    output: str | None = None


class PublishSettings(BaseModel):
    """`keep_private` keeps the sensitive checkpoints of a finished run instead of purging them.

    Where `approval` is required, somebody has to approve the release before it is published.
    """

    model_config = FROZEN
    keep_private: bool = False
    approval: Literal["required"] | None = None
