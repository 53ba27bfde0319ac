"""All kinds of measurements: add a new kind to this list."""

from __future__ import annotations

import re
from typing import Any

from marginweave.measurements.base import Measurement
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.linked_counts import RowHistograms, UnitHistograms
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.private_values import PrivateValues
from marginweave.measurements.quantile_bounds import HighBound, LowBound
from marginweave.measurements.record_count import RecordCount
from marginweave.measurements.round_draws import RoundChoice, RoundMarginals
from marginweave.measurements.rows_beyond_cap import RowsBeyondCap
from marginweave.measurements.tuple_level import TupleLevel

KINDS: tuple[type[Measurement[Any]], ...] = (
    LowBound,
    HighBound,
    RowsBeyondCap,
    RecordCount,
    ContributionBound,
    TupleLevel,
    PrivateValues,
    OneWayMarginals,
    PairScores,
    LargerMarginals,
    RoundChoice,
    RoundMarginals,
    UnitHistograms,
    RowHistograms,
)


def kind_named(name: str) -> type[Measurement[Any]] | None:
    """Return the kind of a draw that was recorded by its name; None for a charge for a lost home directory."""
    template = re.sub(r"-[0-9]+", "-{}", name)
    for kind in KINDS:
        if kind.template == template:
            return kind
    return None
