"""A private line of a draft keeps nothing that was read from the data until it says where that is published."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from tests.support.configurations import configuration

TOWN = {"type": "category", "domain": "private"}
INCOME = {"type": "number", "bounds": "private", "within": [0, 1e6], "bins": 10}
SIGNS = {"type": "set", "domain": "private", "max_values": 2}


@pytest.mark.parametrize(
    ("column", "facts", "kept"),
    [
        (TOWN, {"missing": ["", "secret"]}, "missing"),
        (TOWN, {"missing": []}, "missing"),
        (INCOME, {"missing": ["", "secret"], "decimals": 2}, "missing, decimals"),
        (INCOME, {"decimals": 0}, "decimals"),
        (SIGNS, {}, "max_values"),
        (SIGNS, {"separator": "|", "missing": ["NA"]}, "missing, separator, max_values"),
    ],
)
def test_a_private_line_that_waits_holds_no_fact(column: dict[str, Any], facts: dict[str, Any], kept: str) -> None:
    """Refused by the names of its keys, never by what they hold; published, the same line is accepted."""
    with pytest.raises(InputError, match=rf"columns\.x is private, and still has {kept} as drafted") as refusal:
        configuration(columns__x={**column, **facts, "confirm": True})
    assert "secret" not in str(refusal.value)
    assert configuration(columns__x={**column, **facts, "public": "the code list"}).columns["x"].public


@pytest.mark.parametrize("column", [TOWN, INCOME, {**TOWN, "missing": [""]}, {**INCOME, "missing": [" "]}])
def test_a_private_line_with_its_kind_alone_runs(column: dict[str, Any]) -> None:
    accepted = configuration(columns__x={**column, "confirm": True})
    assert Configuration.from_canonical(accepted.canonical()) == accepted
