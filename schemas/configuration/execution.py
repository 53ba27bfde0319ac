"""How a release is computed, and never what is released: machines, memory, partitions of subjects."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize

from marginweave.schemas.configuration.engine import Engine, EngineSettings
from marginweave.schemas.configuration.numbers import FROZEN, to_whole

_SIZE = re.compile(r"[\d.]+\s*[A-Za-z]*")
_LEAST_MEMORY = 256_000_000
_MOST_PARTITIONS = 4096
# A block is there as read, as cleaned and as encoded, each with room to convert it, and the allocator keeps what is freed.
_BYTES_A_CELL = 64
_SHARE = 8
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 18


def _nothing_else(value: object) -> object:
    """Refuse what stands behind a size, which pydantic does not look at."""
    if isinstance(value, str) and not _SIZE.fullmatch(value.strip()):
        raise ValueError("must be a size such as 2GB")
    return value


def _enough(value: ByteSize) -> ByteSize:
    if value < _LEAST_MEMORY:
        raise ValueError("must be at least 256MB")
    return value


def _some(value: int) -> int:
    if not 1 <= value <= _MOST_PARTITIONS:
        raise ValueError(f"must lie in [1, {_MOST_PARTITIONS}]")
    return value


Memory = Annotated[ByteSize, BeforeValidator(_nothing_else), AfterValidator(_enough)]
Partitions = Annotated[int, BeforeValidator(to_whole), AfterValidator(_some)]


class Execution(BaseModel):
    """What may change while a release is made: it is no part of what the release is, nor of its digest."""

    model_config = FROZEN
    engine: Engine = EngineSettings()
    memory: Memory = ByteSize(2_000_000_000)
    partitions: Partitions = 16


def block_rows(memory: int, columns: int) -> int:
    """Rows that a stage holds at a time: memory / (8 x 64 bytes x columns), from public facts alone, 1024 to 262144.

    Beyond that many rows a block gains no speed. DP: arithmetic on public numbers.
    """
    fitting = memory // (_SHARE * _BYTES_A_CELL * max(1, columns))
    return min(max(fitting, _LEAST_ROWS), _MOST_ROWS)
