"""Sources of random bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.schemas.errors import InputError
from marginweave.tasks.budget.randomness import KeyedBits, OsBits
from tests.support.seeded_bits import SeededBits

KEY = bytes(range(32))


def test_the_operating_system_never_repeats() -> None:
    """Bytes of the asked length, different each time, and untainted."""
    source = OsBits()
    assert not source.tainted
    assert len(source.take(33)) == 33
    assert source.take(32) != source.take(32)


def test_seeded_bits_repeat_and_say_so() -> None:
    """The tests' source is tainted; the same seed and calls give the same bytes, another seed others."""
    first, same, other = SeededBits(5), SeededBits(5), SeededBits(6)
    assert first.tainted
    assert [first.take(8), first.take(8)] == [same.take(8), same.take(8)]
    assert first.take(16) != other.take(16)


@given(st.integers(0, 99), st.lists(st.integers(0, 13), max_size=6))
def test_keyed_words_do_not_depend_on_chunks(start: int, sizes: list[int]) -> None:
    """Any cutting of the stream, in order or at any offset, gives the same words."""
    whole = KeyedBits(key=KEY, purpose="bounding").words_at(0, 200)
    stream = KeyedBits(key=KEY, purpose="bounding")
    parts = [stream.uniform_words(size) for size in sizes]
    assert np.array_equal(np.concatenate([np.zeros(0, np.uint64), *parts]), whole[: sum(sizes)])
    assert np.array_equal(stream.words_at(start, 7), whole[start : start + 7])


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
    """They lack what RandomBits needs, so that noise can never come from them."""
    assert not hasattr(KeyedBits, "take")
    assert not hasattr(KeyedBits, "tainted")
