"""What an older version made is known by the number of its format."""

from __future__ import annotations

import pytest

from marginweave.base.formats import LAST_READER, older_fault


@pytest.mark.parametrize("number", [None, 0, 2, "3", "0005"])
def test_a_smaller_number_or_none_is_of_an_older_version(number: object) -> None:
    fault = f"the ledger was made by an older version; {LAST_READER} is the last that reads it"
    assert older_fault("the ledger", number, 3) == fault


@pytest.mark.parametrize("number", [3, 4])
def test_the_number_of_today_and_a_later_one_are_not(number: int) -> None:
    assert older_fault("the ledger", number, 3) is None
