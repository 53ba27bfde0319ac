"""Draws of a run: made through the ledger, under the run's lease, with the parameters that were reserved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

from marginweave.accounting.records import DrawRecord, State
from marginweave.base.errors import StageError
from marginweave.base.parallel import Engine
from marginweave.checkpoints.spill import scratch_folder
from marginweave.configuration.release import Configuration
from marginweave.counts.count_runs import MemoryBudget
from marginweave.counts.engine import open_engine
from marginweave.draws.protocol import PreparedDraw, draw_record, forgotten_error, run_draw
from marginweave.measurements.base import Drawn, Measurement, PrivateRows
from marginweave.prepare.clean import CleanBlocks
from marginweave.prepare.codes import EncodedBlocks
from marginweave.runs.capabilities import RunReference, StageResult

T = TypeVar("T")
AnyDraw = Measurement[Any]


def draw_once(reference: RunReference, measurement: AnyDraw, counted: StageResult) -> StageResult:
    """Make a planned draw from the rows of its view, or read it where it is committed already; it is charged once.

    Nothing is counted for a draw that is committed. Nor for one that has nothing to measure: its share goes back to the
    account, and the guarantee that is stated stays the planned one. Before anything is charged, the terms of the draw are
    compared with those that were reserved: no draw is noisier or less noisy than its row.
    DP: the planned cost of the draw, one ledger event.

    Raises:
        StageError: it would be drawn by other terms than its row's.
        InputError, BudgetError: as `run_draw`.
    """
    drawn = RunDraws(reference)
    if drawn.is_open(measurement) and not measurement.is_needed(drawn):
        reference.ledger.draws.return_unused(reference.manifest.release, [measurement.name])
        drawn = RunDraws(reference)
    if drawn.is_committed(measurement) or drawn.is_returned(measurement):
        return drawn.result(measurement)
    with scratch_folder(reference.folder.private) as scratch:
        memory = MemoryBudget(reference.configuration.memory, scratch)
        exact = measurement.count(RunRows(reference, counted, memory), drawn)
        prepared = PreparedDraw(
            inputs=exact.digest,
            used=exact.used,
            make=partial(measurement.draw, exact),
            size=exact.size,
            unkeyed=measurement.seal(exact),
        )
        record = draw_record(reference.ledger.draws, reference.attempt.release, measurement.name)
        _check_terms(record, prepared)
        _, result = _read(reference, measurement.name, prepared)
        return result


def _read(
    reference: RunReference, name: str, prepared: PreparedDraw | None = None
) -> tuple[bytes, StageResult]:
    """Return the bytes and the place of a draw; raises StageError, without `prepared`, for one that is not committed."""
    payload, record = run_draw(
        reference.ledger.draws,
        reference.draws,
        reference.secrets,
        reference.attempt,
        name,
        prepared,
    )
    if record.digest is None:
        raise forgotten_error(reference.attempt.release, name)
    file = reference.draws.place(record.name, record.lease or "")
    return payload, StageResult(
        stage=name,
        address=name,
        file=f"private/draws/{file.name}",
        digest=record.digest,
        charged=(name,),
        is_reread=prepared is None,
    )


class RunDraws(Drawn):
    """The draws of a run in the states that the ledger has when the first of them is asked for."""

    def __init__(self, reference: RunReference) -> None:
        """Take configuration, plan and remembered values from the run."""
        super().__init__(reference.configuration, reference.plan, reference.remembered)
        self._reference = reference

    @cached_property
    def _states(self) -> dict[str, State]:
        """States of all draws by name, read once, when the first is asked for."""
        record = self._reference.ledger.draws.release(self._reference.manifest.release)
        if record is None:
            return {}
        return {draw.name: draw.state for draw in record.draws}

    @property
    def resolved(self) -> Configuration:
        """Configuration with the released bounds in the place of private ones."""
        return self._reference.resolved

    def is_committed(self, measurement: AnyDraw) -> bool:
        """Return whether the draw is committed."""
        return self._states.get(measurement.name) == State.COMMITTED

    def is_returned(self, measurement: AnyDraw) -> bool:
        """Return whether the draw's share went back to the account."""
        return self._states.get(measurement.name) == State.RETURNED

    def is_open(self, measurement: AnyDraw) -> bool:
        """Return whether the draw is reserved and was not begun."""
        return self._states.get(measurement.name) == State.RESERVED

    def payload(self, measurement: AnyDraw) -> bytes:
        """Return the bytes of a draw; raises StageError for one that is not committed."""
        payload, _ = self._payload_and_result(measurement)
        return payload

    def result(self, measurement: AnyDraw) -> StageResult:
        """Return the place of a draw's bytes; raises StageError for a draw that is not committed."""
        _, result = self._payload_and_result(measurement)
        return result

    def _payload_and_result(self, measurement: AnyDraw) -> tuple[bytes, StageResult]:
        if not self.is_returned(measurement) or measurement.is_needed(self):
            # it refuses a needed draw that has expired
            return _read(self._reference, measurement.name)
        derived = self._reference.derived
        result = derived.checkpoint(measurement.name, [], partial(measurement.unreached, self))
        return derived.load(result), result

    def derived(self, name: str, follows: Sequence[AnyDraw], compute: Callable[[], bytes]) -> bytes:
        """Return bytes that follow from draws alone, computed once and stored in a checkpoint of derived files."""
        public = self._reference.derived
        inputs = [self.result(draw) for draw in follows]
        return public.load(public.checkpoint(name, inputs, compute))


@dataclass(frozen=True)
class RunRows(PrivateRows):
    """The rows that a stage of a run has written: `counted` is its checkpoint."""

    reference: RunReference
    counted: StageResult
    memory: MemoryBudget

    @property
    def key(self) -> bytes:
        """Secret key of the run key for choices on private rows."""
        return self.reference.key_file.read_bytes()

    def clean(self) -> CleanBlocks:
        """Return the clean records, where the stage before has written those."""
        return CleanBlocks(self.reference.load_blocks(self.counted))

    def encoded(self) -> EncodedBlocks:
        """Return the encoded records, where the stage before has written those."""
        return EncodedBlocks(self.reference.load_blocks(self.counted))

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield the engine that counts the rows: this machine, or the Dask cluster of the configuration."""
        reference = self.reference
        settings = reference.configuration.engine
        with open_engine(settings, reference.certificates, reference.folder.private) as engine:
            yield engine

    def remember(self, name: str, compute: Callable[[], T]) -> T:
        """Return a value that is computed once in an attempt, and kept in memory alone."""
        remembered = self.reference.remembered
        if name not in remembered:
            remembered.setdefault(name, compute())
        value: T = remembered[name]
        return value

    def cached_blocks(
        self, name: str, follows: Sequence[AnyDraw], compute: Callable[[], Iterable[bytes]]
    ) -> Iterable[bytes]:
        """Return blocks that follow from the rows and earlier draws, computed once and stored in a private checkpoint."""
        reference = self.reference
        drawn = RunDraws(reference)
        draw_digests = [drawn.result(draw).digest for draw in follows]
        result = reference.checkpoint_blocks(name, [self.counted.digest, *draw_digests], compute)
        return reference.load_blocks(result)


def measurements_in_order(reference: RunReference, stage: str) -> Iterator[AnyDraw]:
    """Yield the measurements of the rows that a stage writes, each when it is due.

    Whether a measurement is due depends on the draws before it, so draw each one before you take the next. A measurement
    that never becomes due is left out, such as one of the rounds that have used up their shares.
    """
    waiting = list(reference.plan.after(stage))
    while waiting:
        drawn = RunDraws(reference)
        due = next((measurement for measurement in waiting if measurement.is_due(drawn)), None)
        if due is None:
            return
        waiting.remove(due)
        yield due


def _check_terms(draw: DrawRecord, prepared: PreparedDraw) -> None:
    changed_terms = []
    for name, value in prepared.used.items():
        if name in draw.terms and draw.terms[name] != value:
            changed_terms.append(name)
    if changed_terms:
        names = ", ".join(sorted(changed_terms))
        raise StageError(
            f"draw {draw.name} would be drawn with another {names} than was reserved; nothing was drawn"
        )
