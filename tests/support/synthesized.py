"""All records of a synthesis at once, by each of the methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Records
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.synthesis import AnySynthesis
from marginweave.schemas.released.aggregates import Aggregates
from marginweave.schemas.released.measurements import Marginals
from marginweave.tasks.synthesize.gum.synthesize import Gum
from marginweave.tasks.synthesize.release import synthesize_blocks
from marginweave.tasks.synthesize.shards import every_record
from marginweave.tasks.synthesize.synthesize import SeededSynthesis


def synthesize_records(*arguments: Any, **named: Any) -> Records:
    """Records grown from released combinations; the arguments are those of `SeededSynthesis.of`."""
    return every_record(SeededSynthesis.of(*arguments, **named))


def synthesize_gum(*arguments: Any) -> Records:
    """Records that GUM makes of marginals; the arguments are those of `Gum.of`."""
    return every_record(Gum.of(*arguments))


def synthesize_codes(
    counts: Aggregates | Marginals, configuration: Configuration, settings: AnySynthesis
) -> tuple[NDArray[np.integer], ...]:
    """All of `synthesize_blocks` at once."""
    return tuple(
        np.concatenate(parts) for parts in zip(*synthesize_blocks(counts, configuration, settings), strict=True)
    )
