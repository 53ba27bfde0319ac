"""What an older version made is known by the number of its format."""

from __future__ import annotations

import pytest

from marginweave.base.formats import LAST_READER, older_fault


@pytest.mark.parametrize("found", [None, 0, 2, "3", "0005"])
def test_a_smaller_number_or_none_is_of_an_older_version(found: object) -> None:
    said = f"the ledger was made by an older version; {LAST_READER} is the last that reads it"
    assert older_fault("the ledger", found, 3) == said


@pytest.mark.parametrize("found", [3, 4])
def test_the_number_of_today_and_a_later_one_are_not(found: int) -> None:
    assert older_fault("the ledger", found, 3) is None
