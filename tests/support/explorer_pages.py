"""Explorer pages of made-up releases, and when a browser has brought one up to date."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from marginweave.publish.explorer import render_explorer
from tests.support.browser import Browser
from tests.support.firefox import Firefox
from tests.support.published import Codes, published, shown

_BUSY = "return document.getElementById('attributes').ariaBusy"


def settle(browser: Browser | Firefox) -> None:
    """Wait until every block is up to date."""
    until = time.monotonic() + 30
    while browser.run(_BUSY) != "false":
        assert time.monotonic() < until


def large_page(columns: int, records: int) -> str:
    """The page of so many records of `columns` columns of a few values each, and of one of 3,000."""
    declared: dict[str, Any] = {
        f"c{j}": {"type": "category", "values": [f"v{v}" for v in range(4 + j % 5)]}
        for j in range(columns)
    }
    declared["many"] = {"type": "category", "values": [f"w{v}" for v in range(3000)]}
    small, _ = published(
        _codes(declared, 400), drop=10**9, columns=declared, aggregate__reporting_length=1
    )
    return render_explorer(small, shown(small, _codes(declared, records)))


def _codes(columns: dict[str, Any], count: int) -> Codes:
    rng = np.random.default_rng(3)
    kinds = (np.uint8 if len(column["values"]) < 255 else np.uint16 for column in columns.values())
    return [
        rng.integers(0, len(column["values"]), count).astype(kind)
        for column, kind in zip(columns.values(), kinds, strict=True)
    ]
