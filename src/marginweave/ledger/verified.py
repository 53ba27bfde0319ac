"""The rows of one release as they were checked: a row that is read again as it was is not checked again."""

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

    Every row that is ever compared with these is read from the database, whole: one that was changed since is another one.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    events: tuple[Event, ...] = ()
    record: ReleaseRecord | None = None

    def with_rows(self, rows: Sequence[Mapping[str, Any]], key: LedgerKey) -> VerifiedRelease:
        """Return the release that `rows` make: rows behind those that are here are checked, or all where these are not there.

        Raises:
            BudgetError: a row was changed, or the key is wrong.
        """
        known = len(self.rows)
        if list(rows[:known]) != list(self.rows):  # other rows than before: an older copy, or a row that was changed
            return VerifiedRelease().with_rows(rows, key)
        if len(rows) == known:
            return self
        for row in rows[known:]:
            check_row(row, key)
        events = tuple(map(event_of, rows[known:]))
        return VerifiedRelease(
            rows=rows, events=(*self.events, *events), record=reduce(release_with, events, self.record)
        )
