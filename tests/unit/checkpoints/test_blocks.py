"""A checkpoint of blocks is whole, in order and ours, or it is refused; a writer that dies leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import StageError
from marginweave.checkpoints.store import _END, _ENTRY, Store, open_blocks, write_blocks
from tests.support.draws import KEY

ADDRESS = ("stage", "encode", "0123")
PAYLOADS = [b"first block", b"", b"the third, which is longer", b"last"]


def written(folder: Path, payloads: list[bytes] = PAYLOADS, name: str = "a.ckpt") -> Path:
    path = folder / name
    write_blocks(path, KEY, ADDRESS, iter(payloads))
    return path


def read(path: Path, key: bytes = KEY, address: tuple[str, ...] = ADDRESS) -> list[bytes]:
    blocks = open_blocks(path, key, address)
    assert blocks is not None
    return list(blocks)


@given(st.lists(st.binary(max_size=40), max_size=6))
@settings(deadline=None, max_examples=15)
def test_what_was_written_is_read_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]
) -> None:
    path = written(tmp_path_factory.mktemp("blocks"), payloads)
    blocks = open_blocks(path, KEY, ADDRESS)
    assert blocks is not None
    assert list(blocks) == list(blocks[:]) == payloads
    assert [blocks[i] for i in reversed(range(len(blocks)))] == payloads[::-1]
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_file_is_no_checkpoint(tmp_path: Path) -> None:
    assert open_blocks(tmp_path / "absent", KEY, ADDRESS) is None


def test_the_digest_tells_contents_keys_and_addresses_apart(tmp_path: Path) -> None:
    """Keyed: the same blocks under another key, address, order or partition into blocks have another digest."""
    variants = [
        (PAYLOADS, KEY, ADDRESS),
        (PAYLOADS[::-1], KEY, ADDRESS),
        ([b"".join(PAYLOADS)], KEY, ADDRESS),
        (PAYLOADS, KEY[::-1], ADDRESS),
        (PAYLOADS, KEY, ("stage", "encode", "4567")),
    ]
    digests = set()
    for number, (payloads, key, address) in enumerate(variants):
        path = tmp_path / str(number)
        write_blocks(path, key, address, payloads)
        blocks = open_blocks(path, key, address)
        assert blocks is not None
        digests.add(blocks.digest)
    assert len(digests) == len(variants)


def test_every_byte_counts(tmp_path: Path) -> None:
    """One flipped bit, wherever it is: the file is refused when it is opened, or the block when it is read."""
    path = written(tmp_path)
    sound = path.read_bytes()
    for place in range(len(sound)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(StageError, match="is damaged"):
            read(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    """At every length, and with bytes after its end."""
    path = written(tmp_path)
    sound = path.read_bytes()
    for content in [sound[:length] for length in range(len(sound))] + [sound + b"\0"]:
        path.write_bytes(content)
        with pytest.raises(StageError, match="is damaged"):
            read(path)


def parts(path: Path) -> tuple[list[bytes], list[bytes], bytes]:
    """The blocks, the entries of the index, and the end of a file."""
    content, count = path.read_bytes(), len(PAYLOADS)
    end = len(content) - _END.size
    index = content[end - count * _ENTRY.size : end]
    return (
        list(PAYLOADS),
        [index[i * _ENTRY.size :][: _ENTRY.size] for i in range(count)],
        content[end:],
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda blocks, index, end: (blocks[::-1], index, end),
        lambda blocks, index, end: (blocks[::-1], index[::-1], end),
        lambda blocks, index, end: (
            [blocks[0], *blocks[:1], *blocks[2:]],
            [index[0], index[0], *index[2:]],
            end,
        ),
        lambda blocks, index, end: (blocks[1:], index[1:], end),
        lambda blocks, index, end: (blocks[:-1], index[:-1], _END.pack(3, *_END.unpack(end)[1:])),
        lambda *parts: ([], [], _END.pack(0, *_END.unpack(parts[2])[1:])),
        lambda blocks, index, end: (blocks, index, _END.pack(2**63, *_END.unpack(end)[1:])),
    ],
    ids=[
        "blocks reordered",
        "and their entries",
        "one twice",
        "first lost",
        "last cut off",
        "none",
        "too many",
    ],
)
def test_blocks_that_are_rearranged_are_refused(tmp_path: Path, change: Callable) -> None:
    path = written(tmp_path)
    blocks, index, end = change(*parts(path))
    path.write_bytes(b"".join([*blocks, *index, end]))
    with pytest.raises(StageError, match="is damaged"):
        read(path)


def test_a_block_of_another_file_is_refused(tmp_path: Path) -> None:
    """Same key and place, another address: neither the file nor a block of it can stand for the other."""
    path = written(tmp_path)
    other = tmp_path / "b.ckpt"
    write_blocks(other, KEY, ("stage", "encode", "4567"), [b"other block", *PAYLOADS[1:]])
    for address, key in ((ADDRESS, KEY), (("stage", "encode", "4567"), bytes(32))):
        with pytest.raises(StageError, match="written under another key"):
            read(other, key, address)
    content = path.read_bytes()
    path.write_bytes(b"other block" + content[len(PAYLOADS[0]) :])
    blocks = open_blocks(path, KEY, ADDRESS)
    assert blocks is not None
    assert blocks[1] == PAYLOADS[1]
    with pytest.raises(StageError, match="is damaged"):
        blocks[0]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "link").symlink_to("a.ckpt")
    with pytest.raises(StageError, match="cannot be read"):
        read(tmp_path / "link")


def test_what_is_there_stands(store: Store) -> None:
    """A complete file is not written again, whatever the second writer brings; the store refuses one it cannot verify."""
    first = store.put_blocks("encode", "k", PAYLOADS)
    assert store.put_blocks("encode", "k", [b"other"]).digest == first.digest
    place = store.place("encode", "k")
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(StageError, match="is damaged"):
        store.blocks("encode", "k")
    with pytest.raises(StageError, match="is damaged"):
        store.put_blocks("encode", "k", PAYLOADS)


def test_a_stage_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def payloads() -> Iterator[bytes]:
        yield PAYLOADS[0]
        raise ValueError("in the second block")

    with pytest.raises(ValueError, match="second block"):
        write_blocks(tmp_path / "a.ckpt", KEY, ADDRESS, payloads())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", ["in a block", "before the name"])
def test_a_killed_writer_leaves_no_checkpoint(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL between any two steps: there is no file of that name, and the next writer is not disturbed."""
    from marginweave.base import durable as files

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def payloads() -> Iterator[bytes]:
        yield PAYLOADS[0]
        if moment == "in a block":
            die()

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(files.StagedFile, "name_it", lambda _: die())
        write_blocks(tmp_path / "a.ckpt", KEY, ADDRESS, payloads())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert open_blocks(tmp_path / "a.ckpt", KEY, ADDRESS) is None
    assert read(written(tmp_path)) == PAYLOADS
    files.remove_temporary_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]
