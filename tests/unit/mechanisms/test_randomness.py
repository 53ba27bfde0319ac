"""Sources of random bits."""

from __future__ import annotations

import copy
import pickle
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.mechanisms import randomness
from marginweave.mechanisms.randomness import NOISE_FORMAT, DrawBits, KeyedBits, encoded, fresh_bits
from tests.support.seeded_bits import SeededBits

KEY = bytes(range(32))
BLOCKS = 2**20  # that a key enciphers at most
PARTS = st.lists(st.one_of(st.integers(), st.text(st.characters(), max_size=4)), max_size=5)


def test_fresh_bits_never_repeat() -> None:
    """Seeds of the operating system: other words each time, untainted."""
    source = fresh_bits()
    assert not source.tainted
    assert source.words(0, 0, 4).tolist() != fresh_bits().words(0, 0, 4).tolist()


def test_seeded_bits_repeat_and_say_so() -> None:
    """The tests' source is tainted; the same seed and context give the same words, others give others."""
    assert SeededBits(5).tainted
    assert SeededBits(5, "a").words(0, 0, 4).tolist() == SeededBits(5, "a").words(0, 0, 4).tolist()
    given = (SeededBits(5), SeededBits(6), SeededBits(5, "a"), SeededBits(5, 1), SeededBits(5, "1"))
    others = {tuple(bits.words(0, 0, 4).tolist()) for bits in given}
    assert len(others) == 5


def test_words_are_those_of_hkdf_and_aes_as_others_make_them() -> None:
    """By cryptography's own HKDF and whole counter blocks: cells, ties, streams, and the second key of a table."""
    bits = DrawBits(seed=KEY, context=("release", 7))

    def stream(*rest: str | int) -> bytes:
        info = encoded(NOISE_FORMAT, 2, "release", 7, *rest)
        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(KEY)
        return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(1 << 10))

    def words(*rest: str | int) -> list[int]:
        return np.frombuffer(stream(*rest), "<u8").tolist()

    assert bits.words(3, 5, 20).tolist() == words("cells", 1, 3, 0)[5:25]
    assert bits.words(3, (1 << 21) + 1, 20).tolist() == words("cells", 1, 3, 1)[1:21]
    assert (
        bits.rest(3, 9) == int.from_bytes(stream("ties", 1, 3, 0)[9 * 16 : 10 * 16], "little") >> 63
    )
    assert (
        bits.rest(3, (1 << 20) + 2)
        == int.from_bytes(stream("ties", 1, 3, 1)[2 * 16 : 3 * 16], "little") >> 63
    )
    assert bits.stream(4, 6).words(11).tolist() == words("stream", 2, 4, 6, 0)[:11]
    first, second = words("stream", 0, 0)[:2]
    assert bits.stream().integer(65) == (first << 64 | second) >> 63


@given(PARTS, PARTS)
@settings(max_examples=75)
def test_no_two_contexts_have_the_same_encoding(one: list[Any], other: list[Any]) -> None:
    """Whatever strings and numbers they are of, lone surrogates too."""
    assert (encoded(*one) == encoded(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [((1,), ("1",)), (("a", "b"), ("a,b",)), (("\ud83d\ude00",), ("\U0001f600",)), (("",), ())],
)
def test_contexts_that_look_alike_are_told_apart(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    assert encoded(*one) != encoded(*other)
    words = [
        DrawBits(seed=KEY, context=context).words(0, 0, 2).tolist() for context in (one, other)
    ]
    assert words[0] != words[1]


@pytest.mark.parametrize("context", [(True,), (1.5,), (None,), (("a",),), (np.int64(1),)])
def test_contexts_of_other_types_are_refused(context: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="must be strings and whole numbers"):
        DrawBits(seed=KEY, context=context)


@pytest.mark.parametrize("seed", [b"", b"short", bytes(31), bytes(33)])
def test_a_seed_has_32_bytes(seed: bytes) -> None:
    with pytest.raises(InputError, match="must have 32 bytes"):
        DrawBits(seed=seed)


def test_a_seed_is_never_told() -> None:
    """Not in a representation, and in no message to another process."""
    seed = b"a seed of 32 letters, no fewer.."
    bits = DrawBits(seed=seed, context=("release",))
    bits.words(0, 0, 1)
    assert "letters" not in repr(bits) + str(bits) + repr(bits.stream(0)) + repr(bits._key)
    for send in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="stays in its process"):
            send(bits)


def test_no_key_enciphers_more_than_2_to_the_20_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, ties and streams that go beyond go on under another key, at its first block."""
    used: list[tuple[bytes, int, int]] = []
    real = randomness._keystream

    def spy(key: algorithms.AES, first_block: int, start: int, count: int) -> Any:
        used.append((bytes(key.key), start, count))
        return real(key, first_block, start, count)

    monkeypatch.setattr(randomness, "_keystream", spy)
    bits = DrawBits(seed=KEY)
    stream = bits.stream(1)
    bits.words(0, 2 * BLOCKS - 3, 8)
    stream.words(2 * BLOCKS - 3)
    stream.words(8)
    bits.rest(0, BLOCKS - 1)
    bits.rest(0, BLOCKS)
    assert [(start, count) for _, start, count in used] == [
        (2 * BLOCKS - 3, 3), (0, 5), (0, 2 * BLOCKS - 3), (2 * BLOCKS - 3, 3), (0, 5),
        (2 * BLOCKS - 2, 2), (0, 2),
    ]  # fmt: skip
    assert len({key for key, _, _ in used}) == 6


@given(st.integers(0, 99), st.lists(st.integers(0, 13), max_size=6))
def test_keyed_words_do_not_depend_on_chunks(start: int, sizes: list[int]) -> None:
    """Any cutting of the stream, in order or at any offset, gives the same words."""
    whole = KeyedBits(key=KEY, purpose="bounding").words_at(0, 200)
    keyed = KeyedBits(key=KEY, purpose="bounding")
    edges = [0, *accumulate(sizes)]
    parts = [keyed.words_at(low, high - low) for low, high in pairwise(edges)]
    assert np.array_equal(np.concatenate([np.zeros(0, np.uint64), *parts]), whole[: sum(sizes)])
    assert np.array_equal(keyed.words_at(start, 7), whole[start : start + 7])


def test_keyed_streams_of_other_keys_or_purposes_share_nothing() -> None:
    """Key and purpose both matter; a stream does not repeat within itself."""
    streams = [
        KeyedBits(key=key, purpose=purpose).words_at(0, 1000).tolist()
        for key in (KEY, KEY[::-1])
        for purpose in ("bounding-1", "bounding-2")
    ]
    words = [word for stream in streams for word in stream]
    assert len(set(words)) == len(words)


def test_keyed_words_are_uniform() -> None:
    """Each of the 64 bits is set in half of 2^16 words, within 6 standard deviations: false alarm 64 * 2e-9 at most."""
    words = KeyedBits(key=KEY, purpose="uniform").words_at(0, 1 << 16)
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).sum(axis=0, dtype=np.int64)
    assert np.all(np.abs(bits - (1 << 15)) < 6 * 128)


def test_a_key_is_secret_and_long_enough() -> None:
    """A short key is refused, and the key never shows in a representation."""
    with pytest.raises(InputError, match="at least 32 bytes"):
        KeyedBits(key=b"short", purpose="bounding")
    assert "key" not in repr(KeyedBits(key=KEY, purpose="bounding"))


def test_keyed_bits_are_no_source_of_noise() -> None:
    """They lack what DrawBits needs, so that noise can never come from them."""
    for needed in ("words", "rest", "stream", "tainted"):
        assert not hasattr(KeyedBits, needed)
        assert hasattr(fresh_bits(), needed)
