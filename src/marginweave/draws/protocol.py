"""Charges, then draws, then commits noise; after an interruption anywhere, the same bytes are made again."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from marginweave.accounting.records import BEGUN, DrawRecord, ReleaseRecord, State
from marginweave.base.durable import remove_temporary_files
from marginweave.base.errors import NEW_NAME, BudgetError, InputError, StageError
from marginweave.base.interruption import INTERRUPTION
from marginweave.draws.files import DrawSecret, DrawSecrets, DrawStore
from marginweave.released.program import Program

if TYPE_CHECKING:  # imports numpy, which a run that is already finished does not need
    from marginweave.mechanisms.randomness import DrawBits

SMALL = 1 << 12
_ENDED = frozenset({State.COMMITTED, State.RETURNED, State.CHARGED_LOST})


class DrawLedger(Protocol):
    """The part of the ledger that `run_draw` needs (`marginweave.ledger.draws.Draws`)."""

    def release(self, release_id: str) -> ReleaseRecord | None:
        """Return the release, or None."""

    def check_lease(self, release_id: str, lease: str) -> None:
        """Refuse an attempt whose lease another attempt has taken over."""

    def begin(self, release_id: str, name: str, lease: str, facts: Mapping[str, str]) -> None:
        """Record RESERVED → DRAWN, with the `facts` that a repetition must agree with."""

    def commit(self, release_id: str, name: str, lease: str, digest: str, *, tainted: bool) -> None:
        """Record DRAWN → COMMITTED."""

    def lose(self, release_id: str, name: str, lease: str) -> None:
        """Record DRAWN → CHARGED_LOST."""


@dataclass(frozen=True, kw_only=True)
class PreparedDraw:
    """A draw before its charge: everything is computed but the noise, so that `make` is a function of the seed.

    `inputs` is the digest of the mechanism's input, canonical integers; `used` are the mechanism's parameters as exact integers
    and fractions. `unkeyed` draws noise of a library that takes no key; it is sealed before the charge.
    """

    inputs: str
    used: Mapping[str, str | int]
    make: Callable[[DrawBits, bytes], bytes]
    size: int = SMALL
    unkeyed: Callable[[], bytes] | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt at a release: its id, the lease of this attempt, and the identity of the running program."""

    release: str
    lease: str
    program: Program


def run_draw(
    ledger: DrawLedger,
    store: DrawStore,
    secrets: DrawSecrets,
    attempt: Attempt,
    name: str,
    prepared: PreparedDraw | None,
) -> tuple[bytes, DrawRecord]:
    """Return the bytes of draw `name` and its committed record; make the draw, make it again after a crash, or read it back.

    The order is: room on disk, the secret, the charge (RESERVED → DRAWN, with the bound inputs), the noise, the file, the
    commit, and the destruction of the secret. A draw that was begun and has no file is made again from its secret, by the
    program that began it and from the same inputs, which gives the same bytes. With other inputs it is refused and recorded as
    lost.
    DP: the cost that was reserved for the draw, once, however often it is computed or read.

    Args:
        ledger: where the draw is reserved.
        store: where its bytes are kept.
        secrets: where its seed is.
        attempt: the release, this attempt's lease (`Ledger.take_lease`) and the program.
        name: the draw.
        prepared: the draw to make; None where it must be committed already.

    Raises:
        InputError: another program has begun the draw, and has to end it.
        BudgetError: the draw is not reserved, or lost, its committed bytes are gone, or another attempt has taken over.
        StageError: the draw is not committed, or the disk refuses.
    """
    release = _release_of(ledger, attempt.release)
    draw = _draw_of(release, name)
    if draw.state == State.DRAWN and _adopt(ledger, store, draw, attempt.lease):
        draw = draw_record(ledger, attempt.release, name)
        secrets.destroy(name)
    if draw.state == State.COMMITTED:
        return _read_committed(store, draw), draw
    if draw.state == State.RETURNED:
        raise _returned_error(release, name)
    if draw.state == State.CHARGED_LOST:
        raise lost_error(draw)
    if prepared is None:
        raise StageError(f"draw {name} must be committed before a later stage reads it")
    with INTERRUPTION.deferred():
        names = [planned.name for planned in release.draws]
        number = names.index(name)
        return _charge_and_draw(ledger, store, secrets, attempt, draw, prepared, number=number)


def _charge_and_draw(
    ledger: DrawLedger,
    store: DrawStore,
    secrets: DrawSecrets,
    attempt: Attempt,
    draw: DrawRecord,
    prepared: PreparedDraw,
    *,
    number: int,
) -> tuple[bytes, DrawRecord]:
    """Charge, draw and commit a draw that is still to be made, number `number` of the release's draws, from 0."""
    from marginweave.mechanisms.randomness import DrawBits

    name = draw.name
    lease = draw.lease or attempt.lease
    with store.room(name, lease, prepared.size, redrawn=draw.state == State.DRAWN) as room:
        secret = _begin(ledger, secrets, attempt, draw, prepared)
        context = _context(attempt, draw, number, prepared)
        bits = DrawBits(seed=secret.seed, context=context, tainted=secrets.source.tainted)
        payload = prepared.make(bits, secret.noise)
        if bits.tainted:
            ledger.lose(attempt.release, name, attempt.lease)
            raise BudgetError(
                f"draw {name} of release {attempt.release} is tainted: its seed is not from the operating system"
            )
        address = (attempt.release, name, lease)
        digest = store.stage(
            room, address, payload, lambda: ledger.check_lease(attempt.release, attempt.lease)
        )
    ledger.commit(attempt.release, name, attempt.lease, digest, tainted=bits.tainted)
    # read back: a commit that was only sent is not enough
    committed = draw_record(ledger, attempt.release, name)
    if committed.state != State.COMMITTED:
        raise forgotten_error(attempt.release, name)
    secrets.destroy(name)
    return payload, committed


def lost_error(draw: DrawRecord) -> BudgetError:
    """Return the refusal of a draw that was charged and lost: after it was begun, or by the reconciliation of a ledger."""
    why = "its seed, or what it was drawn from, was damaged after the charge"
    if draw.lease is None:
        why = "the ledger was restored from an old copy, which does not say whether it was drawn"
    return BudgetError(
        f"draw {draw.name} of release {draw.release} was charged and lost: {why}. The charge stays and it is not "
        "drawn again; make a new release under another name"
    )


def _returned_error(record: ReleaseRecord, name: str) -> BudgetError:
    """Return the refusal of a draw whose reservation expired; it says whether the release can be reserved again."""
    message = f"draw {name} of release {record.release} was given back before it was drawn"
    if BEGUN.isdisjoint(draw.state for draw in record.draws):
        return BudgetError(
            f"{message}, and so was the whole release; the same command reserves the release again"
        )
    return BudgetError(
        f"{message}, so its run can no longer finish; what was drawn stays charged. To begin again, {NEW_NAME}, "
        f"and give up this one: marginweave purge {record.run} --unfinished"
    )


def forgotten_error(release_id: str, name: str) -> BudgetError:
    """Return the refusal of a ledger that has lost the commit of a draw."""
    return BudgetError(
        f"draw {name} of release {release_id} was committed, but the ledger does not know it: it is an older copy; restore the "
        "ledger that the run was charged in"
    )


def reconcile(ledger: DrawLedger, store: DrawStore, secrets: DrawSecrets, attempt: Attempt) -> None:
    """Clean up after an attempt that ended early: adopt its complete draws, destroy the secrets of ended draws.

    A draw that was begun and has no complete file stays as it is: its stage makes it again (`run_draw`).
    DP: none; what is lost stays charged.

    Raises:
        BudgetError: no such release, or another attempt has taken over.
        StageError: the disk refuses.
    """
    for draw in _release_of(ledger, attempt.release).draws:
        if draw.state == State.DRAWN:
            _adopt(ledger, store, draw, attempt.lease)
        elif draw.state == State.CHARGED_LOST:
            store.destroy(draw.name, draw.lease or "")
    ended = {
        draw.name for draw in _release_of(ledger, attempt.release).draws if draw.state in _ENDED
    }
    for name in ended.intersection(secrets.present()):
        secrets.destroy(name)
    for folder in (store.folder.draws, store.folder.seeds):  # of earlier attempts that ended early
        remove_temporary_files(folder)


def draw_record(ledger: DrawLedger, release_id: str, name: str) -> DrawRecord:
    """Return the ledger's current record of the planned draw `name`.

    Raises:
        BudgetError: it is not reserved.
    """
    return _draw_of(_release_of(ledger, release_id), name)


def _draw_of(release: ReleaseRecord, name: str) -> DrawRecord:
    """Return the record of the draw `name`, or refuse a name that is not reserved."""
    draw = release.draw(name)
    if draw is None:
        raise BudgetError(f"draw {name} of release {release.release} is not reserved in the ledger")
    return draw


def _release_of(ledger: DrawLedger, release_id: str) -> ReleaseRecord:
    """Return the record of the release, or refuse one that is not reserved."""
    record = ledger.release(release_id)
    if record is None:
        raise BudgetError(f"release {release_id} is not reserved in the ledger")
    return record


def _adopt(ledger: DrawLedger, store: DrawStore, draw: DrawRecord, lease: str) -> bool:
    """Commit the bytes that an earlier attempt has stored, DRAWN → COMMITTED; return whether there were any."""
    begun_under = draw.lease or ""
    payload = store.read(draw.release, draw.name, begun_under, None)
    if payload is None:
        return False
    digest = store.mend(payload, draw.release, draw.name, begun_under)
    # a tainted draw is never staged
    ledger.commit(draw.release, draw.name, lease, digest, tainted=False)
    return True


def _begin(
    ledger: DrawLedger,
    secrets: DrawSecrets,
    attempt: Attempt,
    draw: DrawRecord,
    prepared: PreparedDraw,
) -> DrawSecret:
    """Charge a reserved draw and return its secret, or that of a draw begun with the same inputs by the same program."""
    if draw.state == State.RESERVED:
        if prepared.unkeyed is not None:
            secrets.keep_noise(attempt.release, draw.name, prepared.unkeyed())
        else:
            secrets.make(attempt.release, draw.name)
    secret = secrets.read(attempt.release, draw.name)
    bound = None if secret is None else secret.bind(prepared.inputs)
    if draw.state == State.RESERVED:
        if secret is None or bound is None:
            raise StageError(
                f"the seed of draw {draw.name} cannot be read back; nothing was charged for it yet"
            )
        facts = {
            "inputs": bound,
            "program": attempt.program.digest,
            "version": attempt.program.version,
        }
        ledger.begin(attempt.release, draw.name, attempt.lease, facts)
        return secret
    check_same_program(draw, attempt.program)
    if (
        secret is None
        or bound is None
        or not hmac.compare_digest(bound, draw.facts.get("inputs", ""))
    ):
        ledger.lose(attempt.release, draw.name, attempt.lease)
        raise lost_error(draw)
    return secret


def check_same_program(draw: DrawRecord, program: Program) -> None:
    """Refuse to make a begun draw again with another program than the one that began it.

    Raises:
        InputError: says which program has to end it.
    """
    begun_by = Program(version=draw.facts["version"], digest=draw.facts["program"])
    if begun_by != program:
        raise InputError(
            f"draw {draw.name} of release {draw.release} was begun by marginweave {begun_by}, and this is "
            f"{program}: finish the run with the program that began it, or {NEW_NAME}"
        )


def _context(
    attempt: Attempt, draw: DrawRecord, number: int, prepared: PreparedDraw
) -> tuple[str | int, ...]:
    """Return the context that determines the noise together with the seed: release, number, mechanism, parameters, inputs."""
    parameters: list[str | int] = []
    for name, value in sorted(prepared.used.items()):
        parameters += [name, value]
    return (attempt.release, number, draw.mechanism, *parameters, prepared.inputs)


def _read_committed(store: DrawStore, draw: DrawRecord) -> bytes:
    """Return the bytes of a committed draw and mend its damaged copy, or refuse a draw whose bytes are gone."""
    lease = draw.lease or ""
    payload = store.read(draw.release, draw.name, lease, draw.digest)
    if payload is None:
        raise BudgetError(
            f"draw {draw.name} of release {draw.release} is committed, but its bytes are missing or damaged, and so is their "
            "copy; a committed draw is never redrawn: restore the run's private folder, or make a new release"
        )
    store.mend(payload, draw.release, draw.name, lease)
    return payload
