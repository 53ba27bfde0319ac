"""Draws in the ledger: begun, committed, lost or given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.states import State
from marginweave.tasks.ledger.core import LedgerCore, now
from marginweave.tasks.ledger.moves import NO_FACTS, Expired, check_lease, expire, move_draw, take_lease


class Drawing(LedgerCore):
    """The methods of the ledger that move one draw from state to state; asked again under its own lease, each is content."""

    def take_lease(self, release_id: str, lease: str) -> None:
        """Make `lease`, a fresh name, the one attempt at the release: every earlier one is shut out from here on.

        Raises:
            BudgetError: no such release, one that is published, or a lease that was used before another one.
        """
        with self._writing() as journal:
            take_lease(journal, release_id, lease, now=now())

    def check_lease(self, release_id: str, lease: str) -> None:
        """Refuse an attempt that was taken over.

        Raises:
            BudgetError: no such release, or another lease is the current one.
        """
        check_lease(self._known(release_id), lease)

    def begin_draw(self, release_id: str, name: str, lease: str, facts: Mapping[str, str] = NO_FACTS) -> None:
        """RESERVED → DRAWN: the intent to draw, before any noise is made. One lease succeeds, ever; its row has the `facts`.

        Raises:
            BudgetError: the draw is in any other state, was begun by this lease with other facts, or the lease is not the
                current one.
        """
        with self._writing(charging=True) as journal:
            move_draw(journal, release_id, name, State.DRAWN, now=now(), lease=lease, facts=facts)

    def commit_draw(self, release_id: str, name: str, lease: str, digest: str, *, tainted: bool) -> None:
        """DRAWN → COMMITTED, by the current lease, which has drawn or adopts; `digest` is the stored draw's keyed digest.

        Raises:
            BudgetError: another state, a lease that is not the current one, or a tainted draw (from a test's generator).
        """
        if tainted:
            raise BudgetError(
                f"draw {name} of release {release_id} is tainted: its noise is not from the operating system"
            )
        self._move(release_id, name, State.COMMITTED, lease=lease, digest=digest)

    def lose_draw(self, release_id: str, name: str, lease: str) -> None:
        """DRAWN → CHARGED_LOST, by the current lease: the draw is gone and its charge stays.

        Raises:
            BudgetError: another state, or a lease that is not the current one.
        """
        self._move(release_id, name, State.CHARGED_LOST, lease=lease)

    def give_back(self, release_id: str, names: Sequence[str]) -> None:
        """RESERVED → RETURNED for draws that were never begun; all of them or none.

        Raises:
            BudgetError: one of them is in another state.
        """
        with self._writing() as journal:
            for name in names:
                move_draw(journal, release_id, name, State.RETURNED, now=now())

    def expire(self, older_than: timedelta, release: str | None = None) -> Expired:
        """Give back what is RESERVED in releases of which nothing was written for so long.

        What was begun stays charged: expiry is from RESERVED only, where it is certain that no noise was drawn. A release of
        which a draw was begun is left alone unless it is the `release` that is named: it could not be finished afterwards. So
        is one whose run is not below the home that is a witness: it may have seen more than this ledger knows.

        Raises:
            InputError: a negative age.
            BudgetError: no such release.
        """
        if older_than < timedelta(0):
            raise InputError("older-than must not be negative")
        with self._writing() as journal:
            return expire(journal, now() - older_than, release=release, is_here=self._is_here, now=now())

    def _is_here(self, run: str) -> bool:
        return self._witness is None or self._witness.has(run)

    def _move(self, release_id: str, name: str, target: State, *, lease: str, digest: str | None = None) -> None:
        with self._writing() as journal:
            move_draw(journal, release_id, name, target, now=now(), lease=lease, digest=digest)
