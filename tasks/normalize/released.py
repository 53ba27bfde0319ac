"""The normalized counts of a release, whichever way they were measured."""

from __future__ import annotations

from marginweave.schemas.released.aggregates import Aggregates
from marginweave.tasks.aggregate.marginal_payloads import unpack_marginals
from marginweave.tasks.aggregate.payloads import unpack_aggregates
from marginweave.tasks.normalize.marginals import marginal_counts
from marginweave.tasks.references import DerivedReference, StageResult


def released_counts(reference: DerivedReference, normalized: StageResult) -> Aggregates:
    """Counts of combinations from the checkpoint of `normalize`. DP: post-processing."""
    payload = reference.load(normalized)
    if reference.configuration.marginals is None:
        return unpack_aggregates(payload)
    return marginal_counts(unpack_marginals(payload), reference.resolved)
