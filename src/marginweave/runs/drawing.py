"""How a run draws its measurements: through the ledger, under its lease, by the parameters that were reserved."""

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
    """A planned draw: made now from the rows of its view, or committed already; charged once.

    Nothing is counted for a draw that is committed, or has nothing to measure: its share goes back to the account, and the
    guarantee that is stated stays the planned one. What is used is compared with what was reserved before anything is
    charged: no draw is noisier or less noisy than its row.
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
        _check_terms(draw_record(reference.ledger.draws, reference.attempt.release, measurement.name), prepared)
        return _read(reference, measurement.name, prepared)[1]


def _read(reference: RunReference, name: str, prepared: PreparedDraw | None = None) -> tuple[bytes, StageResult]:
    """The bytes and the place of a draw; raises StageError, without `prepared`, for one that is not committed."""
    payload, record = run_draw(
        reference.ledger.draws, reference.draws, reference.secrets, reference.attempt, name, prepared
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
    """The draws of a run as the ledger has them now."""

    def __init__(self, reference: RunReference) -> None:
        """Remember what the run remembers."""
        super().__init__(reference.configuration, reference.plan, reference.remembered)
        self._reference = reference

    @cached_property
    def _states(self) -> dict[str, State]:
        """The states of all draws, read once, when the first is asked for."""
        record = self._reference.ledger.draws.release(self._reference.manifest.release)
        return {} if record is None else {draw.name: draw.state for draw in record.draws}

    @property
    def resolved(self) -> Configuration:
        """As `Drawn.resolved`."""
        return self._reference.resolved

    def is_committed(self, measurement: AnyDraw) -> bool:
        """As `Drawn.is_committed`."""
        return self._states.get(measurement.name) == State.COMMITTED

    def is_returned(self, measurement: AnyDraw) -> bool:
        """Whether its share went back to the account."""
        return self._states.get(measurement.name) == State.RETURNED

    def is_open(self, measurement: AnyDraw) -> bool:
        """Whether it is reserved, and nothing of it was begun."""
        return self._states.get(measurement.name) == State.RESERVED

    def payload(self, measurement: AnyDraw) -> bytes:
        """As `Drawn.payload`."""
        return self._found(measurement)[0]

    def result(self, measurement: AnyDraw) -> StageResult:
        """Where its bytes are."""
        return self._found(measurement)[1]

    def _found(self, measurement: AnyDraw) -> tuple[bytes, StageResult]:
        if not self.is_returned(measurement) or measurement.is_needed(self):
            return _read(self._reference, measurement.name)  # one that is needed, and has expired, is refused there
        derived = self._reference.derived
        result = derived.checkpoint(measurement.name, [], partial(measurement.unreached, self))
        return derived.load(result), result

    def derived(self, name: str, follows: Sequence[AnyDraw], compute: Callable[[], bytes]) -> bytes:
        """As `Drawn.derived`, in a checkpoint of derived files."""
        public = self._reference.derived
        return public.load(public.checkpoint(name, [self.result(draw) for draw in follows], compute))


@dataclass(frozen=True)
class RunRows(PrivateRows):
    """The rows that a stage of a run has left in `counted`."""

    reference: RunReference
    counted: StageResult
    memory: MemoryBudget

    @property
    def key(self) -> bytes:
        """As `PrivateRows.key`."""
        return self.reference.key_file.read_bytes()

    def clean(self) -> CleanBlocks:
        """As `PrivateRows.clean`."""
        return CleanBlocks(self.reference.load_blocks(self.counted))

    def encoded(self) -> EncodedBlocks:
        """As `PrivateRows.encoded`."""
        return EncodedBlocks(self.reference.load_blocks(self.counted))

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """As `PrivateRows.engine`."""
        reference = self.reference
        with open_engine(reference.configuration.engine, reference.certificates, reference.folder.private) as engine:
            yield engine

    def remember(self, name: str, compute: Callable[[], T]) -> T:
        """As `PrivateRows.remember`."""
        remembered = self.reference.remembered
        found: T = remembered[name] if name in remembered else remembered.setdefault(name, compute())
        return found

    def cached_blocks(
        self, name: str, follows: Sequence[AnyDraw], compute: Callable[[], Iterable[bytes]]
    ) -> Iterable[bytes]:
        """Return the blocks of `PrivateRows.cached_blocks`, from a private checkpoint."""
        reference, drawn = self.reference, RunDraws(self.reference)
        inputs = [self.counted.digest, *(drawn.result(draw).digest for draw in follows)]
        return reference.load_blocks(reference.checkpoint_blocks(name, inputs, compute))


def measurements_in_order(reference: RunReference, stage: str) -> Iterator[AnyDraw]:
    """The measurements of rows that a stage leaves, each when it is due: the next is asked for when the one before is drawn.

    A measurement whose turn never comes, as one of rounds that have used up their shares, is left out.
    """
    left = list(reference.plan.after(stage))
    while left:
        drawn = RunDraws(reference)
        due = next((measurement for measurement in left if measurement.is_due(drawn)), None)
        if due is None:
            return
        left.remove(due)
        yield due


def _check_terms(draw: DrawRecord, prepared: PreparedDraw) -> None:
    other = [name for name, value in prepared.used.items() if name in draw.terms and draw.terms[name] != value]
    if other:
        raise StageError(
            f"draw {draw.name} would be drawn with another {', '.join(sorted(other))} than was reserved; nothing was drawn"
        )
