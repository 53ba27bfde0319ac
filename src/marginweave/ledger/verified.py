"""Keeps the checked rows of one release, so that a row that is read again unchanged is not checked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from marginweave.accounting.records import Event, ReleaseRecord
from marginweave.ledger.keys import LedgerKey
from marginweave.ledger.records import release_with
from marginweave.ledger.tables import check_row, event_of


@dataclass(frozen=True, kw_only=True)
class VerifiedRelease:
    """The rows of a release, oldest first, with what follows from them: their events, and the release if it was reserved.

    Rows are compared with these in full as they are read from the database: a row that was changed since differs.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    events: tuple[Event, ...] = ()
    record: ReleaseRecord | None = None

    def with_rows(self, rows: Sequence[Mapping[str, Any]], key: LedgerKey) -> VerifiedRelease:
        """Return the release that `rows` make; checks the rows after those that were checked, or all if those have changed.

        Raises:
            BudgetError: a row was changed, or the key is wrong.
        """
        checked = len(self.rows)
        # the ledger is an older copy, or a row was changed
        if list(rows[:checked]) != list(self.rows):
            return VerifiedRelease().with_rows(rows, key)
        if len(rows) == checked:
            return self
        for row in rows[checked:]:
            check_row(row, key)
        events = tuple(map(event_of, rows[checked:]))
        record = reduce(release_with, events, self.record)
        return VerifiedRelease(rows=rows, events=(*self.events, *events), record=record)
