"""How a door draws: through the ledger, under the lease of its run."""

from __future__ import annotations

from collections.abc import Callable

from marginweave.schemas.errors import StageError
from marginweave.schemas.ledger import DrawRecord, State
from marginweave.tasks.checkpoint.draws import SMALL, run_draw, standing_draw
from marginweave.tasks.references import RunReference, StageResult


def draw_once(
    reference: RunReference, name: str, make: Callable[[], tuple[bytes, bool]] | None = None, size: int = SMALL
) -> tuple[bytes, StageResult]:
    """One draw through the ledger, or, without `make`, one that must be committed already; its bytes and its place.

    DP: the planned cost of the draw, one ledger event.

    Raises:
        StageError: without `make`, a draw that is not committed.
        BudgetError: as `run_draw`.
    """
    if make is None and standing(reference, name).state != State.COMMITTED:
        raise StageError(f"draw {name} must be committed before a later stage reads it")
    release = reference.manifest.release
    payload = run_draw(reference.ledger, reference.draws, release, name, reference.lease, make or _never, size=size)
    draw = standing(reference, name)
    file = reference.draws.place(draw.name, draw.lease or "")
    return payload, StageResult(
        stage=name, address=name, file=f"private/draws/{file.name}", digest=draw.digest or "", charged=(name,)
    )


def standing(reference: RunReference, name: str) -> DrawRecord:
    """What answers for the planned draw `name` of the reference's release."""
    return standing_draw(reference.ledger, reference.manifest.release, name)


def _never() -> tuple[bytes, bool]:
    raise StageError("a committed draw is never made again")
