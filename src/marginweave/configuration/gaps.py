"""Whether a synthetic table can lack values."""

from __future__ import annotations

from marginweave.configuration.columns import ConstantColumn, MeasuredColumn
from marginweave.configuration.release import Configuration


def has_gaps(configuration: Configuration, name: str) -> bool:
    """Whether the synthetic table can lack a value of the column, whatever is drawn.

    Of a private domain it may be that no value is released: then all cells of the column are empty.
    """
    column = configuration.columns[name]
    incomplete = not configuration.synthesize.complete and not isinstance(column, ConstantColumn)
    hidden = isinstance(column, MeasuredColumn) and column.private
    return incomplete or hidden or configuration.can_be_missing(name)
