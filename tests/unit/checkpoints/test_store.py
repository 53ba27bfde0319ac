"""A checkpoint is whole, authentic and in its own place, or it is not used."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import StageError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.checkpoints.store import Store, address, open_seal, seal
from marginweave.draws.files import DrawStore
from tests.support.draws import stage_draw


def _only_file(folder: Path) -> Path:
    (found,) = [path for path in folder.iterdir() if path.is_file()]
    return found


def test_what_was_put_is_got(store: Store) -> None:
    """Payloads come back byte for byte, empty ones too; what was not put is None."""
    for payload in (b"", b"\0" * 100, b"MWSEAL01" * 9):
        key = address("encode", "1", {"columns": ["a"]}, [payload.hex()])
        assert store.get("encode", key) is None
        digest = store.put("encode", key, payload)
        assert store.get("encode", key) == payload
        assert store.put("encode", key, payload) == digest
    assert store.get("validate", key) is None


def test_every_part_of_an_address_counts() -> None:
    """Stage, code, configuration, inputs and the order of inputs give different addresses; key order does not."""
    base = ("encode", "1", {"a": 1, "b": [1, 2]}, ["x", "y"])
    others = [
        ("decode", *base[1:]),
        (base[0], "2", *base[2:]),
        (*base[:2], {"a": 1, "b": [2, 1]}, base[3]),
        (*base[:3], ["y", "x"]),
        (*base[:3], ["xy"]),
    ]
    assert len({address(*arguments) for arguments in [base, *others]}) == 6
    assert address(*base) == address("encode", "1", {"b": [1, 2], "a": 1}, ["x", "y"])


def test_digests_and_names_are_keyed(folder: RunFolder, store: Store) -> None:
    """Nothing that leaves the store can be guessed from the payload without the key, and payloads have digests of their own."""
    payload = b"three private rows"
    key = address("encode", "1", {}, [])
    digest = store.put("encode", key, payload)
    other = Store(folder.derived, b"k" * 32)
    assert other.put("encode", key, payload) != digest
    assert other.place("encode", key).name != store.place("encode", key).name
    guess = hashlib.sha256(payload).hexdigest()
    assert digest != guess
    assert store.put("encode", "another", b"three private row!") != digest
    assert all(guess[:8] not in path.name for path in folder.private.iterdir())
    assert str(store.key) not in repr(store)


def test_other_bytes_for_one_address_are_refused(store: Store) -> None:
    """A stage that is not deterministic is found out; the first result stands."""
    store.put("encode", "k", b"first")
    with pytest.raises(StageError, match="stage encode"):
        store.put("encode", "k", b"second")
    assert store.get("encode", "k") == b"first"


@settings(max_examples=25, deadline=None)
@given(data=st.data(), payload=st.binary(max_size=200))
def test_any_damage_is_found(data: st.DataObject, payload: bytes) -> None:
    """A flipped bit, a cut or an addition anywhere makes the checkpoint and the draw unusable."""
    with TemporaryDirectory() as home:
        folder = RunFolder.at(Path(home), "run")
        folder.create()
        store, draws = Store(folder.private, b"k" * 32), DrawStore(folder, b"k" * 32)
        store.put("encode", "address", payload)
        digest = stage_draw(draws, "r", "count", "lease", payload)
        drawn = draws.place("count", "lease")
        for place in (store.place("encode", "address"), drawn, drawn.with_suffix(".copy")):
            whole = place.read_bytes()
            position = data.draw(st.integers(0, len(whole) - 1))
            flipped = bytearray(whole)
            flipped[position] ^= 1 << data.draw(st.integers(0, 7))
            place.write_bytes(
                data.draw(st.sampled_from([bytes(flipped), whole[:position], whole + b"\0", b""]))
            )
        with pytest.raises(
            StageError, match=r"stage encode: .*encode-[0-9a-f]{16}\.ckpt is damaged"
        ):
            store.get("encode", "address")
        assert draws.read("r", "count", "lease", None) is None
        assert draws.read("r", "count", "lease", digest) is None


def test_every_byte_is_under_the_seal() -> None:
    """A bit changed in any byte of a long payload, or of the trailer, breaks the seal."""
    whole, digest = seal(b"k" * 32, ("stage", "encode", "a"), bytes(range(256)) * 2)
    assert open_seal(b"k" * 32, ("stage", "encode", "a"), whole) == (bytes(range(256)) * 2, digest)
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1
        assert open_seal(b"k" * 32, ("stage", "encode", "a"), bytes(changed)) is None


def test_files_of_another_place_or_key_are_refused(
    folder: RunFolder, store: Store, draw_store: DrawStore
) -> None:
    """An authentic file under the name of another address, stage, lease or release is foreign there."""
    store.put("encode", "a", b"payload")
    whole = store.place("encode", "a").read_bytes()
    for stage, key in (("encode", "b"), ("decode", "a")):
        store.place(stage, key).write_bytes(whole)
        with pytest.raises(StageError, match=f"stage {stage}"):
            store.get(stage, key)
    stolen = Store(folder.private, b"x" * 32)
    stolen.place("encode", "a").write_bytes(whole)
    with pytest.raises(StageError):
        stolen.get("encode", "a")
    stage_draw(draw_store, "r", "count", "A", b"draw")
    whole = draw_store.place("count", "A").read_bytes()
    for name, lease in (("count", "B"), ("level-1", "A")):
        draw_store.place(name, lease).write_bytes(whole)
        assert draw_store.read("r", name, lease, None) is None
    assert draw_store.read("other", "count", "A", None) is None
    assert draw_store.read("r", "count", "A", "0" * 64) is None
    assert draw_store.read("r", "count", "A", None) == b"draw"


def test_a_draw_is_never_written_over(draw_store: DrawStore) -> None:
    """The second draw of one lease is refused, even of equal bytes."""
    digest = stage_draw(draw_store, "r", "count", "A", b"draw")
    with pytest.raises(StageError, match="must be new"):
        stage_draw(draw_store, "r", "count", "A", b"draw")
    assert digest == draw_store.mend(b"draw", "r", "count", "A")


def test_private_files_are_the_owners_alone(
    folder: RunFolder, store: Store, draw_store: DrawStore
) -> None:
    """Checkpoints and draws have mode 0600, and no temporary file is left."""
    before = os.umask(0)
    try:
        store.put("encode", "a", b"payload")
        stage_draw(draw_store, "r", "count", "A", b"draw")
    finally:
        os.umask(before)
    for path in (_only_file(folder.private), *folder.draws.iterdir()):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("call", ["fsync", "link", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_full_or_read_only_disk_names_the_place(
    folder: RunFolder,
    store: Store,
    draw_store: DrawStore,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
) -> None:
    """A fault of the disk is a StageError with the file's name, without the payload, and nothing is left behind."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    for write, place in (
        (lambda: store.put("encode", "a", b"secret"), store.place("encode", "a")),
        (
            lambda: stage_draw(draw_store, "r", "count", "A", b"secret"),
            draw_store.place("count", "A"),
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(StageError, match=os.strerror(code)) as error:
                write()
        assert str(place) in str(error.value)
        assert "secret" not in str(error.value)
    assert sorted(path.name for path in folder.private.iterdir()) == ["draws", "seeds"]
    assert not list(folder.draws.iterdir())


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x"])
def test_names_cannot_leave_the_folder(store: Store, draw_store: DrawStore, name: str) -> None:
    """A stage, draw or lease that is a path is refused."""
    for call in (
        lambda: store.place(name, "a"),
        lambda: draw_store.place(name, "A"),
        lambda: draw_store.place("a", name),
    ):
        with pytest.raises(ValueError, match="must be 1 to 64"):
            call()


def test_links_are_not_followed(store: Store, tmp_path: Path) -> None:
    """A link in the place of a checkpoint is an error, not a way out of the folder."""
    store.put("encode", "a", b"payload")
    place = store.place("encode", "a")
    outside = place.rename(tmp_path / "outside")
    place.symlink_to(outside)
    with pytest.raises(StageError):
        store.get("encode", "a")
