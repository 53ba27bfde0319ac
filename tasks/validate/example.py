"""Sources that come with an installed package: `example:affairs`."""

from __future__ import annotations

import pyarrow as pa

from marginweave.schemas.errors import InputError

EXAMPLES = ("affairs",)


def read_example(name: str) -> pa.Table:
    """The table of `example:NAME`; `affairs` is the survey of Fair (1978), 6366 x 9, from statsmodels.

    Raises:
        InputError: no such example, or statsmodels is not installed.
    """
    if name not in EXAMPLES:
        raise InputError(f"source (example:{name}) must be one of {', '.join('example:' + e for e in EXAMPLES)}")
    try:
        from statsmodels.datasets import fair
    except ImportError:
        raise InputError("source (example:affairs) needs statsmodels: pip install 'marginweave[examples]'") from None
    return pa.Table.from_pandas(fair.load_pandas().data, preserve_index=False)
