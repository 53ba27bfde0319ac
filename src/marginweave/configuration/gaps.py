"""Whether a synthetic table can lack values."""

from __future__ import annotations

from marginweave.configuration.columns import ConstantColumn
from marginweave.configuration.release import Configuration


def has_gaps(configuration: Configuration, name: str) -> bool:
    """Whether the synthetic table can lack a value of the column, whatever is drawn."""
    incomplete = not configuration.synthesize.complete and not isinstance(configuration.columns[name], ConstantColumn)
    return incomplete or configuration.can_be_missing(name)
