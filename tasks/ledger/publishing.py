"""What must hold before a release is published or corrects another, and the rows that say so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from marginweave.schemas.errors import BudgetError, InputError
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.releases import ReleaseRecord
from marginweave.schemas.ledger.states import State


def check_settled(record: ReleaseRecord) -> None:
    """Refuse a release with draws whose fate is open.

    Raises:
        BudgetError: a draw is neither committed, returned nor lost.
    """
    pending = [draw.name for draw in record.draws if draw.state in {State.RESERVED, State.DRAWN}]
    if pending:
        raise BudgetError(
            f"release {record.release} is not finished: {', '.join(pending)} must be committed or given back"
        )


def check_correction(dataset: str, supersedes: str | None, releases: Mapping[str, ReleaseRecord]) -> None:
    """Refuse a correction of what is not there to be corrected; None corrects nothing.

    Raises:
        InputError: no such published release in the account, or one that is corrected already.
    """
    if supersedes is None:
        return
    old = releases.get(supersedes)
    if old is None or old.dataset != dataset or not old.outputs:
        raise InputError(f"release {supersedes} is not a published release of account {dataset}")
    if old.superseded_by is not None:
        raise InputError(
            f"run {old.run} is superseded already, by run {releases[old.superseded_by].run}: correct that one"
        )


def publication(
    record: ReleaseRecord,
    outputs: Mapping[str, str],
    releases: Mapping[str, ReleaseRecord],
    actor: str,
    moment: datetime,
) -> list[Event]:
    """The PUBLISHED row of a release with `outputs`, and that of the release that it supersedes, if there is one.

    Two corrections of one release may be begun: `releases`, as they stand in this transaction, say which one was first.

    Raises:
        InputError: another correction was published before.
    """
    if not record.outputs:
        check_correction(record.dataset, record.supersedes, releases)
    rows = [
        Event(
            kind=EventKind.PUBLISHED,
            actor=actor,
            created=moment,
            account=record.dataset,
            release=record.release,
            body={"outputs": dict(outputs)},
        )
    ]
    if record.supersedes is not None and not record.outputs:
        rows.append(
            Event(
                kind=EventKind.SUPERSEDED,
                actor=actor,
                created=moment,
                account=record.dataset,
                release=record.supersedes,
                body={"by": record.release},
            )
        )
    return rows
