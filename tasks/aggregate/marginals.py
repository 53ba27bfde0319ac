"""Tasks of the stage where marginals are measured: private values, single attributes, the choice of pairs, the rest.

Each draw goes through `draw_once`: charged, then drawn, then committed. What is measured is a function of earlier draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from marginweave.accounting.records import State
from marginweave.base.digests import counts_digest
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.counts import marginal_rows, payloads, selection
from marginweave.counts.discovery import count_values, discover_labels, discovery
from marginweave.counts.marginal_rows import OneWay, open_encoded
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.counts.undeclared import measured_undeclared
from marginweave.domain.zeros import domain_sizes, one_way_sizes
from marginweave.draws.draw import draw_once, draw_unless_returned, standing
from marginweave.draws.protocol import SMALL, PreparedDraw
from marginweave.draws.references import RunReference, StageResult
from marginweave.estimate.earlier import with_earlier
from marginweave.measurements.plan import DrawKind
from marginweave.measurements.tables import Clique, Marginals
from marginweave.mechanisms.gaussian import gaussian_terms
from marginweave.planning.marginals import rounds_of

from ..stage import stage
from .rounds import DrawnLarger, drawn_in_rounds


@stage("discover values")
def discover_values(reference: RunReference, encoded: StageResult) -> StageResult:
    """The values of private domains. DP: the planned cost of `values`, delta_threshold included; one ledger event."""

    def prepare() -> PreparedDraw:
        rows = open_encoded(reference, encoded)
        columns = [j for j, attribute in enumerate(reference.configuration.attributes) if attribute.private]
        counts = count_values(rows, columns)
        sigma, threshold = discovery(reference.configuration, reference.plan)
        return PreparedDraw(
            inputs=payloads.values_digest(counts, rows.labels),
            used={**gaussian_terms(sigma), "threshold": threshold},
            make=lambda bits, _: payloads.pack_labels(discover_labels(counts, rows.labels, sigma, threshold, bits)),
        )

    return draw_once(reference, reference.plan.draw(DrawKind.VALUES), prepare)[1]


@stage("measure one-way")
def measure_one_way(reference: RunReference, encoded: StageResult) -> StageResult:
    """The marginal of every attribute, and of the indicators of sets. DP: the planned cost of `one-way`, one ledger event."""
    draw = reference.plan.draw(DrawKind.ONE_WAY)

    def prepare() -> PreparedDraw:
        rows = marginal_rows.released_rows(reference, encoded)
        cliques = all_cliques(rows.sizes, 1)
        exact = count_marginals(rows, rows.sizes, cliques)
        sizes = one_way_sizes(reference.configuration, marginal_rows.released_labels(reference))
        return marginal_rows.prepared_marginals(reference, draw, cliques, sizes, exact)

    return draw_once(reference, draw, prepare)[1]


@stage("select marginals")
def score_pairs(reference: RunReference, encoded: StageResult) -> StageResult:
    """Noisy InDif scores of all pairs, rare values merged. DP: the planned cost of `selection`, one ledger event."""

    def prepare() -> PreparedDraw:
        one_way = marginal_rows.drawn_one_way(reference)
        rows = marginal_rows.compressed_rows(reference, encoded, one_way)
        pairs = selection.scored_pairs(one_way.declared_sizes, reference.plan.draw(DrawKind.MARGINALS))
        noise = selection.scoring(reference.configuration, reference.plan)
        scores = selection.indif_scores(rows, rows.sizes, pairs, noise.steps)
        return PreparedDraw(
            inputs=counts_digest([scores]),
            used={**gaussian_terms(noise.sigma), "steps": noise.steps},
            make=lambda bits, _: pack_arrays({"scores": selection.measure_indif(scores, noise, bits)}, {}),
            size=SMALL + 8 * len(pairs),
        )

    return draw_once(reference, reference.plan.draw(DrawKind.SCORES), prepare)[1]


@stage("measure marginals")
def measure_larger(reference: RunReference, encoded: StageResult) -> StageResult:
    """The marginals of two and more attributes, rare values merged.

    Where none is worth its noise, nothing is drawn and the draw's share goes back to the account; the guarantee that is
    stated stays the planned one. DP: the planned cost of `marginals`, one ledger event.
    """
    draw = reference.plan.draw(DrawKind.MARGINALS)
    is_reserved = standing(reference, draw).state == State.RESERVED
    one_way = marginal_rows.drawn_one_way(reference)
    if is_reserved and not _cliques(reference, one_way):
        reference.ledger.draws.return_unused(reference.manifest.release, [str(draw)])

    def prepare() -> PreparedDraw:
        rows = marginal_rows.compressed_rows(reference, encoded, one_way)
        cliques = _cliques(reference, one_way)
        exact = count_marginals(rows, rows.sizes, cliques)
        return marginal_rows.prepared_marginals(reference, draw, cliques, one_way.declared_sizes, exact)

    return _larger(reference, prepare)[1]


@stage("collect")
def collect_marginals(reference: RunReference) -> StageResult:
    """One set of marginals from the committed draws and earlier releases; from here on no stage is given a private file.

    All of them decide whether cells that are not as declared are in the table.
    DP: post-processing.
    """
    first = draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[1]
    larger = _all_larger(reference)
    inputs = [first, *larger.draws]
    if reference.configuration.private_columns:
        inputs.insert(0, draw_once(reference, reference.plan.draw(DrawKind.VALUES))[1])

    def compute() -> bytes:
        drawn = marginal_rows.drawn_one_way(reference)
        finest, coarse = marginal_rows.by_level(larger.measured, drawn.levels, len(drawn.measured))
        whole = Marginals(
            domain=drawn.domain, one_way=drawn.measured, larger=finest, coarse=coarse, misfit=larger.misfit
        )
        public = reference.derived
        whole = with_earlier(whole, reference.configuration, reference.resolved, public.read_kept)
        single, beyond = whole.measured
        undeclared = measured_undeclared(reference.resolved, (*single, *drawn.of_sets), beyond)
        return payloads.pack_marginals(replace(whole, domain=replace(whole.domain, undeclared=undeclared)))

    return reference.derived.checkpoint("collect", inputs, compute)


def _all_larger(reference: RunReference) -> DrawnLarger:
    """The larger marginals, and the draws that they are from."""
    if rounds_of(reference.configuration) is not None:
        return drawn_in_rounds(reference)
    configuration = reference.configuration
    if not configuration.marginal_settings.has_larger(len(configuration.attributes)):
        return DrawnLarger(measured=(), draws=())
    payload, result = _larger(reference)
    return DrawnLarger(measured=payloads.unpack_measurements(payload), draws=(result,))


def _larger(reference: RunReference, prepare: Callable[[], PreparedDraw] | None = None) -> tuple[bytes, StageResult]:
    """The draw of larger marginals, or an empty one where it was given back (`measure_larger` lets no other pass)."""
    draw = reference.plan.draw(DrawKind.MARGINALS)
    return draw_unless_returned(reference, draw, lambda: payloads.pack_measurements(()), prepare)


def _cliques(reference: RunReference, one_way: OneWay) -> tuple[Clique, ...]:
    """What is measured over merged codes, coarser bins behind them: nothing drawn before makes it too large.

    `max_cells` is about the released domain, so that there are never more marginals than `plan` has counted.
    """
    settings, attributes = reference.configuration.marginal_settings, reference.configuration.attributes
    draw, sizes = reference.plan.draw(DrawKind.MARGINALS), one_way.declared_sizes
    if not settings.selects(len(attributes)):
        domain = domain_sizes(attributes, one_way.domain.labels)
        declared = selection.declared_cliques(settings, attributes, domain)
        return selection.fitting(declared, sizes, selection.most_cells(draw))
    scores = unpack_arrays(draw_once(reference, reference.plan.draw(DrawKind.SCORES))[0])[0]["scores"]
    return selection.selected_cliques(settings, sizes, scores, draw, reference.configuration.stability)
