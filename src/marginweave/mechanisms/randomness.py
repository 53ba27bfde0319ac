"""Makes random bits near private values: noise that a draw's seed determines, and keyed words for choices on rows."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NoReturn, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from marginweave.base.arrays import Integers, Words
from marginweave.base.errors import InputError

NOISE_FORMAT = "marginweave/noise/1"
REST_BITS = 65
# Most counter blocks that one key enciphers: telling them from random has an advantage of 2^-89 (2^40 / 2^129).
BLOCKS_A_KEY = 1 << 20

_BLOCK = 16
_WORD = 8
_KEY = 32
_WORDS_A_KEY = BLOCKS_A_KEY * _BLOCK // _WORD


class WordStream:
    """A sequence of words, read in portions of any size, under a new key after every 2^20 blocks."""

    def __init__(self, key: Callable[[int], algorithms.AES]) -> None:
        self._key = key
        self._position = 0

    def words(self, count: int) -> Words:
        """Return the next `count` words, shape (count,)."""
        words = _words(self._key, self._position, count)
        self._position += count
        return words

    def integer(self, bits: int) -> int:
        """Return a uniform integer of this many bits: the first bits of as many words as hold them, the first word highest."""
        words = self.words(-(-bits // 64)).tolist()
        joined = 0
        for word in words:
            joined = joined << 64 | word
        return joined >> 64 * len(words) - bits


class NumberedWords(Protocol):
    """A secret family of uniform 64-bit words, each with the number of the record whose choices it determines."""

    def words_at(self, start: int, count: int) -> Words:
        """Return words number `start` to `start + count - 1`."""
        ...


class CellWords(Protocol):
    """A secret family of uniform 64-bit words, one for every record and every slot of it."""

    def words_of(self, records: Integers, slots: Integers | int = 0) -> Words:
        """Return the word of each record and slot, shape (records,); a pair always has the same word, words are independent."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawBits:
    """The noise of one draw: a pseudo-random function of its seed and of what the draw is.

    The keys are HKDF-SHA256(seed, info), RFC 5869, where `encoded` makes info of the format, the context, a purpose, a place
    and the number of a block; AES-256 in counter mode gives the words of the block. So a word is a function of (seed, context,
    table, cell), the same whenever, wherever and in whatever order it is read, and words of other addresses are as if they were
    independent. A stream that is read again from its beginning gives the same words: a seed and context are for one draw.

    Attributes:
        seed: 32 bytes, secret.
        context: identifies the draw, strings and whole numbers: release, number, mechanism, parameters, digests. No rows.
        tainted: whether the seed is a test's and not the operating system's; ledger and publisher refuse it.

    Raises:
        InputError: a seed of another length, or a context of something else.
    """

    seed: bytes = field(repr=False)
    context: tuple[str | int, ...] = ()
    tainted: bool = False

    def __post_init__(self) -> None:
        if len(self.seed) != _KEY:
            raise InputError(f"seed of a draw must have {_KEY} bytes")
        encoded(*self.context)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: a seed leaves its process in no message, cache or file of another library."""
        raise TypeError("the seed of a draw stays in its process")

    def words(self, table: int, start: int, count: int) -> Words:
        """Return the words of cells `start` to `start + count - 1` of a table, shape (count,), uint64."""
        return _words(lambda block: self._key("cells", (table,), block), start, count)

    def rest(self, table: int, cell: int) -> int:
        """Return 65 more bits of a cell: a separate block of the cipher, under separate keys."""
        block, place = divmod(cell, BLOCKS_A_KEY)
        key = self._key("ties", (table,), block)
        low, high = _keystream(key, 0, 2 * place, 2).tolist()
        return int(high << 64 | low) >> 8 * _BLOCK - REST_BITS

    def stream(self, *place: int) -> WordStream:
        """Return a stream from its beginning, whose keys are for this place alone."""
        return WordStream(lambda block: self._key("stream", place, block))

    @cached_property
    def _key(self) -> Callable[[str, tuple[int, ...], int], algorithms.AES]:
        """Function that makes the key of a block: HKDF with no salt, extracted once, and expanded by one round of HMAC."""
        extracted = hmac.digest(bytes(_KEY), self.seed, "sha256")
        context = self.context

        @lru_cache(maxsize=4)
        def key(purpose: str, place: tuple[int, ...], block: int) -> algorithms.AES:
            info = encoded(NOISE_FORMAT, len(context), *context, purpose, len(place), *place, block)
            return algorithms.AES(hmac.digest(extracted, info + b"\x01", "sha256"))

        return key


def fresh_bits() -> DrawBits:
    """Return bits of a new seed, which is stored nowhere: for audits, measurements and tests.

    Noise of a release has a sealed seed.
    """
    return DrawBits(seed=os.urandom(_KEY))


def encoded(*parts: str | int) -> bytes:
    """Return strings and whole numbers as JSON in UTF-8: different parts have different encodings.

    Strings are in quotes and numbers are not, and a pair of surrogates differs from the letter that it would encode.
    Raises InputError for parts of another type.
    """
    if not all(type(part) in (str, int) for part in parts):
        raise InputError("the context of a draw must be strings and whole numbers")
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def _words(key: Callable[[int], algorithms.AES], start: int, count: int) -> Words:
    """Return words number `start` to `start + count - 1`, of which each key makes 2^21; shape (count,), uint64."""
    parts = [np.empty(0, np.uint64)]
    while count:
        block, place = divmod(start, _WORDS_A_KEY)
        taken = min(count, _WORDS_A_KEY - place)
        parts.append(_keystream(key(block), 0, place, taken))
        start += taken
        count -= taken
    return parts[-1] if len(parts) <= 2 else np.concatenate(parts)


def _keystream(key: algorithms.AES, first_block: int, start: int, count: int) -> Words:
    """Return words number `start` to `start + count - 1` of AES in counter mode from `first_block` on, little-endian."""
    block, skipped = divmod(start * _WORD, _BLOCK)
    counter = (first_block + block) % (1 << 8 * _BLOCK)
    cipher = Cipher(key, modes.CTR(counter.to_bytes(_BLOCK, "big"))).encryptor()
    stream = cipher.update(bytes(skipped + count * _WORD))
    return np.frombuffer(stream, "<u8", offset=skipped).astype(np.uint64, copy=False)


@dataclass(kw_only=True)
class KeyedBits:
    """Uniform 64-bit words that a secret key and a purpose determine: for choices on private rows, never for noise.

    AES-256 in counter mode; key and first counter block are HKDF-SHA256(key, info = purpose), so that streams of different
    purposes are independent. It has no `words` and no `tainted` on purpose: it is no `DrawBits`, and the type checker
    refuses it as a source of noise. Raises InputError for a key of less than 32 bytes.
    """

    key: bytes = field(repr=False)
    purpose: str

    def __post_init__(self) -> None:
        if len(self.key) < _KEY:
            raise InputError(f"key of the {self.purpose} stream must have at least {_KEY} bytes")
        derivation = HKDF(
            algorithm=SHA256(),
            length=_KEY + _BLOCK,
            salt=None,
            info=b"marginweave/" + self.purpose.encode(),
        )
        derived = derivation.derive(self.key)
        self._cipher_key = algorithms.AES(derived[:_KEY])
        self._first_block = int.from_bytes(derived[_KEY:], "big")

    def words_at(self, start: int, count: int) -> Words:
        """Return words number `start` to `start + count - 1`, shape (count,), uint64: the same in any chunking."""
        return _keystream(self._cipher_key, self._first_block, start, count)

    def words_of(self, records: Integers, slots: Integers | int = 0) -> Words:
        """Return the word of each record and slot, whatever other words are read; shape (records,), uint64.

        AES-256 of first block xor (record, slot): one block of the cipher each, of which half is used. A purpose serves either
        this or the stream, never both.
        """
        blocks = np.empty((len(records), 2), "<u8")
        low = self._first_block & (2**64 - 1)
        high = self._first_block >> 64
        blocks[:, 0] = np.asarray(records).astype(np.uint64) ^ np.uint64(low)
        blocks[:, 1] = np.asarray(slots).astype(np.uint64) ^ np.uint64(high)
        # Each pair is enciphered alone, as a pseudo-random function: there is no message whose blocks could repeat.
        cipher = Cipher(self._cipher_key, modes.ECB()).encryptor()  # noqa: S305
        enciphered = cipher.update(blocks.tobytes())
        return np.frombuffer(enciphered, "<u8")[::2].astype(np.uint64)


@dataclass(frozen=True, kw_only=True)
class RecordWords:
    """Words of the given records, each a function of the record's own number: the same in whatever block the record is."""

    words: CellWords
    records: Integers

    def words_of(self, records: Integers, slots: Integers | int = 0) -> Words:
        """Return the word of each slot of the records at the places `records` of these."""
        return self.words.words_of(self.records[records], slots)
