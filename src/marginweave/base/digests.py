"""Digests of what a draw is given and draws by: numbers in their order and shape, fractions, texts.

SHA-256 of an encoding that tells every input apart: lengths stand before or after what they count, numbers are
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
    """Of arrays of whole numbers, their shapes and their order: marginals, a histogram, scores, a record count.

    Raises:
        InputError: an array of another type.
    """
    whole, number = hashlib.sha256(b"counts/1"), 0
    for array in arrays:
        add_integers(whole, array)
        number += 1
    whole.update(_length(number))
    return whole.hexdigest()


def fractions_digest(values: Iterable[Fraction]) -> str:
    """Of public fractions in their order."""
    return text_digest(map(str, values))


def text_digest(texts: Iterable[str]) -> str:
    """Of texts in their order."""
    whole = hashlib.sha256(b"texts/1")
    add_json(whole, list(texts))
    return whole.hexdigest()


def add_integers(whole: HASH, array: Integers) -> None:
    """Add an array, its shape first; raises InputError unless it is of int64."""
    if array.dtype != np.int64:
        raise InputError(f"counts ({array.dtype}) must be int64")
    add_json(whole, list(array.shape))
    whole.update(array.astype("<i8").tobytes())


def add_json(whole: HASH, facts: Sequence[object]) -> None:
    """Add JSON values, their length first."""
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    whole.update(_length(len(text)) + text)


def _length(number: int) -> bytes:
    return number.to_bytes(8, "little")
