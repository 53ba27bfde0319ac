"""Records of a column whose texts have units are numbers, whatever type the texts of the source have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from marginweave.base.arrow import cell_type
from marginweave.columns import values_of
from marginweave.configuration.columns import NumberColumn


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_numbers_with_a_unit_are_numbers_alone(kind: pa.DataType) -> None:
    """Without `text` they are texts, as in the source."""
    number = {"type": "number", "bounds": [0, 9], "bins": 3, "decimals": 0}
    numbers = pa.array([1, None, 9])
    for text, expected in (({"unit": "kg"}, pa.int64()), (None, kind)):
        column = NumberColumn.model_validate({**number, "text": text})
        values = values_of(column, (), None, kind)
        typed = values.typed(numbers, column.labels)
        assert cell_type(typed.type) == cell_type(expected)
    assert typed.cast(pa.string()).to_pylist() == ["1", None, "9"]
