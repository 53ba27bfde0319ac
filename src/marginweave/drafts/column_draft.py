"""Holds the proposal for one column, and what all kinds of proposals share. Private until somebody confirms it. DP: none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

MOST_VALUES = 50
"""A column with more distinct values is drafted without a list of them."""
FEW_NUMBERS = 12
"""At most this many distinct numbers are taken for names of groups."""
STEPS = 20
"""Bounds are at least this many steps of their grid apart."""
ODD = "a text is among the {}; is it no value?"


@dataclass(frozen=True)
class ColumnDraft:
    """A proposal for one column: its kind, what to declare about it, and a remark for the steward.

    `public` says where that is published; without it the column waits for the steward to confirm it.
    """

    type: str
    facts: dict[str, Any] = field(default_factory=dict)
    remark: str = ""
    public: str | None = None
    value_cells: Sequence[int] = field(default=(), compare=False, repr=False)
    """Of a private domain the number of cells of each value. Private: never written."""
    group: str = field(default="", compare=False)
    """Of a private domain how its values could be grouped, in words."""

    @property
    def is_private(self) -> bool:
        """Return whether its domain is private: then only the fact that it has many values comes from the data."""
        return self.facts.get("domain") == "private"

    @property
    def waits(self) -> bool:
        """Return whether the column waits for the steward to confirm it: a private domain has nothing to confirm."""
        return not self.is_private and self.public is None


def plain(value: Decimal | float) -> int | float:
    """Return a finite number as people write it: 5 and not 5.0."""
    return int(value) if value == int(value) else float(value)
