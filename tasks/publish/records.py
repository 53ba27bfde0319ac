"""Synthetic records as codes over the released domain, for the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marginweave.schemas.aggregates import Domain
from marginweave.schemas.configuration import Configuration
from marginweave.tasks.encode.codes import code_type, encode_table
from marginweave.tasks.preprocess.clean import clean_table

RecordCodes = tuple[NDArray[np.unsignedinteger], ...]
AnyCode = TypeVar("AnyCode", bound=np.integer)


def join_blocks(blocks: Iterable[Sequence[NDArray[AnyCode]]]) -> tuple[NDArray[AnyCode], ...]:
    """The codes of all blocks, attribute by attribute. DP: post-processing."""
    return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))


def record_codes(records: pa.Table, domain: Domain, configuration: Configuration) -> RecordCodes:
    """Codes of each attribute, shape (n,), or (n, width) for a set, whatever the block holds; its size is missing.

    The values of a private domain are those that the records hold, so they are numbered anew. DP: post-processing.

    Args:
        records: The synthetic table, as it was decoded or read back.
        domain: The released domain.
        configuration: What is declared, bounds resolved.
    """
    encoded = encode_table(clean_table(records, configuration), configuration)
    codes = []
    columns = zip(encoded.codes, encoded.labels, domain.labels, configuration.attributes, strict=True)
    for own, held, labels, attribute in columns:
        place = {label: i for i, label in enumerate(labels)}
        numbers = np.array([*(place[label] for label in held), len(labels)], code_type(len(labels)))
        slots = [(0, 0), (0, attribute.width - own.shape[-1])] if attribute.is_set else 0
        codes.append(np.pad(numbers[own], slots, constant_values=len(labels)))
    return tuple(codes)
