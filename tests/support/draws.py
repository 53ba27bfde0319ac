"""Draws without a pipeline: prepared ones whose bytes are their bits, and draws put into a store without a ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from marginweave.base.budget import Stability
from marginweave.draws.files import DrawSecrets, DrawStore
from marginweave.draws.protocol import Attempt, PreparedDraw, reconcile, run_draw
from marginweave.ledger import Ledger
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.randomness import DrawBits
from marginweave.released.program import Program
from tests.support.releases import PROGRAM

GAUSSIAN = RoundedGaussian(Stability(records=1, neighbors="add-remove"))
"""Noise on marginals of which one record comes or goes."""


KEY = bytes(range(32))


def draw_of_bits(bits: DrawBits, noise: bytes = b"") -> bytes:
    """A draw that is nothing but its bits, behind the noise that was sealed for it."""
    return noise + bits.words(0, 0, 8).tobytes()


def prepared_draw(
    rows: str = "rows",
    make: Callable[[DrawBits, bytes], bytes] = draw_of_bits,
    unkeyed: Callable[[], bytes] | None = None,
    size: int = 4096,
) -> PreparedDraw:
    """A draw that is given the integers that `rows` stands for."""
    inputs = hashlib.sha256(rows.encode()).hexdigest()
    return PreparedDraw(inputs=inputs, used={"sigma": "3/2"}, make=make, unkeyed=unkeyed, size=size)


def never_made(bits: DrawBits, noise: bytes) -> bytes:
    """Fails the test: no noise is made here."""
    raise AssertionError("noise was made")


def take_part(
    ledger: Ledger,
    store: DrawStore,
    name: str,
    lease: str,
    prepared: PreparedDraw | None,
    *,
    program: Program = PROGRAM,
    release: str = "r",
) -> bytes:
    """The draw `name` in the attempt `lease`, which is taken where it is not the current one."""
    record = ledger.releases.find(release)
    if record is not None and record.lease != lease:
        ledger.draws.take_lease(release, lease)
    attempt = Attempt(release=release, lease=lease, program=program)
    return run_draw(ledger.draws, store, secrets_of(store), attempt, name, prepared)[0]


def settle_begun(ledger: Ledger, store: DrawStore, lease: str, release: str = "r") -> None:
    """What the attempt `lease` does first."""
    reconcile(
        ledger.draws,
        store,
        secrets_of(store),
        Attempt(release=release, lease=lease, program=PROGRAM),
    )


def secrets_of(store: DrawStore) -> DrawSecrets:
    """The secrets beside the draws of a store."""
    return DrawSecrets(store.folder, store.key)


def stage_draw(store: DrawStore, release: str, name: str, lease: str, payload: bytes) -> str:
    """Store a draw as an attempt whose lease nobody has taken over."""
    with store.room(name, lease, len(payload)) as staged:
        return store.stage(staged, (release, name, lease), payload, lambda: None)
