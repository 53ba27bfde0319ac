"""Charge, then draw, then commit: one noisy output for one charge, the same bytes wherever the process dies."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from marginweave.accounting.records import Event, EventKind, State
from marginweave.base.durable import StagedFile
from marginweave.base.errors import BudgetError, InputError, StageError
from marginweave.draws.files import DrawSecrets, DrawStore
from marginweave.ledger import Ledger
from marginweave.ledger.draws import Draws
from marginweave.mechanisms.randomness import DrawBits
from tests.support.draws import (
    draw_of_bits,
    never_made,
    prepared_draw,
    secrets_of,
    settle_begun,
    stage_draw,
    take_part,
)
from tests.support.releases import OTHER_PROGRAM
from tests.support.samples import every


def _state(ledger: Ledger, name: str = "count") -> State:
    record = ledger.releases.find("r")
    assert record is not None
    draw = record.draw(name)
    assert draw is not None
    return draw.state


def _draw_files(store: DrawStore) -> list[Path]:
    return sorted(store.folder.draws.iterdir())


def test_order_is_secret_charge_draw_store_commit(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When noise is made, seed and charge are durable; bytes are stored before the commit, and the seed ends after it."""
    seen: list[object] = []
    keep = StagedFile.keep

    def make(bits: DrawBits, noise: bytes) -> bytes:
        assert isinstance(ledger.location, Path)
        with sqlite3.connect(ledger.location) as other:
            seen.append(
                other.execute(
                    "SELECT kind, draw, lease FROM events ORDER BY seq DESC LIMIT 1"
                ).fetchone()
            )
        files = _draw_files(draw_store)
        seen.append(
            (
                {path.suffix for path in files},
                {byte for path in files for byte in path.read_bytes()},
            )
        )
        seen.append(secrets_of(draw_store).present())
        return draw_of_bits(bits, noise)

    def recording(*arguments: object) -> bool:
        done = keep(*arguments)  # pyright: ignore[reportArgumentType]
        seen.append((_state(ledger), secrets_of(draw_store).present()))
        return done

    monkeypatch.setattr(StagedFile, "keep", recording)
    take_part(ledger, draw_store, "count", "A", prepared_draw(make=make))
    begun = State.DRAWN, {"count"}
    assert seen[-5:] == [("DRAWN", "count", "A"), ({".tmp"}, {0}), {"count"}, begun, begun]
    assert _state(ledger) == State.COMMITTED
    assert secrets_of(draw_store).present() == frozenset()


def test_committed_draws_are_read_back(ledger: Ledger, draw_store: DrawStore) -> None:
    """Any later call, under any lease, gives the same bytes and adds no row."""
    first = take_part(ledger, draw_store, "count", "A", prepared_draw())
    rows = ledger.verify()
    assert take_part(ledger, draw_store, "count", "A", prepared_draw(make=never_made)) == first
    assert take_part(ledger, draw_store, "count", "A", None) == first
    assert ledger.verify() == rows


def test_no_two_draws_have_the_same_noise(ledger: Ledger, draw_store: DrawStore) -> None:
    """Draws of one release have seeds of their own; what they are given is the same here."""
    drawn = [
        take_part(ledger, draw_store, name, "A", prepared_draw())
        for name in ("count", "level-1", "level-2")
    ]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize(
    "damage", [lambda p: p.unlink(), lambda p: p.write_bytes(p.read_bytes()[:-1] + b"?")]
)
def test_one_damaged_copy_of_a_committed_draw_loses_nothing(
    ledger: Ledger, draw_store: DrawStore, damage: Callable[[Path], object]
) -> None:
    """Either file alone has the draw."""
    first = take_part(ledger, draw_store, "count", "A", prepared_draw())
    place = draw_store.place("count", "A")
    damage(place)
    assert take_part(ledger, draw_store, "count", "A", prepared_draw(make=never_made)) == first


@pytest.mark.parametrize(
    "damage", [lambda p: p.unlink(), lambda p: p.write_bytes(p.read_bytes()[:-1] + b"?")]
)
def test_committed_draws_are_never_redrawn(
    ledger: Ledger, draw_store: DrawStore, damage: Callable[[Path], object]
) -> None:
    """Where both copies are missing or damaged the run stops; the charge and the state stand."""
    take_part(ledger, draw_store, "count", "A", prepared_draw())
    for path in _draw_files(draw_store):
        damage(path)
    with pytest.raises(BudgetError, match="a committed draw is never redrawn"):
        take_part(ledger, draw_store, "count", "B", prepared_draw(make=never_made))
    assert _state(ledger) == State.COMMITTED


def test_committed_bytes_must_be_those_of_the_ledger(ledger: Ledger, draw_store: DrawStore) -> None:
    """An authentic draw that is not the one whose digest was committed is refused."""
    take_part(ledger, draw_store, "count", "A", prepared_draw())
    for path in _draw_files(draw_store):
        path.unlink()
    stage_draw(draw_store, "r", "count", "A", b"another draw")
    with pytest.raises(BudgetError, match="never redrawn"):
        take_part(ledger, draw_store, "count", "A", None)


def _die(*_: object, **__: object) -> None:
    os._exit(9)


def _after(function: Callable[..., object]) -> Callable[..., object]:
    def call(*arguments: object, **named: object) -> object:
        function(*arguments, **named)
        os._exit(9)

    return call


def _before(_: Callable[..., object]) -> Callable[..., object]:
    return _die


def _make(bits: DrawBits, noise: bytes) -> bytes:
    return draw_of_bits(bits, noise)


def _halfway(fdopen: Callable[..., object]) -> Callable[..., object]:
    def call(descriptor: int, mode: str = "r") -> object:
        if mode != "wb" or "draws" not in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            return fdopen(descriptor, mode)
        os.write(descriptor, b"half")
        os._exit(9)

    return call


def _link_of(ending: str, when: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    def replacement(link: Callable[..., object]) -> Callable[..., object]:
        def call(source: object, target: object) -> None:
            hit = str(target).endswith(ending)
            if hit and when == "before":
                os._exit(9)
            link(source, target)
            if hit:
                os._exit(9)

        return call

    return replacement


_HERE = sys.modules[__name__]
# where the process dies → what is replaced to kill it there, and the state that it leaves
CRASHES: dict[str, tuple[object, str, Callable[..., object], State]] = {
    "before the seed": (os, "link", _link_of(".seed", "before"), State.RESERVED),
    "between the seed and its copy": (os, "link", _link_of(".seed", "after"), State.RESERVED),
    "after the copy of the seed": (
        os,
        "link",
        _link_of("seeds/count.copy", "after"),
        State.RESERVED,
    ),
    "before the charge": (Draws, "begin", _before, State.RESERVED),
    "after the charge": (Draws, "begin", _after, State.DRAWN),
    "in the draw": (_HERE, "_make", _before, State.DRAWN),
    "after the draw": (_HERE, "_make", _after, State.DRAWN),
    "in the middle of the file": (os, "fdopen", _halfway, State.DRAWN),
    "before the file has its name": (os, "link", _link_of(".draw", "before"), State.DRAWN),
    "after the file has its name": (os, "link", _link_of(".draw", "after"), State.DRAWN),
    "after the copy has its name": (os, "link", _link_of("A.copy", "after"), State.DRAWN),
    "before the commit": (Draws, "commit", _before, State.DRAWN),
    "after the commit": (Draws, "commit", _after, State.COMMITTED),
    "before the seed is destroyed": (DrawSecrets, "destroy", _before, State.COMMITTED),
    "after the seed is destroyed": (DrawSecrets, "destroy", _after, State.COMMITTED),
}


def _kept(
    make: Callable[[DrawBits, bytes], bytes], made: Path
) -> Callable[[DrawBits, bytes], bytes]:
    """`make`, whose results are written down as soon as they are there."""

    def call(bits: DrawBits, noise: bytes) -> bytes:
        payload = make(bits, noise)
        with made.open("ab") as stream:
            stream.write(payload.hex().encode() + b"\n")
        return payload

    return call


def _killed_run(ledger: Ledger, store: DrawStore, point: str, made: Path, *, laplace: bool) -> int:
    child = os.fork()
    if child == 0:
        try:
            owner, name, how, _ = CRASHES[point]
            setattr(owner, name, how(getattr(owner, name)))
            unkeyed = (lambda: os.urandom(8)) if laplace else None
            prepared = prepared_draw(make=_kept(_HERE._make, made), unkeyed=unkeyed)
            take_part(ledger, store, "count", "A", prepared)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Usually each point with a draw by key that the same lease resumes, and with sealed noise that another one does.
RESUMED = (("A", False), ("A", True), ("B", True), ("B", False))


@pytest.mark.parametrize(
    ("point", "lease", "laplace"),
    every(2, [(point, *resumed) for point in CRASHES for resumed in RESUMED]),
)
def test_a_killed_draw_is_made_again_byte_for_byte(
    ledger: Ledger, draw_store: DrawStore, tmp_path: Path, point: str, lease: str, laplace: bool
) -> None:
    """At every point of death the next attempt ends the draw, and all noise that was ever made for it is the same."""
    made = tmp_path / "made"
    assert _killed_run(ledger, draw_store, point, made, laplace=laplace) == 9
    assert _state(ledger) == CRASHES[point][3]
    unkeyed = (lambda: os.urandom(8)) if laplace else None
    prepared = prepared_draw(make=_kept(_make, made), unkeyed=unkeyed)
    if lease == "B":
        ledger.draws.take_lease("r", "B")
        settle_begun(ledger, draw_store, "B")
    payload = take_part(ledger, draw_store, "count", lease, prepared)
    assert _state(ledger) == State.COMMITTED
    assert set(made.read_text().split()) == {payload.hex()}
    assert take_part(ledger, draw_store, "count", lease, prepared_draw(make=never_made)) == payload
    settle_begun(ledger, draw_store, lease)
    assert secrets_of(draw_store).present() == frozenset()
    record = ledger.releases.find("r")
    assert record is not None
    assert record.charged.mu2 * 100 == 3  # every charge stands, once
    ledger.verify()


def test_a_draw_that_failed_is_made_again(ledger: Ledger, draw_store: DrawStore) -> None:
    """An exception in the draw (too little memory) costs nothing: the next attempt makes it, under the same charge."""
    made = []

    def broken(bits: DrawBits, noise: bytes) -> bytes:
        made.append(draw_of_bits(bits, noise))
        raise MemoryError

    with pytest.raises(MemoryError):
        take_part(ledger, draw_store, "count", "A", prepared_draw(make=broken))
    assert _state(ledger) == State.DRAWN
    assert take_part(ledger, draw_store, "count", "B", prepared_draw()) == made[0]


def _begun(ledger: Ledger, store: DrawStore, unkeyed: Callable[[], bytes] | None = None) -> None:
    """A draw whose process died right after its charge."""

    def dies(bits: DrawBits, noise: bytes) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_part(ledger, store, "count", "A", prepared_draw(make=dies, unkeyed=unkeyed))


def test_noise_of_a_library_is_drawn_once(ledger: Ledger, draw_store: DrawStore) -> None:
    """Before its draw is begun: whoever ends the draw takes the noise that was sealed then."""
    _begun(ledger, draw_store, lambda: b"noise")
    again = prepared_draw(
        make=lambda _, sealed: sealed, unkeyed=lambda: pytest.fail("noise was drawn anew")
    )
    assert take_part(ledger, draw_store, "count", "B", again) == b"noise"


def test_other_noise_in_the_place_of_what_was_sealed_loses_the_draw(
    ledger: Ledger, draw_store: DrawStore
) -> None:
    """An attempt that came too late may have sealed its own: of one draw there are no two outcomes."""
    _begun(ledger, draw_store, lambda: b"noise")
    secrets_of(draw_store).keep_noise("r", "count", b"other")
    with pytest.raises(BudgetError, match="charged and lost"):
        take_part(ledger, draw_store, "count", "A", prepared_draw(make=never_made, unkeyed=bytes))


def test_other_inputs_are_refused_and_the_draw_is_lost(
    ledger: Ledger, draw_store: DrawStore
) -> None:
    """The same noise on other rows would tell their difference: no bit is made, and the charge stays."""
    _begun(ledger, draw_store)
    for _ in range(2):  # and it stays so
        with pytest.raises(BudgetError, match=r"draw count of release r was charged and lost: "):
            take_part(
                ledger, draw_store, "count", "A", prepared_draw("other rows", make=never_made)
            )
    assert _state(ledger) == State.CHARGED_LOST
    settle_begun(ledger, draw_store, "A")
    assert "count" not in secrets_of(draw_store).present()


def test_another_program_does_not_make_a_begun_draw_again(
    ledger: Ledger, draw_store: DrawStore
) -> None:
    """It is refused with what to do, nothing is lost, and the program that began the draw ends it."""
    _begun(ledger, draw_store)
    with pytest.raises(
        InputError,
        match=r"begun by marginweave 1 \(code 111.*this is 2 \(code 222.*program that began it",
    ):
        take_part(
            ledger, draw_store, "count", "B", prepared_draw(make=never_made), program=OTHER_PROGRAM
        )
    assert _state(ledger) == State.DRAWN
    take_part(ledger, draw_store, "count", "C", prepared_draw())
    assert take_part(ledger, draw_store, "level-1", "D", prepared_draw(), program=OTHER_PROGRAM)


@pytest.mark.parametrize("damaged", [("seed",), ("copy",), ("seed", "copy")])
def test_a_damaged_seed_is_mended_and_two_lose_the_draw(
    ledger: Ledger, draw_store: DrawStore, damaged: tuple[str, ...]
) -> None:
    """One whole copy is enough. Without any, a draw that was begun is lost, and one that was not gets a new seed."""
    _begun(ledger, draw_store)
    settle_begun(ledger, draw_store, "A")
    secrets = secrets_of(draw_store)
    secrets.make("r", "level-1")
    for name in ("count", "level-1"):
        for ending in damaged:
            path = draw_store.folder.seeds / f"{name}.{ending}"
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    if len(damaged) == 2:
        with pytest.raises(BudgetError, match="charged and lost"):
            take_part(ledger, draw_store, "count", "A", prepared_draw(make=never_made))
    else:
        assert secrets.read("r", "count") is not None
        files = [
            (draw_store.folder.seeds / f"count.{ending}").read_bytes()
            for ending in ("seed", "copy")
        ]
        assert files[0] == files[1]
        take_part(ledger, draw_store, "count", "A", prepared_draw())
    assert take_part(ledger, draw_store, "level-1", "A", prepared_draw())


def test_a_seed_is_read_at_its_own_place_only(ledger: Ledger, draw_store: DrawStore) -> None:
    """The seed of one draw, or of another release, in the place of another's is no seed."""
    secrets = secrets_of(draw_store)
    secrets.make("r", "count")
    for ending in ("seed", "copy"):
        (draw_store.folder.seeds / f"count.{ending}").replace(
            draw_store.folder.seeds / f"level-1.{ending}"
        )
    assert secrets.read("r", "level-1") is None
    secrets.make("r", "count")
    assert secrets.read("other", "count") is None


def test_what_stands_in_the_ledger_says_nothing_of_the_inputs(
    ledger: Ledger, draw_store: DrawStore
) -> None:
    """Two draws from the same inputs have other rows, and no row has the digest itself."""
    prepared = prepared_draw()
    for name in ("count", "level-1"):
        take_part(ledger, draw_store, name, "A", prepared)
    record = ledger.releases.find("r")
    assert record is not None
    bound = [draw.facts["inputs"] for draw in record.draws[:2]]
    assert bound[0] != bound[1]
    assert prepared.inputs not in bound


def test_a_forged_or_damaged_staged_file_is_not_adopted(
    ledger: Ledger, draw_store: DrawStore
) -> None:
    """Only an authentic file of the lease in the DRAWN row is adopted; a damaged one gives way to the draw made again."""
    _begun(ledger, draw_store)
    stage_draw(draw_store, "r", "count", "B", b"of another lease")
    draw_store.place("count", "A").write_bytes(b"without a seal")
    made = take_part(ledger, draw_store, "count", "B", prepared_draw())
    assert made not in (b"of another lease", b"without a seal")
    assert take_part(ledger, draw_store, "count", "B", None) == made


def test_a_lease_is_not_used_twice(ledger: Ledger, draw_store: DrawStore) -> None:
    """A file that stands before its charge stops the draw while nothing is spent."""
    stage_draw(draw_store, "r", "count", "A", b"from before")
    with pytest.raises(StageError, match="lease of a draw must be new"):
        take_part(ledger, draw_store, "count", "A", prepared_draw(make=never_made))
    assert _state(ledger) == State.RESERVED


def test_tainted_draws_are_lost_and_not_stored(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draw from a seed that is not the operating system's is neither committed nor kept where a resume could adopt it."""
    from marginweave.draws.files import SystemSeeds

    monkeypatch.setattr(SystemSeeds, "tainted", True)
    with pytest.raises(BudgetError, match="tainted"):
        take_part(ledger, draw_store, "count", "A", prepared_draw())
    assert _state(ledger) == State.CHARGED_LOST
    assert not _draw_files(draw_store)


def test_nothing_is_drawn_without_a_reservation(ledger: Ledger, draw_store: DrawStore) -> None:
    """Unknown releases, unknown draws and returned draws refuse before any noise."""
    ledger.draws.return_unused("r", ["level-2"])
    for release, name in (("other", "count"), ("r", "level-9"), ("r", "level-2")):
        with pytest.raises(BudgetError):
            take_part(
                ledger, draw_store, name, "A", prepared_draw(make=never_made), release=release
            )
    with pytest.raises(StageError, match="must be committed before"):
        take_part(ledger, draw_store, "count", "A", None)


def test_a_whole_draw_is_adopted_without_its_seed(ledger: Ledger, draw_store: DrawStore) -> None:
    """What was stored before the attempt was stopped needs none."""
    ledger.draws.begin("r", "count", "A")
    stage_draw(draw_store, "r", "count", "A", b"whole")
    assert take_part(ledger, draw_store, "count", "B", prepared_draw(make=never_made)) == b"whole"


@pytest.mark.parametrize(
    ("begun", "advice"),
    [
        (False, "the same command reserves the release again$"),
        (True, "no longer finish.*: marginweave purge affairs-0123abcd --unfinished$"),
    ],
)
def test_of_a_draw_that_expired_the_way_out_is_said(
    ledger: Ledger, draw_store: DrawStore, begun: bool, advice: str
) -> None:
    """A release that has begun to draw is not reserved again."""
    if begun:
        take_part(ledger, draw_store, "count", "A", prepared_draw())
    assert ledger.draws.expire(timedelta(0), "r").returned == ("r",)
    with pytest.raises(BudgetError, match=advice):
        take_part(ledger, draw_store, "level-1", "A", prepared_draw(make=never_made))


def test_a_draw_that_a_reconciliation_has_lost_has_no_damaged_seed(
    ledger: Ledger, draw_store: DrawStore
) -> None:
    """It was never begun as far as the ledger knows: the reason is the restored ledger."""
    with ledger.session.writing() as journal:
        body = {"reconciled": True}
        kind, created = EventKind.CHARGED_LOST, datetime.now(UTC)
        journal.append(
            Event(
                kind=kind,
                actor="s",
                created=created,
                account="affairs",
                release="r",
                draw="level-1",
                body=body,
            )
        )
    with pytest.raises(
        BudgetError, match=r"charged and lost: the ledger was restored from an old copy"
    ) as refused:
        take_part(ledger, draw_store, "level-1", "A", prepared_draw(make=never_made))
    assert "seed" not in str(refused.value)
