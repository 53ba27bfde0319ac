"""Published records are the same whether they are read in blocks or at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marginweave.configuration.release import Configuration
from marginweave.evaluate.internal import published_records
from marginweave.evaluate.rules import broken_rules
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.publish.synthetic import write_synthetic
from tests.support.configurations import configuration
from tests.support.published import COLUMNS, made_records, published, table_of

PRIVATE = COLUMNS | {"region": {"type": "category", "domain": "private"}}


@pytest.mark.parametrize("count", [0, 300, 2500])
@pytest.mark.parametrize("columns", [COLUMNS, PRIVATE], ids=["public", "private"])
def test_blocks_of_published_records_are_the_table(
    tmp_path: Path, count: int, columns: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes, labels and broken rules; values of a private domain are those that occur in any block."""
    release, _ = published()
    table = table_of(release, made_records(release.configuration, 2500)).slice(0, count)
    write_synthetic(tmp_path, [table], release.configuration, {})
    given = configuration(columns=columns)
    monkeypatch.setattr(Configuration, "block_rows", 1000)
    encoded, broken = published_records(tmp_path / "synthetic.parquet", given)
    whole = encode_table(clean_table(table, given), given)
    assert encoded.labels == whole.labels
    for one, other in zip(encoded.codes, whole.codes, strict=True):
        np.testing.assert_array_equal(one, other[:, : one.shape[-1]] if other.ndim > 1 else other)
    assert broken == broken_rules(table, given)
