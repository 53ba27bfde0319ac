"""The comparison with the sensitive table that a share of the budget buys: the mean count error of marginals.

It is the last draw, and the one look at rows right of `aggregate`. The number goes through `draw_once`: charged, then drawn,
then committed. Nothing else that is released depends on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marginweave.base.digests import counts_digest, text_digest
from marginweave.checkpoints.codecs import Unpacked, pack_arrays, unpack_arrays, unpack_codes
from marginweave.counts.marginal_rows import Rows, open_encoded
from marginweave.draws.draw import draw_once
from marginweave.draws.protocol import PreparedDraw
from marginweave.draws.references import RunReference, StageResult
from marginweave.evaluate.paid import bought_marginals, mean_count_error, records_digest
from marginweave.measurements.plan import DrawKind
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.mechanisms.gaussian import add_noise, gaussian_terms, query_sigma

from .normalize import load_counts, released_counts
from .stage import stage


@stage("buy evaluation")
def buy_evaluation(
    reference: RunReference, encoded: StageResult, synthesized: StageResult, normalized: StageResult
) -> StageResult:
    """The noisy mean count error of marginals of the synthetic records, with the SHA-256 of these.

    DP: the planned cost of `evaluation`, one ledger event; the sensitivity is theta, or 2 theta under replace-one
    (`mean_count_error`).
    """
    draw = reference.plan.draw(DrawKind.EVALUATION)
    payload, drawn = draw_once(reference, draw, lambda: _prepared(reference, encoded, synthesized, normalized))
    sigma = query_sigma(draw, reference.configuration.stability)

    def compute() -> bytes:  # with its noise as it was reserved: right of here is no ledger
        arrays, meta = unpack_arrays(payload)
        return pack_arrays(arrays, {**meta, "deviation": float(sigma)})

    released = reference.derived.checkpoint(str(draw), [drawn], compute)
    return replace(released, charged=drawn.charged)


def _prepared(
    reference: RunReference, encoded: StageResult, synthesized: StageResult, normalized: StageResult
) -> PreparedDraw:
    """The draw, with all that can fail without noise done."""
    made, whole = reference.derived.load_blocks(synthesized), load_counts(reference.derived, normalized)
    configuration = reference.configuration.with_undeclared(whole.domain.with_undeclared)
    counts = released_counts(whole, configuration)
    blocks = open_encoded(reference, encoded)
    private = {j: counts.domain.labels[j] for j, attribute in enumerate(configuration.attributes) if attribute.private}
    rows = Rows(encoded=blocks, private=private, sizes=counts.domain.sizes)
    _, marginals = bought_marginals(configuration)
    records = Unpacked(unpack_codes, made)
    error = mean_count_error(rows, records, counts.domain, marginals, counts.record_count, configuration.memory)
    sigma = query_sigma(reference.plan.draw(DrawKind.EVALUATION), configuration.stability)
    exact, digest = np.array([error], np.int64), records_digest(made)
    return PreparedDraw(
        inputs=text_digest([digest, counts_digest([exact])]),
        used={**gaussian_terms(sigma), "sensitivity": l1_sensitivity(configuration.stability)},
        make=lambda bits, _: pack_arrays({"value": add_noise(exact, sigma, bits)}, {"synthesized": digest}),
    )
