"""Stage `normalize`: make the collected counts consistent."""

from __future__ import annotations

from marginweave.configuration.release import Configuration
from marginweave.domain.membership import check_levels
from marginweave.estimate.marginals import marginal_counts, normalize_marginals
from marginweave.estimate.normalize import normalize
from marginweave.observations.combinations import Aggregates
from marginweave.observations.payloads import (
    pack_aggregates,
    pack_marginals,
    unpack_aggregates,
    unpack_marginals,
)
from marginweave.observations.tables import Marginals
from marginweave.runs.capabilities import DerivedReference, StageResult

from .stage import stage


def load_counts(reference: DerivedReference, result: StageResult) -> Aggregates | Marginals:
    """Return the counts in the checkpoint of `collect` or `normalize`: counts of combinations, or marginals."""
    payload = reference.load(result)
    return (
        unpack_aggregates(payload)
        if reference.configuration.marginals is None
        else unpack_marginals(payload)
    )


def released_counts(counts: Aggregates | Marginals, configuration: Configuration) -> Aggregates:
    """Return counts of combinations: `counts` itself, or computed from marginals. DP: post-processing."""
    return marginal_counts(counts, configuration) if isinstance(counts, Marginals) else counts


@stage("normalize")
def normalize_counts(reference: DerivedReference, collected: StageResult) -> StageResult:
    """Write counts that are monotone and closed under sub-combinations, or consistent marginals. DP: post-processing."""

    def compute() -> bytes:
        counts = load_counts(reference, collected)
        if isinstance(counts, Marginals):
            configuration = reference.estimated(counts.domain)
            return pack_marginals(normalize_marginals(counts, configuration))
        normalized = normalize(counts)
        check_levels(normalized.levels, normalized.domain.sizes, "normalize")
        return pack_aggregates(normalized)

    return reference.checkpoint("normalize", [collected], compute)
