"""Tasks of the stage where marginals are measured: private values, single attributes, the choice of pairs, the rest.

Each draw goes through `draw_once`: charged, then drawn, then committed. What is measured is a function of earlier draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from marginweave.schemas.draws import DrawKind, PlannedDraw
from marginweave.schemas.ledger.records import State
from marginweave.schemas.released.aggregates import Domain
from marginweave.schemas.released.measurements import Clique, Marginals, Measurement
from marginweave.tasks.accounting.plan.marginals import rounds_of
from marginweave.tasks.aggregate.domain import count_values, discover_labels, discovery, domain_sizes
from marginweave.tasks.aggregate.marginal_rows import (
    Rows,
    compressed_rows,
    drawn_compression,
    drawn_masks,
    released_labels,
    released_rows,
)
from marginweave.tasks.aggregate.marginals import all_cliques, count_marginals, measure_marginals, split_noise
from marginweave.tasks.aggregate.noise import marginal_noise
from marginweave.tasks.aggregate.payloads import (
    measurement_bytes,
    pack_labels,
    pack_marginals,
    pack_measurements,
    pack_noise,
    pack_scores,
    unpack_measurements,
    unpack_noise,
    unpack_scores,
    values_digest,
)
from marginweave.tasks.aggregate.rounds_task import drawn_in_rounds
from marginweave.tasks.aggregate.selection import (
    declared_cliques,
    fitting,
    indif_scores,
    measure_indif,
    most_cells,
    scored_pairs,
    scoring,
    selected_cliques,
    synthesizable,
)
from marginweave.tasks.checkpoint.draws import SMALL, PreparedDraw
from marginweave.tasks.digests import counts_digest, fractions_digest, text_digest
from marginweave.tasks.draw import draw_once, standing
from marginweave.tasks.encode.task import open_encoded
from marginweave.tasks.mechanisms.gaussian import gaussian_terms
from marginweave.tasks.mechanisms.randomness import DrawBits
from marginweave.tasks.references import RunReference, StageResult
from marginweave.tasks.stage import stage_task


@stage_task("discover values")
def discover_values(reference: RunReference, encoded: StageResult) -> StageResult:
    """The values of private domains. DP: the planned cost of `values`, delta_threshold included; one ledger event."""

    def prepare() -> PreparedDraw:
        rows = open_encoded(reference, encoded)
        columns = [j for j, attribute in enumerate(reference.configuration.attributes) if attribute.private]
        counts = count_values(rows, columns)
        sigma, threshold = discovery(reference.configuration, reference.plan)
        return PreparedDraw(
            inputs=values_digest(counts, rows.labels),
            used={**gaussian_terms(sigma), "threshold": threshold},
            make=lambda bits, _: pack_labels(discover_labels(counts, rows.labels, sigma, threshold, bits)),
        )

    return draw_once(reference, reference.plan.draw(DrawKind.VALUES), prepare)[1]


@stage_task("measure one-way")
def measure_one_way(reference: RunReference, encoded: StageResult) -> StageResult:
    """The marginal of every attribute. DP: the planned cost of `one-way`, one ledger event."""
    draw = reference.plan.draw(DrawKind.ONE_WAY)

    def prepare() -> PreparedDraw:
        rows = released_rows(reference, encoded)
        return _prepared(reference, draw, rows, all_cliques(rows.sizes, 1))

    return draw_once(reference, draw, prepare)[1]


@stage_task("select marginals")
def score_pairs(reference: RunReference, encoded: StageResult) -> StageResult:
    """Noisy InDif scores of all pairs, rare values merged. DP: the planned cost of `selection`, one ledger event."""

    def prepare() -> PreparedDraw:
        rows = compressed_rows(reference, encoded)
        pairs = scored_pairs(rows.sizes, reference.plan.draw(DrawKind.MARGINALS))
        noise = scoring(reference.configuration, reference.plan)
        scores = indif_scores(rows, rows.sizes, pairs, noise.steps)
        return PreparedDraw(
            inputs=counts_digest([scores]),
            used={**gaussian_terms(noise.sigma), "steps": noise.steps},
            make=lambda bits, _: pack_scores(measure_indif(scores, noise, bits)),
            size=SMALL + 8 * len(pairs),
        )

    return draw_once(reference, reference.plan.draw(DrawKind.SCORES), prepare)[1]


@stage_task("measure marginals")
def measure_larger(reference: RunReference, encoded: StageResult) -> StageResult:
    """The marginals of two and more attributes, rare values merged.

    Where none is worth its noise, nothing is drawn and the draw's share goes back to the account; the guarantee that is
    stated stays the planned one. DP: the planned cost of `marginals`, one ledger event.
    """
    draw = reference.plan.draw(DrawKind.MARGINALS)
    if standing(reference, draw).state == State.RESERVED:
        sizes = drawn_compression(reference).sizes
        if not _cliques(reference, sizes):
            reference.ledger.draws.return_unused(reference.manifest.release, [str(draw)])

    def prepare() -> PreparedDraw:
        rows = compressed_rows(reference, encoded)
        return _prepared(reference, draw, rows, _cliques(reference, rows.sizes))

    return _larger(reference, prepare)[1]


@stage_task("collect")
def collect_marginals(reference: RunReference) -> StageResult:
    """One set of marginals from the committed draws; from here on no stage is given a private file.

    DP: post-processing.
    """
    payload, first = draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))
    names = tuple(attribute.name for attribute in reference.resolved.attributes)
    larger, drawn = _all_larger(reference)
    inputs = [first, *drawn]
    if reference.configuration.private_columns:
        inputs.insert(0, draw_once(reference, reference.plan.draw(DrawKind.VALUES))[1])

    def compute() -> bytes:
        return pack_marginals(
            Marginals(
                domain=Domain(names=names, labels=released_labels(reference)),
                one_way=unpack_measurements(payload),
                larger=larger,
            )
        )

    return reference.derived.checkpoint("collect", inputs, compute)


def _prepared(reference: RunReference, draw: PlannedDraw, rows: Rows, cliques: Sequence[Clique]) -> PreparedDraw:
    """A draw of marginals; all that can fail without noise is done before the charge."""
    noise = marginal_noise(draw, reference.configuration.stability)
    split = reference.configuration.marginal_settings.allocation
    parts = split_noise(noise, draw.parameter, cliques, rows.sizes, split)
    exact = count_marginals(rows, rows.sizes, cliques)

    def make(bits: DrawBits, sealed: bytes) -> bytes:
        presampled = unpack_noise(sealed) if noise.takes_no_key else None
        return pack_measurements(list(measure_marginals(noise, exact, cliques, parts, bits, presampled)))

    return PreparedDraw(
        inputs=text_digest([str(cliques), counts_digest(exact)]),
        used={**noise.terms(parts), "noise": fractions_digest(parts)},
        make=make,
        size=measurement_bytes(cliques, rows.sizes),
        unkeyed=(lambda: pack_noise(noise.presample([t.size for t in exact], parts))) if noise.takes_no_key else None,
    )


def _all_larger(reference: RunReference) -> tuple[tuple[Measurement, ...], tuple[StageResult, ...]]:
    """The larger marginals, and the draws that they are from."""
    if rounds_of(reference.configuration) is not None:
        return drawn_in_rounds(reference)
    if not reference.configuration.marginal_settings.has_larger(len(reference.configuration.attributes)):
        return (), ()
    payload, result = _larger(reference)
    return unpack_measurements(payload), (result,)


def _larger(reference: RunReference, prepare: Callable[[], PreparedDraw] | None = None) -> tuple[bytes, StageResult]:
    """The draw of larger marginals, or an empty one where it was given back (`measure_larger` lets no other pass)."""
    draw = reference.plan.draw(DrawKind.MARGINALS)
    if standing(reference, draw).state != State.RETURNED:
        return draw_once(reference, draw, prepare)
    result = reference.derived.checkpoint(str(draw), [], lambda: pack_measurements(()))
    return reference.derived.load(result), result


def _cliques(reference: RunReference, sizes: Sequence[int]) -> tuple[Clique, ...]:
    """What is measured over merged codes of `sizes`: nothing that is drawn before it can make it too large.

    `max_cells` is about the released domain, so that there are never more marginals than `plan` has counted.
    """
    settings, attributes = reference.configuration.marginal_settings, reference.configuration.attributes
    draw = reference.plan.draw(DrawKind.MARGINALS)
    if not settings.selects(len(attributes)):
        domain = domain_sizes(attributes, released_labels(reference))
        declared = declared_cliques(settings, [attribute.name for attribute in attributes], domain)
        return fitting(declared, sizes, most_cells(draw))
    scores = unpack_scores(draw_once(reference, reference.plan.draw(DrawKind.SCORES))[0])
    fits = synthesizable(reference.configuration, sizes, drawn_masks(reference))
    return selected_cliques(settings, sizes, scores, draw, reference.configuration.stability, fits)
