"""The benchmark of cells that are not as declared makes the tables that it says it makes."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.tables import Table
from benchmarks.accuracy.undeclared import with_undeclared

TABLE = Table(
    header=("rate_marriage", "educ"),
    rows=[["1", "9" if i % 2 else "12"] for i in range(40)],
    domain={"rate_marriage": ["1"], "educ": ["12", "9"]},
)


@pytest.mark.parametrize("together", [False, True])
def test_a_share_of_the_cells_is_undeclared(together: bool) -> None:
    """A quarter of all: spread over both groups, or in the first one alone."""
    made = with_undeclared(TABLE, "affairs", 0.25, together=together)
    changed = [row for row in made.rows if row[0] not in TABLE.domain["rate_marriage"]]
    assert len(changed) == 10
    assert {row[1] for row in changed} == ({"12"} if together else {"9", "12"})
    assert with_undeclared(TABLE, "affairs", 0.0, together=together).rows == TABLE.rows
