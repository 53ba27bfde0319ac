"""The pages of a release, from what is in it alone: written with it, and written anew from a published one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.schemas.errors import InputError
from marginweave.tasks.publish.explore import render_explorer
from marginweave.tasks.publish.reader import PublishedRelease
from marginweave.tasks.publish.records import record_codes
from marginweave.tasks.publish.report import render_report


def release_pages(published: PublishedRelease, synthetic: pa.Table, evaluation: Mapping[str, Any]) -> dict[str, bytes]:
    """report.html and explore.html of a release, its synthetic records and its evaluation. DP: post-processing."""
    codes = record_codes(synthetic, published.aggregates.domain, published.configuration)
    pages = {
        "report.html": render_report(published, codes, evaluation),
        "explore.html": render_explorer(published, codes),
    }
    return {name: page.encode() for name, page in pages.items()}


def read_pages(place: Path) -> dict[str, bytes]:
    """`release_pages` of the release in folder `place`; the bytes that were published with it. DP: post-processing.

    Raises:
        InputError: it is not there, or not complete.
    """
    return release_pages(*_read(place))


def internal_report(place: Path, internal: Mapping[str, Any]) -> bytes:
    """The report of the release in folder `place` with the comparison `internal` in it. DP: none: for `internal/` only.

    Raises:
        InputError: it is not there, or not complete.
    """
    published, synthetic, evaluation = _read(place)
    codes = record_codes(synthetic, published.aggregates.domain, published.configuration)
    return render_report(published, codes, evaluation, internal).encode()


def _read(place: Path) -> tuple[PublishedRelease, pa.Table, dict[str, Any]]:
    published = PublishedRelease.read(place)
    try:
        synthetic = pq.read_table(place / "synthetic.parquet")
        evaluation: dict[str, Any] = json.loads((place / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{place} does not hold a complete release (synthetic.parquet and evaluation.json)") from None
    return published, synthetic, evaluation
