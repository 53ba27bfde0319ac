"""Doors of the stage where marginals are measured: private values, single attributes, the choice of pairs, the rest.

Each draw goes through `draw_once`: charged, then drawn, then committed. What is measured is a function of earlier draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from marginweave.schemas.aggregates import Domain
from marginweave.schemas.ledger import State
from marginweave.schemas.marginals import MarginalSettings
from marginweave.schemas.measurements import Clique, Marginals, Measurement
from marginweave.tasks.aggregate.cliques import (
    count_values,
    declared_cliques,
    discover_labels,
    discovery,
    domain_sizes,
    fitting,
    most_cells,
    released_compression,
    scored_pairs,
    scoring,
    selected_cliques,
    structural_masks,
    synthesizable,
)
from marginweave.tasks.aggregate.marginal_payloads import (
    labels_bytes,
    measurement_bytes,
    pack_labels,
    pack_marginals,
    pack_measurements,
    pack_scores,
    unpack_labels,
    unpack_measurements,
    unpack_scores,
)
from marginweave.tasks.aggregate.marginals import (
    all_cliques,
    count_marginals,
    measure_marginals,
    measure_with_laplace,
    split_deviations,
    split_epsilons,
)
from marginweave.tasks.aggregate.released import recode
from marginweave.tasks.aggregate.selection.compress import Compression, compress_codes
from marginweave.tasks.aggregate.selection.indif import indif_scores, measure_indif
from marginweave.tasks.budget.mechanisms import prepare_laplace, prepare_noise
from marginweave.tasks.checkpoint.draws import SMALL
from marginweave.tasks.door import stage_task
from marginweave.tasks.drawing import draw_once, standing
from marginweave.tasks.encode.blocks import EncodedBlocks
from marginweave.tasks.encode.codes import Codes
from marginweave.tasks.encode.task import open_encoded
from marginweave.tasks.references import RunReference, StageResult

VALUES, ONE_WAY, SELECTION, MARGINALS = "values", "one-way", "selection", "marginals"


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Encoded rows over the released domain, block by block; the missing value is the last code where there is one. Private.

    With a compression rare values are merged. A pass over the blocks can be repeated.
    """

    encoded: EncodedBlocks
    private: Mapping[int, tuple[str, ...]]
    sizes: tuple[int, ...]
    compression: Compression | None = None

    def __iter__(self) -> Iterator[tuple[Codes, ...]]:
        for table in self.encoded:
            codes = recode(table, self.private).codes
            yield codes if self.compression is None else compress_codes(codes, self.compression)


@stage_task("discover values")
def discover_values(reference: RunReference, encoded: StageResult) -> StageResult:
    """The values of private domains. DP: the planned cost of `values`, delta_threshold included; one ledger event."""
    if _committed(reference, VALUES):
        return draw_once(reference, VALUES)[1]
    rows = open_encoded(reference, encoded)
    columns = [j for j, attribute in enumerate(reference.configuration.attributes) if attribute.private]
    counts = count_values(rows, columns)
    sd, threshold = discovery(reference.configuration, reference.plan)
    prepare_noise(sd)

    def make() -> tuple[bytes, bool]:
        return pack_labels(discover_labels(counts, rows.labels, sd, threshold)), False

    return draw_once(reference, VALUES, make, size=labels_bytes([rows.labels[j] for j in columns]))[1]


@stage_task("measure one-way")
def measure_one_way(reference: RunReference, encoded: StageResult) -> StageResult:
    """The marginal of every attribute. DP: the planned cost of `one-way`, one ledger event."""
    if _committed(reference, ONE_WAY):
        return draw_once(reference, ONE_WAY)[1]
    rows = _rows(reference, encoded)
    return _measure(reference, ONE_WAY, rows, all_cliques(rows.sizes, 1))


@stage_task("select marginals")
def score_pairs(reference: RunReference, encoded: StageResult) -> StageResult:
    """Noisy InDif scores of all pairs, rare values merged. DP: the planned cost of `selection`, one ledger event."""
    if _committed(reference, SELECTION):
        return draw_once(reference, SELECTION)[1]
    rows = _compressed(reference, encoded)
    pairs = scored_pairs(rows.sizes, reference.plan.draw(MARGINALS))
    noise = scoring(reference.configuration, reference.plan)
    scores = indif_scores(rows, rows.sizes, pairs, noise.steps)
    prepare_noise(noise.deviation)

    def make() -> tuple[bytes, bool]:
        return pack_scores(measure_indif(scores, noise)), False

    return draw_once(reference, SELECTION, make, size=SMALL + 8 * len(pairs))[1]


@stage_task("measure marginals")
def measure_larger(reference: RunReference, encoded: StageResult) -> StageResult:
    """The marginals of two and more attributes, rare values merged.

    Where none is worth its noise, nothing is drawn and the draw's share goes back to the account; the guarantee that is
    stated stays the planned one. DP: the planned cost of `marginals`, one ledger event.
    """
    if standing(reference, MARGINALS).state == State.RESERVED:
        sizes = _compression(reference).sizes
        if not _cliques(reference, sizes):
            reference.ledger.give_back(reference.manifest.release, [MARGINALS])
    if standing(reference, MARGINALS).state in (State.COMMITTED, State.RETURNED):
        return _larger(reference)[1]
    rows = _compressed(reference, encoded)
    return _measure(reference, MARGINALS, rows, _cliques(reference, rows.sizes))


@stage_task("collect")
def collect_marginals(reference: RunReference) -> StageResult:
    """One set of marginals from the committed draws; from here on no stage is given a private file.

    DP: post-processing.
    """
    payload, first = draw_once(reference, ONE_WAY)
    names = tuple(attribute.name for attribute in reference.resolved.attributes)
    larger = _larger(reference) if _settings(reference).has_larger(len(names)) else None
    inputs = [first, *([larger[1]] if larger else [])]
    if reference.configuration.private_columns:
        inputs.insert(0, draw_once(reference, VALUES)[1])

    def compute() -> bytes:
        return pack_marginals(
            Marginals(
                domain=Domain(names=names, labels=_labels(reference)),
                one_way=unpack_measurements(payload),
                larger=unpack_measurements(larger[0]) if larger else (),
            )
        )

    return reference.derived.checkpoint("collect", inputs, compute)


def _measure(reference: RunReference, name: str, rows: _Rows, cliques: Sequence[Clique]) -> StageResult:
    """One draw of marginals; all that can fail without noise is done before the charge."""
    draw, stability = reference.plan.draw(name), reference.configuration.stability
    split = cliques, rows.sizes, _settings(reference).allocation
    laplace = draw.mechanism == "discrete-laplace"
    exact = count_marginals(rows, rows.sizes, cliques)
    measure: Callable[[], Iterator[Measurement]]
    if laplace:
        epsilons = split_epsilons(draw.parameter, *split)
        for epsilon in dict.fromkeys(epsilons):
            prepare_laplace(epsilon, stability)
        measure = partial(measure_with_laplace, exact, cliques, epsilons, stability)
    else:
        deviations = split_deviations(draw.parameter, *split, stability)
        for sd in dict.fromkeys(deviations):
            prepare_noise(sd)
        measure = partial(measure_marginals, exact, cliques, deviations)

    def make() -> tuple[bytes, bool]:
        return pack_measurements(list(measure())), False

    return draw_once(reference, name, make, size=measurement_bytes(cliques, rows.sizes))[1]


def _larger(reference: RunReference) -> tuple[bytes, StageResult]:
    """The draw of larger marginals, or an empty one where it was given back (`measure_larger` lets no other pass)."""
    if standing(reference, MARGINALS).state != State.RETURNED:
        return draw_once(reference, MARGINALS)
    result = reference.derived.checkpoint(MARGINALS, [], lambda: pack_measurements(()))
    return reference.derived.load(result), result


def _cliques(reference: RunReference, sizes: Sequence[int]) -> tuple[Clique, ...]:
    """What is measured over merged codes of `sizes`: nothing that is drawn before it can make it too large.

    `max_cells` is about the released domain, so that there are never more marginals than `plan` has counted.
    """
    settings, attributes, draw = (
        _settings(reference),
        reference.configuration.attributes,
        reference.plan.draw(MARGINALS),
    )
    if not settings.selects(len(attributes)):
        domain = domain_sizes(attributes, _labels(reference))
        declared = declared_cliques(settings, [attribute.name for attribute in attributes], domain)
        return fitting(declared, sizes, most_cells(draw))
    scores = unpack_scores(draw_once(reference, SELECTION)[0])
    fits = synthesizable(reference.configuration, sizes, structural_masks(reference.resolved, _labels(reference)))
    return selected_cliques(settings, sizes, scores, draw, reference.configuration.stability, fits)


def _compression(reference: RunReference) -> Compression:
    masks = structural_masks(reference.resolved, _labels(reference))
    one_way = unpack_measurements(draw_once(reference, ONE_WAY)[0])
    return released_compression(one_way, _settings(reference), masks)


def _compressed(reference: RunReference, encoded: StageResult) -> _Rows:
    compression = _compression(reference)
    return replace(_rows(reference, encoded), compression=compression, sizes=compression.sizes)


def _rows(reference: RunReference, encoded: StageResult) -> _Rows:
    labels = _labels(reference)
    private = {j: labels[j] for j, attribute in enumerate(reference.configuration.attributes) if attribute.private}
    sizes = domain_sizes(reference.configuration.attributes, labels)
    return _Rows(encoded=open_encoded(reference, encoded), private=private, sizes=sizes)


def _labels(reference: RunReference) -> tuple[tuple[str, ...], ...]:
    """The released domain: public labels, and the discovered ones."""
    configuration = reference.resolved
    found = unpack_labels(draw_once(reference, VALUES)[0]) if configuration.private_columns else {}
    return tuple(found.get(j, attribute.labels) for j, attribute in enumerate(configuration.attributes))


def _settings(reference: RunReference) -> MarginalSettings:
    settings = reference.configuration.marginals
    assert settings is not None
    return settings


def _committed(reference: RunReference, name: str) -> bool:
    return standing(reference, name).state == State.COMMITTED
