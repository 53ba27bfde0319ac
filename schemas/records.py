"""Makes the contract of the synthetic table."""

from __future__ import annotations

import pyarrow

from marginweave.columns import values_of
from marginweave.configuration.columns import ConstantColumn
from marginweave.configuration.gaps import has_gaps
from marginweave.configuration.release import Configuration

from .contracts import Contract, column_contract


def records_contract(configuration: Configuration) -> Contract:
    """Return the contract of the records: declared order and types, values of public domains, nulls only where allowed."""
    columns = {}
    for name in configuration.output_names:
        column = configuration.columns[name]
        kind = (
            pyarrow.string()
            if isinstance(column, ConstantColumn)
            else values_of(column, ()).declared_type
        )
        columns[name] = column_contract(
            kind, column.released_rules, nullable=has_gaps(configuration, name)
        )
    return Contract.of("decode", columns)
