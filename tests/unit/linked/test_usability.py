"""Linked tables that are lost stop a run, and a look says so: rows that belong to nobody, and columns that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from marginweave.base.errors import UnusableTableError
from marginweave.configuration.release import Configuration
from marginweave.flows.check.advice import Remark, Severity
from marginweave.flows.check.table import LinkedInspection, unlinked_rows
from marginweave.linked.usability import LinkedUsability
from tests.support.linked_tables import STAYS, Stay, hospital, linked_source

Rows = Sequence[tuple[str | None, Stay]]
GOOD: Rows = [("a", Stay()), ("b", Stay("emergency", "3"))] * 3


def counted(**kind: Any) -> Configuration:
    """A hospital whose stays are counted, with other declarations of their kind."""
    columns = {**STAYS["columns"], "kind": {**STAYS["columns"]["kind"], **kind}}
    return hospital(tables={"stays": {**STAYS, "columns": columns, "at_most": 2}})


def read(configuration: Configuration, stays: Rows) -> LinkedUsability:
    """What a run counts of the hospital before its first draw."""
    source = linked_source(configuration, [("a", "f"), ("b", "m")], stays)
    usability = LinkedUsability(configuration, unlinked=source.unlinked)
    source = replace(source, watch=usability.add_linked)
    flags, nested = configuration.undeclared_flags, configuration.nested_names
    for block in source.tables((*configuration.source_names, *flags, *nested)):
        usability.add(block.drop_columns(nested))
    return usability


def found(configuration: Configuration, stays: Rows) -> Iterator[tuple[str, Remark]]:
    """What a look finds of the linked table."""
    looked = LinkedInspection(configuration)
    source = linked_source(configuration, [("a", "f"), ("b", "m")], stays)
    source = replace(source, watch=looked.add)
    for _ in source.tables((*configuration.source_names, *configuration.nested_names)):
        pass
    for row in (*looked.rows(), *unlinked_rows(source)):
        yield from ((row.subject, finding) for finding in row.findings)


LOST: dict[str, tuple[Rows, str, str]] = {
    "empty": ([], "tables.stays: the table has no rows", "The table has no rows."),
    "orphans": (
        [("x", Stay()), (None, Stay())],
        "tables.stays: no row has the id of a row of the source",
        "Of 2 rows, 1 with an id that no row of the source has, and 1 without one",
    ),
    "most": (
        [*GOOD[:2], *[("x", Stay())] * 3],
        "tables.stays: fewer than half of the rows have the id of a row of the source",
        "Of 5 rows, 3 with an id that no row of the source has, and 0 without one",
    ),
    "nothing": (
        [("a", Stay("PLANNED")), ("b", Stay("P"))],
        "column 'kind' of tables.stays: no cell can be read as a declared value",
        "No cell can be read as a declared value",
    ),
    "half": (
        [("a", Stay("PLANNED")), ("b", Stay("P")), ("b", Stay())],
        "column 'kind' of tables.stays: more than half of the cells not declared missing",
        "66.7 %",
    ),
    "beyond": (
        [("a", Stay(days="75")), ("b", Stay(days="80")), ("b", Stay(days="7"))],
        "column 'days' of tables.stays: more than half of the cells not declared missing",
        "66.7 %",
    ),
}


@pytest.mark.parametrize("name", LOST)
def test_a_lost_linked_table_stops_a_run_and_a_look_says_so(name: str) -> None:
    stays, reason, said = LOST[name]
    usability = read(counted(), stays)
    with pytest.raises(UnusableTableError) as stopped:
        usability.check(usability.configuration.written)
    assert reason in str(stopped.value)
    assert "Nothing was charged" in str(stopped.value)
    assert "marginweave" not in stopped.value.in_python
    remarks = [remark for _, remark in found(counted(), stays)]
    assert any(remark.severity is Severity.STOPS and said in str(remark.text) for remark in remarks)


def test_a_linked_table_that_is_good_for_the_most_part_stops_nothing() -> None:
    stays = [*GOOD, ("x", Stay()), ("a", Stay("P"))]
    usability = read(counted(), stays)
    usability.check(usability.configuration.written)
    severities = {remark.severity for _, remark in found(counted(), stays)}
    assert severities == {Severity.LOOK}


def test_cells_outside_on_purpose_stop_nothing() -> None:
    stays = [("a", Stay("PLANNED")), ("b", Stay("P")), ("b", Stay())]
    usability = read(counted(outside="null"), stays)
    usability.check(usability.configuration.written)
    assert all(
        remark.severity is not Severity.STOPS for _, remark in found(counted(outside="null"), stays)
    )
