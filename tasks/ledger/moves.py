"""The one place where a draw changes its state: compare state and lease, then append, inside one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from marginweave.schemas.errors import BudgetError
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.schemas.ledger.states import TRANSITIONS, State
from marginweave.tasks.ledger.books import releases_of
from marginweave.tasks.ledger.checks import release_in
from marginweave.tasks.ledger.journal import Journal

LEDGER_ACTOR = "marginweave"
NO_FACTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Expired:
    """Releases of which something was given back, and those left alone because their runs are not below the home."""

    returned: tuple[str, ...]
    elsewhere: tuple[str, ...]


def take_lease(journal: Journal, release_id: str, lease: str, *, now: datetime) -> None:
    """Append the row that makes `lease` the current one of the release; for the current one there is nothing to do.

    Raises:
        BudgetError: no such release, one that is published or was submitted for approval, or a lease that was used before.
    """
    record = release_in(journal, release_id)
    if record.outputs or record.proposed:
        state = "is published" if record.outputs else "was submitted for approval"
        raise BudgetError(f"release {release_id} {state}; there is nothing left to draw or to finish")
    if record.lease == lease:
        return
    if any(event.kind == EventKind.LEASED and event.lease == lease for event in journal.release_events(release_id)):
        raise BudgetError(f"the lease of an attempt at release {release_id} must be new")
    journal.append(
        Event(
            kind=EventKind.LEASED,
            actor=LEDGER_ACTOR,
            created=now,
            account=record.dataset,
            release=release_id,
            lease=lease,
        )
    )


def check_lease(record: ReleaseRecord, lease: str) -> None:
    """Refuse every attempt but the newest.

    Raises:
        BudgetError: no lease was taken, or another one since.
    """
    if record.lease is None:
        raise BudgetError(f"release {record.release} has no lease; an attempt takes one before it draws")
    if record.lease != lease:
        raise BudgetError(f"another attempt has taken over release {record.release}; this one may not go on")


def move_draw(
    journal: Journal,
    release_id: str,
    name: str,
    target: State,
    *,
    now: datetime,
    lease: str | None = None,
    digest: str | None = None,
    facts: Mapping[str, str] = NO_FACTS,
) -> None:
    """Append the row that brings draw `name` to `target`; only giving back needs no lease.

    The row keeps the lease under which the draw was begun, which names its file; who adopts it stands in the body, beside
    the `facts`. Asked again, in the same words, it finds its row and is content.

    Raises:
        BudgetError: no such release or draw, a transition that does not exist, or a lease that is not the current one.
    """
    record = release_in(journal, release_id)
    draw = record.draw(name)
    if draw is None:
        raise BudgetError(f"release {release_id} has no draw {name}")
    if target != State.RETURNED:
        check_lease(record, lease or "")
    adopted = target not in (State.DRAWN, State.RETURNED) and draw.lease != lease
    entry = Event(
        kind=EventKind(target.value),
        actor=LEDGER_ACTOR,
        created=now,
        account=record.dataset,
        release=release_id,
        draw=name,
        lease=lease if target == State.DRAWN else draw.lease,
        digest=digest,
        body={**facts, **({"by": lease} if adopted else {})},
    )
    newest = [event for event in journal.release_events(release_id) if event.draw == name][-1]
    if newest == replace(entry, created=newest.created):
        return
    if (draw.state, target) not in TRANSITIONS:
        raise BudgetError(f"draw {name} of release {release_id} is {draw.state}; it cannot become {target}")
    journal.append(entry)


def expire(
    journal: Journal,
    before: datetime,
    *,
    release: str | None = None,
    is_here: Callable[[str], bool],
    now: datetime,
) -> Expired:
    """Append the rows that give back everything RESERVED in releases whose newest row is older than `before`.

    Only where nothing was begun: such a release is reserved anew by its run. One that was begun could never be finished,
    although it stays charged, so it has to be named as `release`; then nothing else is looked at. So has one whose run is not
    here, where nobody can say what it has seen of this ledger.

    Raises:
        BudgetError: no such release.
    """
    if release is not None:
        release_in(journal, release)
    events = journal.all_events()
    newest = {event.release: event.created for event in events if event.release is not None}
    returned, elsewhere = [], []
    for name, record in releases_of(events).items():
        reserved = [draw.name for draw in record.draws if draw.state == State.RESERVED]
        begun = any(draw.state not in {State.RESERVED, State.RETURNED} for draw in record.draws)
        chosen = not begun if release is None else name == release
        if not (chosen and reserved and newest[name] < before):
            continue
        if release is None and not is_here(record.run):
            elsewhere.append(name)
            continue
        for draw in reserved:
            move_draw(journal, name, draw, State.RETURNED, now=now)
        returned.append(name)
    return Expired(returned=tuple(returned), elsewhere=tuple(elsewhere))
