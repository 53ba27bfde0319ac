"""Rules that `marginweave init` drafted from the data, until the user confirms each of them."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from marginweave.base.errors import UnconfirmedError
from marginweave.configuration.values import Confirm, FrozenModel

WAITS = (
    "was drafted and waits for confirmation: is it so by definition, and not in this table alone? Delete confirm: true, or "
    "delete the entry"
)


class DraftedRule(FrozenModel):
    """A rule; `confirm: true` marks one that holds in the data, and that nobody has called public yet."""

    confirm: Confirm = None

    @model_validator(mode="after")
    def _check_confirmed(self) -> Self:
        if self.confirm:
            raise UnconfirmedError(WAITS)
        return self
