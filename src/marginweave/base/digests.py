"""Computes digests of the inputs and parameters of a draw: numbers in their order and shape, fractions, texts.

They are SHA-256 of an encoding that differs for any two inputs: lengths come before or after what they count, numbers are
little-endian.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.errors import InputError

if TYPE_CHECKING:
    from _hashlib import HASH  # what hashlib.sha256 returns has no public name


def counts_digest(arrays: Iterable[Integers]) -> str:
    """Return the digest of arrays of whole numbers, their shapes and their order: marginals, a histogram, scores, a count.

    Raises:
        InputError: an array of another type.
    """
    digest = hashlib.sha256(b"counts/1")
    number = 0
    for array in arrays:
        add_integers(digest, array)
        number += 1
    digest.update(_length(number))
    return digest.hexdigest()


def fractions_digest(values: Iterable[Fraction]) -> str:
    """Return the digest of public fractions in their order."""
    return text_digest(map(str, values))


def text_digest(texts: Iterable[str]) -> str:
    """Return the digest of texts in their order."""
    digest = hashlib.sha256(b"texts/1")
    add_json(digest, list(texts))
    return digest.hexdigest()


def add_integers(digest: HASH, array: Integers) -> None:
    """Add an array to a digest, its shape first; raises InputError unless it is of int64."""
    if array.dtype != np.int64:
        raise InputError(f"counts ({array.dtype}) must be int64")
    add_json(digest, list(array.shape))
    digest.update(array.astype("<i8").tobytes())


def add_json(digest: HASH, facts: Sequence[object]) -> None:
    """Add JSON values to a digest, their length first."""
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    encoded = text.encode("utf-8", "surrogatepass")
    digest.update(_length(len(encoded)) + encoded)


def _length(number: int) -> bytes:
    return number.to_bytes(8, "little")
