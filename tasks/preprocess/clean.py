"""Row-local cleaning of a table: every step looks at one cell and public constants, so it is 1-stable."""

from __future__ import annotations

import pyarrow as pa

from marginweave.schemas.configuration.release import Configuration
from marginweave.tasks.columns import values_of


def clean_table(raw: pa.Table, configuration: Configuration) -> pa.Table:
    """Clean every counted column of `raw`; missing is null.

    A category or boolean becomes a dictionary array over its public labels (a private domain: over the sorted distinct
    texts), a number float64, a date date32, a moment timestamp[s], a set a list array over such a dictionary.

    DP: 1-stable preprocessing; domains and bounds are public constants, one row in is one row out.
    """
    columns = {}
    for name in configuration.names:
        kind = values_of(configuration.columns[name], configuration.missing_texts(name))
        columns[name] = kind.clean(raw.column(name).combine_chunks())
    return pa.table(columns)
