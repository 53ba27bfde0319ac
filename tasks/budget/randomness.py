"""Sources of random bits near private values: the operating system, and a keyed stream for choices on rows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from marginweave.schemas.errors import InputError

_BLOCK = 16
_WORD = 8
_KEY = 32


class RandomBits(Protocol):
    """Where noise comes from. What was made with a `tainted` source is for tests: ledger and publisher refuse it."""

    @property
    def tainted(self) -> bool:
        """Whether the bits can be repeated."""

    def take(self, nbytes: int) -> bytes:
        """The next `nbytes` random bytes."""


class UniformWords(Protocol):
    """A secret stream of uniform 64-bit words, for choices on private rows."""

    def uniform_words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words."""


class NumberedWords(Protocol):
    """The same, where each word has a number: that of the record whose choices it is for."""

    def words_at(self, start: int, count: int) -> NDArray[np.uint64]:
        """Words number `start` to `start + count - 1`."""


class CellWords(Protocol):
    """A secret family of uniform 64-bit words, one for every record and every slot of it."""

    def words_of(self, records: NDArray[np.int64], slots: NDArray[np.int64] | int = 0) -> NDArray[np.uint64]:
        """The word of each record and slot, shape (records,); the same pair has the same word, others are independent."""


class OsBits:
    """The operating system's generator: no state of ours, so forks, threads and restarts never share a bit."""

    tainted: ClassVar[bool] = False

    def take(self, nbytes: int) -> bytes:
        """`nbytes` bytes of os.urandom."""
        return os.urandom(nbytes)


@dataclass(kw_only=True)
class KeyedBits:
    """Uniform 64-bit words that a secret key and a purpose determine: for choices on private rows, never for noise.

    AES-256 in counter mode; key and first counter block are HKDF-SHA256(key, info = purpose), so that streams of different
    purposes are independent. It has no `take` and no `tainted` on purpose: it is no `RandomBits`, and the type checker
    refuses it as a source of noise. Raises InputError for a key of less than 32 bytes.
    """

    key: bytes = field(repr=False)
    purpose: str
    position: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if len(self.key) < _KEY:
            raise InputError(f"key of the {self.purpose} stream must have at least {_KEY} bytes")
        derived = HKDF(
            algorithm=SHA256(), length=_KEY + _BLOCK, salt=None, info=b"marginweave/" + self.purpose.encode()
        ).derive(self.key)
        self._cipher_key = algorithms.AES(derived[:_KEY])
        self._first_block = int.from_bytes(derived[_KEY:], "big")

    def words_at(self, start: int, count: int) -> NDArray[np.uint64]:
        """Words number `start` to `start + count - 1` of the stream, shape (count,), uint64: independent of any chunking."""
        block, skipped = divmod(start * _WORD, _BLOCK)
        counter = (self._first_block + block) % (1 << 8 * _BLOCK)
        cipher = Cipher(self._cipher_key, modes.CTR(counter.to_bytes(_BLOCK, "big"))).encryptor()
        stream = cipher.update(bytes(skipped + count * _WORD))
        return np.frombuffer(stream, "<u8", offset=skipped).astype(np.uint64, copy=False)

    def words_of(self, records: NDArray[np.int64], slots: NDArray[np.int64] | int = 0) -> NDArray[np.uint64]:
        """The word of each record and slot, whatever others are asked for; shape (records,), uint64.

        AES-256 of first block xor (record, slot): one block of the cipher each, of which half is used. A purpose serves either
        this or the stream, never both.
        """
        blocks = np.empty((len(records), 2), "<u8")
        low, high = self._first_block & (2**64 - 1), self._first_block >> 64
        blocks[:, 0] = np.asarray(records).astype(np.uint64) ^ np.uint64(low)
        blocks[:, 1] = np.asarray(slots).astype(np.uint64) ^ np.uint64(high)
        # No pair occurs twice in what is enciphered as a whole: a pseudo-random function, no message.
        cipher = Cipher(self._cipher_key, modes.ECB()).encryptor()  # noqa: S305
        enciphered = cipher.update(blocks.tobytes())
        return np.frombuffer(enciphered, "<u8")[::2].astype(np.uint64)

    def uniform_words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the stream, shape (count,), uint64."""
        words = self.words_at(self.position, count)
        self.position += count
        return words


@dataclass(frozen=True, kw_only=True)
class RecordWords:
    """Words of the given records, each a function of the record's own number: the same in whatever block it stands."""

    words: CellWords
    records: NDArray[np.int64]

    def uniform_words(self, count: int) -> NDArray[np.uint64]:
        """One word a record, or as many as there are copies of the table, one copy after the other.

        Raises:
            ValueError: `count` is no multiple of the number of records.
        """
        copies, rest = divmod(count, max(1, len(self.records)))
        if rest or (copies and not len(self.records)):
            raise ValueError("words are one a record of each copy")
        parts = [self.words.words_of(self.records, copy) for copy in range(copies)]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    def words_of(self, records: NDArray[np.int64], slots: NDArray[np.int64] | int = 0) -> NDArray[np.uint64]:
        """The word of each slot of the records that stand at the places `records` of these."""
        return self.words.words_of(self.records[records], slots)
