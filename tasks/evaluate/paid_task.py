"""The task of the bought comparison with the sensitive table: the last draw, and the one look at rows right of `aggregate`.

The number goes through `draw_once`: charged, then drawn, then committed. Nothing else that is
released depends on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from marginweave.schemas.configuration.evaluation import PaidSettings
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.draws import DrawKind
from marginweave.schemas.released.evaluation import PaidEvaluation
from marginweave.tasks.aggregate.marginal_rows import Rows
from marginweave.tasks.checkpoint.codecs import Unpacked, pack_arrays, unpack_arrays, unpack_codes
from marginweave.tasks.checkpoint.draws import PreparedDraw
from marginweave.tasks.digests import counts_digest, text_digest
from marginweave.tasks.draw import draw_once
from marginweave.tasks.encode.task import open_encoded
from marginweave.tasks.evaluate.paid import compared_marginals, mean_count_error, paid_evaluation
from marginweave.tasks.evaluate.tallies import Attributes
from marginweave.tasks.mechanisms.gaussian import add_noise, error_sensitivity, gaussian_terms, query_sigma
from marginweave.tasks.normalize.task import released_counts
from marginweave.tasks.references import DerivedReference, RunReference, StageResult
from marginweave.tasks.stage import stage_task


@stage_task("buy evaluation")
def buy_evaluation(
    reference: RunReference, encoded: StageResult, synthesized: StageResult, normalized: StageResult
) -> StageResult:
    """The noisy mean count error of marginals of the synthetic records, with the SHA-256 of these.

    DP: the planned cost of `evaluation`, one ledger event; the sensitivity is theta, or 2 theta under replace-one
    (`mean_count_error`).
    """
    draw = reference.plan.draw(DrawKind.EVALUATION)
    payload, drawn = draw_once(reference, draw, lambda: _prepared(reference, encoded, synthesized, normalized))
    deviation = query_sigma(draw, reference.configuration.stability)

    def compute() -> bytes:  # with its noise as it was reserved: right of here is no ledger
        arrays, meta = unpack_arrays(payload)
        return pack_arrays(arrays, {**meta, "deviation": float(deviation)})

    released = reference.derived.checkpoint(str(draw), [drawn], compute)
    return replace(released, charged=drawn.charged)


def bought(
    reference: DerivedReference, paid: StageResult, synthesized: StageResult, record_count: int
) -> PaidEvaluation | None:
    """What was bought; None where another version of the program, which made other records, had drawn it before.

    DP: post-processing.
    """
    arrays, meta = unpack_arrays(reference.load(paid))
    if meta["synthesized"] != _digest(reference.load_blocks(synthesized)):
        return None
    configuration = reference.configuration
    settings, marginals = _compared(configuration)
    return paid_evaluation(int(arrays["value"][0]), meta["deviation"], record_count, settings, len(marginals))


def _prepared(
    reference: RunReference, encoded: StageResult, synthesized: StageResult, normalized: StageResult
) -> PreparedDraw:
    """The draw, with all that can fail without noise done."""
    made, configuration = reference.derived.load_blocks(synthesized), reference.configuration
    counts = released_counts(reference.derived, normalized)
    blocks = open_encoded(reference, encoded)
    private = {j: counts.domain.labels[j] for j, attribute in enumerate(configuration.attributes) if attribute.private}
    rows = Rows(encoded=blocks, private=private, sizes=counts.domain.sizes)
    _, marginals = _compared(configuration)
    records = Unpacked(unpack_codes, made)
    error = mean_count_error(rows, records, counts.domain, marginals, counts.record_count, configuration.memory)
    deviation = query_sigma(reference.plan.draw(DrawKind.EVALUATION), configuration.stability)
    exact, digest = np.array([error], np.int64), _digest(made)
    return PreparedDraw(
        inputs=text_digest([digest, counts_digest([exact])]),
        used={**gaussian_terms(deviation), "sensitivity": error_sensitivity(configuration.stability)},
        make=lambda bits, _: pack_arrays({"value": add_noise(exact, deviation, bits)}, {"synthesized": digest}),
    )


def _compared(configuration: Configuration) -> tuple[PaidSettings, tuple[Attributes, ...]]:
    """What was bought, and the marginals that it is about."""
    settings = configuration.evaluate.paid
    assert settings is not None
    return settings, compared_marginals(configuration.attributes, settings.length)


def _digest(made: Iterable[bytes]) -> str:
    """SHA-256 of the records, block after block."""
    digest = hashlib.sha256()
    for block in made:
        digest.update(block)
    return digest.hexdigest()
