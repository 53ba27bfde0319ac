"""Columns of a synthetic table that can lack values."""

from __future__ import annotations

from marginweave.configuration.columns import ConstantColumn, MeasuredColumn
from marginweave.configuration.release import Configuration


def has_gaps(configuration: Configuration, name: str) -> bool:
    """Return whether the synthetic table can lack a value of the column, whatever is drawn.

    It may be that no value of a private domain is released: then all cells of the column are empty.
    """
    column = configuration.columns[name]
    if isinstance(column, MeasuredColumn) and column.private:
        return True
    if not configuration.synthesize.complete and not isinstance(column, ConstantColumn):
        return True
    return configuration.can_be_missing(name)
