"""The distance between released counts and synthetic records in two parts: what the model lost, and what its records did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.schemas.released.aggregates import Aggregates, IntArray
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.evaluate.cells import Cells, Comparison, FloatArray, Released
from marginweave.tasks.evaluate.combinations import ratio
from marginweave.tasks.evaluate.distances import known_shares, shares_apart
from marginweave.tasks.evaluate.metrics import counted_sets
from marginweave.tasks.evaluate.numbering import Attributes
from marginweave.tasks.evaluate.tallies import Records
from marginweave.tasks.normalize.marginals import Spread


@dataclass(frozen=True, kw_only=True)
class ErrorParts:
    """Means over the sets of `length` attributes that `tvd` of `LengthMetrics` is of, and on its cells; None without any.

    Each is a total variation distance D, so D(counts, records) <= D(counts, model) + D(model, records).
    """

    length: int
    model_error: float | None
    """D(counts, model): what the fit did not follow, most of all the noise of the counts."""
    sampling_error: float | None
    """D(model, records): rounding to whole records, and what rules and caps changed in these."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Expected:
    """What a model says of combinations of values of the released domain.

    `model` is as records are dealt from it (`Mixture.conditioned`); `spread` tells its merged values apart, None where it has
    none.
    """

    model: Mixture
    spread: Spread | None

    def shares(self, attributes: Attributes, codes: Sequence[IntArray]) -> FloatArray:
        """The share of all records that is expected to hold each combination, shape (n,); `codes` those of each attribute.

        DP: post-processing.
        """
        if self.spread is None:
            return self.model.probabilities(attributes, codes)
        merged = [self.spread.codes[a][code] for a, code in zip(attributes, codes, strict=True)]
        apart = [self.spread.shares[a][code] for a, code in zip(attributes, codes, strict=True)]
        found: FloatArray = self.model.probabilities(attributes, merged) * np.prod(apart, axis=0)
        return found


def error_parts(records: Records, aggregates: Aggregates, expected: Expected) -> tuple[ErrorParts, ...]:
    """Model error and sampling error apart, of lengths 1..R.

    Args:
        records: Codes over the released domain.
        aggregates: Released counts of lengths 1..R.
        expected: The model that was fitted to them, of which the records are made.

    Returns:
        One a length of which something was counted, in order. DP: post-processing.
    """
    comparison = Comparison(reference=Released(aggregates=aggregates), synthetic=records, sizes=aggregates.domain.sizes)

    def measure(cells: Cells) -> tuple[float, float] | None:
        counted, made = known_shares(cells, aggregates.record_count, len(records))
        if not len(counted):
            return None
        keys = cells.keys[cells.complete & (cells.reference > 0)]
        modelled = expected.shares(cells.attributes, cells.numbering.codes(keys))
        return shares_apart(counted, modelled), shares_apart(modelled, made)

    parts = []
    for level in aggregates.levels:
        if not (sets := counted_sets(aggregates, level.length)):
            continue
        found = [pair for pair in comparison.measure(sets, measure) if pair is not None]
        model, sampling = (ratio(math.fsum(pair[side] for pair in found), len(found)) for side in (0, 1))
        parts.append(ErrorParts(length=level.length, model_error=model, sampling_error=sampling))
    return tuple(parts)
