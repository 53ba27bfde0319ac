"""Stages `fit` and `synthesize`: make synthetic records, as codes, from the normalized counts."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.checkpoints.codecs import pack_codes
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.membership import check_codes
from marginweave.domain.zeros import released_attributes
from marginweave.estimate.mixture.linked_rows import pack_row_models
from marginweave.estimate.mixture.model import pack_mixture, unpack_mixture
from marginweave.observations.tables import Marginals
from marginweave.runs.capabilities import DerivedReference, StageResult

from .normalize import load_counts
from .stage import stage


@stage("fit")
def fit_model(reference: DerivedReference, normalized: StageResult) -> StageResult:
    """Fit the mixture that records are sampled from: once, even if the run is interrupted. DP: post-processing."""
    settings = reference.configuration.synthesize
    assert isinstance(settings, MixtureSynthesis)

    def compute() -> bytes:
        from marginweave.records.release import estimation_input, fit_inputs  # numba

        counts = load_counts(reference, normalized)
        inputs, _ = estimation_input(counts, reference.estimated(counts.domain))
        return pack_mixture(fit_inputs(inputs, settings))

    return reference.checkpoint("fit", [normalized], compute)


@stage("fit rows")
def fit_row_models(
    reference: DerivedReference, normalized: StageResult, fitted: StageResult
) -> StageResult:
    """Fit what the rows of linked tables are like in the mixture of their units. DP: post-processing."""

    def compute() -> bytes:
        from marginweave.records.linked_rows import fit_linked  # numba

        counts = load_counts(reference, normalized)
        assert isinstance(counts, Marginals)
        mixture = unpack_mixture(reference.load(fitted))
        return pack_row_models(fit_linked(counts, reference.estimated(counts.domain), mixture))

    return reference.checkpoint("fit-rows", [normalized, fitted], compute)


@stage("synthesize")
def synthesize(
    reference: DerivedReference, normalized: StageResult, fitted: StageResult | None
) -> StageResult:
    """Make synthetic records as codes, in blocks of records, few of them in memory at once. DP: post-processing.

    `fitted` is the model that they are sampled from, for a method that fits one.
    """

    def compute() -> Iterator[bytes]:
        from marginweave.records.release import synthesize_blocks  # numba

        counts = load_counts(reference, normalized)
        configuration = reference.estimated(counts.domain)
        settings = configuration.synthesize
        sizes = counts.domain.sizes
        attributes = released_attributes(configuration, counts.domain.labels)
        model = None if fitted is None else unpack_mixture(reference.load(fitted))
        for codes in synthesize_blocks(counts, configuration, settings, model):
            check_codes(attributes, sizes, codes, "synthesize", complete=settings.complete)
            yield pack_codes(codes)

    inputs = [normalized] if fitted is None else [normalized, fitted]
    return reference.checkpoint_blocks("synthesize", inputs, compute)
