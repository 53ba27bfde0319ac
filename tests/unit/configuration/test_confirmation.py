"""A private line of a draft keeps nothing that was read from the data until it says where that is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.load import load_configuration
from marginweave.configuration.release import Configuration
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
        (INCOME, {"codes": {"-9": "secret"}}, "codes"),
        (INCOME, {"text": {"unit": "secret"}}, "text"),
        (SIGNS, {}, "max_values"),
        (SIGNS, {"separator": "|", "missing": ["NA"]}, "missing, separator, max_values"),
    ],
)
def test_a_private_line_that_waits_holds_no_fact(
    column: dict[str, Any], facts: dict[str, Any], kept: str
) -> None:
    """Refused by the names of its keys, never by what they hold; published, the same line is accepted."""
    with pytest.raises(
        InputError, match=rf"columns\.x is private, and still has {kept} as drafted"
    ) as refusal:
        configuration(columns__x={**column, **facts, "confirm": True})
    assert "secret" not in str(refusal.value)
    assert (
        configuration(columns__x={**column, **facts, "public": "the code list"}).columns["x"].public
    )


@pytest.mark.parametrize(
    "column", [TOWN, INCOME, {**TOWN, "missing": [""]}, {**INCOME, "missing": [" "]}]
)
def test_a_private_line_with_its_kind_alone_runs(column: dict[str, Any]) -> None:
    accepted = configuration(columns__x={**column, "confirm": True})
    assert Configuration.from_canonical(accepted.canonical()) == accepted


def test_all_that_waits_is_named_with_its_line(tmp_path: Path) -> None:
    """Ten of twelve, by line; what else is wrong is counted apart. One question alone is its own message."""
    names = [f"c{i:02d}" for i in range(11)]
    lines = [
        "dataset: d",
        "source: d.csv",
        "privacy:",
        "  confirm: true",
        "  unit: row",
        "  epsilon: 1",
        "  delta: 0",
        "columns:",
    ]
    lines += [f"  {name}: {{type: category, values: [a, b], confirm: true}}" for name in names]
    (tmp_path / "d.yaml").write_text("\n".join(lines))
    with pytest.raises(InputError) as refused:
        load_configuration(tmp_path / "d.yaml")
    named = ", ".join(f"columns.{name} (line {9 + i})" for i, name in enumerate(names[:9]))
    assert str(refused.value).endswith(
        f". 12 questions are open: privacy (line 3), {named}, … (12 in all)"
    )
    assert " more)" not in str(refused.value)
    (tmp_path / "d.yaml").write_text(
        "\n".join(line for line in lines if "confirm" not in line or "c03" in line)
    )
    with pytest.raises(InputError, match=r"^columns\.c03 was drafted.*or make it private$"):
        load_configuration(tmp_path / "d.yaml")
