"""The names of cells without a value are no values: not of a private domain either, in which any text may be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from marginweave.columns import values_of
from marginweave.configuration.columns import Category, SetColumn
from marginweave.configuration.columns.base import RESERVED


@pytest.mark.parametrize("label", sorted(RESERVED))
def test_a_discovered_text_that_is_a_name_of_cells_without_a_value_is_none(label: str) -> None:
    category = Category.model_validate({"type": "category", "domain": "private"})
    clean = values_of(category, ()).clean(pa.array(["a", label, f" {label} "]))
    assert clean.dictionary.to_pylist() == ["a"]
    assert clean.to_pylist() == ["a", None, None]
    several = SetColumn.model_validate(
        {"type": "set", "separator": ";", "domain": "private", "max_values": 2}
    )
    assert values_of(several, ()).clean(pa.array([f"a;{label}"])).to_pylist() == [["a"]]
