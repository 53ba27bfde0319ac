"""Makes the contract of the clean table."""

from __future__ import annotations

from marginweave.columns import values_of
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.release import Configuration

from .contracts import Contract, column_contract


def clean_contract(configuration: Configuration) -> Contract:
    """Return the contract of the counted columns in order: their types, public labels, bounds, nulls only where allowed."""
    columns = {}
    for name in configuration.names:
        column = configuration.columns[name]
        assert isinstance(column, MeasuredColumn)
        is_filled_later = column.impute is not None or configuration.may_be_undeclared(name)
        columns[name] = column_contract(
            values_of(column, ()).clean_type,
            column.clean_rules,
            nullable=is_filled_later or configuration.lacks_values(name),
        )
    return Contract.of("preprocess", columns)
