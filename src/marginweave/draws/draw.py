"""How a stage draws: through the ledger, under the lease of its run, by the parameters that were reserved."""

from __future__ import annotations

from collections.abc import Callable

from marginweave.accounting.records import DrawRecord, State
from marginweave.base.errors import StageError
from marginweave.draws.protocol import PreparedDraw, draw_record, forgotten, run_draw
from marginweave.draws.references import RunReference, StageResult
from marginweave.measurements.plan import PlannedDraw


def draw_once(
    reference: RunReference, draw: PlannedDraw, prepare: Callable[[], PreparedDraw] | None = None
) -> tuple[bytes, StageResult]:
    """The bytes and the place of a planned draw: made now from what `prepare` returns, or committed already; charged once.

    Nothing is prepared for a draw that is committed. What is used is compared with what was reserved before anything is
    charged: no draw is noisier or less noisy than its row.
    DP: the planned cost of the draw, one ledger event.

    Raises:
        StageError: without `prepare`, a draw that is not committed; or one that would be drawn by other terms than its row's.
        InputError, BudgetError: as `run_draw`.
    """
    name = str(draw)
    prepared = None
    if prepare is not None:
        before = standing(reference, draw)
        if before.state != State.COMMITTED:
            prepared = prepare()
            _check_terms(before, prepared)
    payload, record = run_draw(
        reference.ledger.draws, reference.draws, reference.secrets, reference.attempt, name, prepared
    )
    if record.digest is None:
        raise forgotten(reference.attempt.release, name)
    file = reference.draws.place(record.name, record.lease or "")
    return payload, StageResult(
        stage=name, address=name, file=f"private/draws/{file.name}", digest=record.digest, charged=(name,)
    )


def draw_unless_returned(
    reference: RunReference,
    draw: PlannedDraw,
    empty: Callable[[], bytes],
    prepare: Callable[[], PreparedDraw] | None = None,
) -> tuple[bytes, StageResult]:
    """As `draw_once`; of a draw whose share went back to the account, a derived checkpoint of what `empty` returns."""
    if standing(reference, draw).state != State.RETURNED:
        return draw_once(reference, draw, prepare)
    result = reference.derived.checkpoint(str(draw), [], empty)
    return reference.derived.load(result), result


def standing(reference: RunReference, draw: PlannedDraw) -> DrawRecord:
    """The ledger's record of a planned draw, as it is now."""
    return draw_record(reference.ledger.draws, reference.attempt.release, str(draw))


def is_committed(reference: RunReference, draw: PlannedDraw) -> bool:
    """Whether a draw is there already."""
    return standing(reference, draw).state == State.COMMITTED


def _check_terms(draw: DrawRecord, prepared: PreparedDraw) -> None:
    other = [name for name, value in prepared.used.items() if name in draw.terms and draw.terms[name] != value]
    if other:
        raise StageError(
            f"draw {draw.name} would be drawn with another {', '.join(sorted(other))} than was reserved; nothing was drawn"
        )
