"""Tasks of marginals that are chosen in rounds: the candidates' exact counts, once, then a round each.

A round chooses marginals by the exponential mechanism, one draw each, and measures them with one draw a share. Each draw goes
through `draw_once`: charged, then drawn, then committed. What a round is like follows from committed draws alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.configuration.marginals import AdaptiveCliques
from marginweave.schemas.configuration.synthesis import MixtureSynthesis
from marginweave.schemas.draws import DrawKind, PlannedDraw
from marginweave.schemas.released.measurements import Clique, Mask, Measurement
from marginweave.tasks.accounting.plan.marginals import rounds_of
from marginweave.tasks.aggregate.domain import compress_mask, compress_measurement
from marginweave.tasks.aggregate.marginal_rows import (
    compressed_rows,
    drawn_compression,
    drawn_masks,
)
from marginweave.tasks.aggregate.marginals import (
    Split,
    count_marginals,
    estimate_total,
    in_passes,
    measure_marginals,
    split_noise,
)
from marginweave.tasks.aggregate.noise import marginal_noise
from marginweave.tasks.aggregate.payloads import (
    measurement_bytes,
    pack_measurements,
    pack_pick,
    pack_tables,
    unpack_measurements,
    unpack_pick,
    unpack_tables,
)
from marginweave.tasks.aggregate.rounds import (
    Round,
    candidate_scores,
    candidate_sets,
    distance,
    expected_noise,
    merge_measurements,
    next_pace,
    next_round,
    score_sensitivity,
)
from marginweave.tasks.checkpoint.draws import PreparedDraw
from marginweave.tasks.digests import counts_digest, text_digest
from marginweave.tasks.draw import draw_once, is_committed
from marginweave.tasks.estimate.mixture.fit import fit_mixture
from marginweave.tasks.estimate.mixture.model import Mixture, pack_mixture, unpack_mixture
from marginweave.tasks.mechanisms.gaussian import marginal_sigma, select_candidate
from marginweave.tasks.mechanisms.randomness import DrawBits
from marginweave.tasks.references import RunReference, StageResult
from marginweave.tasks.stage import stage_task

# A model that chooses needs less than one that records are made of; each round goes on from the one before.
_MODEL = MixtureSynthesis(components=200, fits=1, iterations=200)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ground:
    """What all rounds share: candidates, and what is known of them before the first. Released."""

    settings: AdaptiveCliques
    allocation: Split
    sizes: tuple[int, ...]
    masks: tuple[Mask, ...]
    candidates: tuple[Clique, ...]
    one_way: tuple[Measurement, ...]

    @property
    def batch(self) -> int:
        """How many marginals a round chooses."""
        return min(self.settings.batch, len(self.candidates))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Finished:
    """A round whose draws are committed."""

    round: Round
    picks: tuple[Clique, ...]
    measurements: tuple[Measurement, ...]
    draws: tuple[StageResult, ...]


@stage_task("count candidates")
def count_candidates(reference: RunReference, encoded: StageResult) -> StageResult:
    """Exact marginals of all candidates, by few passes over the rows, as a private checkpoint. DP: none; nothing leaves."""
    rows = compressed_rows(reference, encoded)
    candidates = _ground(reference).candidates

    def compute() -> Iterator[bytes]:
        for some in in_passes(candidates, rows.sizes):
            yield pack_tables(dict(zip(some, count_marginals(rows, rows.sizes, some), strict=True)))

    one_way = draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[1]
    return reference.checkpoint_blocks("candidates", [encoded.digest, one_way.digest], compute)


@stage_task("adaptive round", run_name="adaptive round {number}")
def measure_round(reference: RunReference, counted: StageResult, number: int) -> StageResult:
    """Round `number`, which follows finished ones: marginals are chosen, then measured with each of its shares.

    DP: the planned costs of its draws, one ledger event each; how many shares it takes follows from earlier draws.
    """
    ground = _ground(reference)
    earlier = _finished_rounds(reference, ground, number - 1)
    pace = _pace(reference, ground, earlier)
    planned = next_round(earlier[-1].round if earlier else None, pace, ground.settings.rounds)
    picks = _choose(reference, ground, counted, earlier, planned)
    drawn = [
        _measure(reference, ground, counted, picks, reference.plan.draw(DrawKind.MEASURE, share))
        for share in range(planned.first, planned.last + 1)
    ]
    names = [str(reference.plan.draw(DrawKind.SELECT, number, pick)) for pick in range(1, len(picks) + 1)]
    charged = (*names, *(name for result in drawn for name in result.charged))
    last = drawn[-1]
    return StageResult(stage=last.stage, address=last.address, file=last.file, digest=last.digest, charged=charged)


def rounds_left(reference: RunReference) -> bool:
    """Whether a share is left to measure with, and a marginal to choose. What is left of selections goes back at the end.

    DP: post-processing.
    """
    ground = _ground(reference)
    last = reference.plan.draw(DrawKind.MEASURE, ground.settings.rounds)
    return bool(ground.candidates) and not is_committed(reference, last)


def drawn_in_rounds(reference: RunReference) -> tuple[tuple[Measurement, ...], tuple[StageResult, ...]]:
    """What all rounds have measured, one measurement for each chosen set, and the draws. DP: post-processing."""
    ground = _ground(reference)
    finished = _finished_rounds(reference, ground, ground.settings.rounds) if ground.candidates else []
    measured = merge_measurements([m for one in finished for m in one.measurements])
    return measured, tuple(draw for one in finished for draw in one.draws)


def _selections(reference: RunReference, ground: _Ground, number: int) -> list[PlannedDraw]:
    """The planned choices of a round."""
    return [reference.plan.draw(DrawKind.SELECT, number, pick) for pick in range(1, ground.batch + 1)]


def _ground(reference: RunReference) -> _Ground:
    settings = rounds_of(reference.configuration)
    assert settings is not None
    compression = drawn_compression(reference)
    one_way = unpack_measurements(draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[0])
    return _Ground(
        settings=settings,
        allocation=reference.configuration.marginal_settings.allocation,
        sizes=compression.sizes,
        masks=tuple(compress_mask(mask, compression) for mask in drawn_masks(reference)),
        candidates=candidate_sets(settings, compression.sizes),
        one_way=tuple(compress_measurement(m, compression) for m in one_way),
    )


def _finished_rounds(reference: RunReference, ground: _Ground, most: int) -> list[_Finished]:
    """The first rounds, at most `most`, as their committed draws tell them."""
    found: list[_Finished] = []
    while len(found) < most and (not found or found[-1].round.last < ground.settings.rounds):
        number = len(found) + 1
        chosen = [draw_once(reference, draw) for draw in _selections(reference, ground, number)]
        picks, paces = zip(*(unpack_pick(payload) for payload, _ in chosen), strict=True)
        planned = next_round(found[-1].round if found else None, paces[0], ground.settings.rounds)
        shares = range(planned.first, planned.last + 1)
        measured = [draw_once(reference, reference.plan.draw(DrawKind.MEASURE, share)) for share in shares]
        found.append(
            _Finished(
                round=planned,
                picks=picks,
                measurements=merge_measurements([m for payload, _ in measured for m in unpack_measurements(payload)]),
                draws=tuple(result for _, result in (*chosen, *measured)),
            )
        )
    return found


def _pace(reference: RunReference, ground: _Ground, earlier: Sequence[_Finished]) -> int:
    """The pace of the round after `earlier`: that of its first choice where it has begun, else by how far the model moved."""
    first = reference.plan.draw(DrawKind.SELECT, len(earlier) + 1, 1)
    if is_committed(reference, first):
        return unpack_pick(draw_once(reference, first)[0])[1]
    if not earlier:
        return 1
    last = earlier[-1]
    if not ground.settings.annealing:
        return last.round.pace
    before, after = _model(reference, ground, earlier[:-1]), _model(reference, ground, earlier)
    moved = sum(distance(before.marginal(clique), after.marginal(clique)) for clique in last.picks)
    noise = sum(expected_noise(m.deviation, m.counts.size) for m in last.measurements)
    return next_pace(last.round.pace, moved, noise)


def _model(reference: RunReference, ground: _Ground, earlier: Sequence[_Finished]) -> Mixture:
    """The model of what is measured after these rounds, from the one before; a checkpoint. DP: post-processing."""
    inputs = [
        draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[1],
        *(draw for one in earlier for draw in one.draws),
    ]

    def compute() -> bytes:
        measured = merge_measurements([*ground.one_way, *(m for one in earlier for m in one.measurements)])
        resize = reference.configuration.resize
        total = max(1.0, estimate_total(measured)) if resize is None else float(resize.records)
        start = _model(reference, ground, earlier[:-1]) if earlier else None
        return pack_mixture(fit_mixture(measured, ground.sizes, total, ground.masks, _MODEL, start))

    public = reference.derived
    return unpack_mixture(public.load(public.checkpoint("model", inputs, compute)))


def _choose(
    reference: RunReference, ground: _Ground, counted: StageResult, earlier: Sequence[_Finished], planned: Round
) -> tuple[Clique, ...]:
    """The marginals of a round, each by a draw among the candidates that the round has not chosen yet."""
    sensitivity = score_sensitivity(ground.settings, ground.candidates, reference.configuration.stability)
    scores: NDArray[np.int64] | None = None
    picks: list[Clique] = []

    def prepare(epsilon: float) -> PreparedDraw:
        nonlocal scores
        scores = found = _scores(reference, ground, counted, earlier, planned) if scores is None else scores
        left = np.array([i for i, clique in enumerate(ground.candidates) if clique not in picks])

        def make(bits: DrawBits, _: bytes) -> bytes:
            place = left[select_candidate(found[left], sensitivity, epsilon, bits)]
            return pack_pick(ground.candidates[place], planned.pace)

        inputs = text_digest([str(ground.candidates), str(planned), counts_digest([left, found])])
        return PreparedDraw(inputs=inputs, used={"sensitivity": sensitivity}, make=make)

    for draw in _selections(reference, ground, planned.number):
        payload, _ = draw_once(reference, draw, partial(prepare, draw.epsilon))
        picks.append(unpack_pick(payload)[0])
    return tuple(picks)


def _scores(
    reference: RunReference, ground: _Ground, counted: StageResult, earlier: Sequence[_Finished], planned: Round
) -> NDArray[np.int64]:
    """The scores of all candidates, as if a round's marginals had its shares equally; private."""
    model = _model(reference, ground, earlier)
    share = reference.plan.draw(DrawKind.MEASURE, planned.first)
    multiplier = share.noise_multiplier * math.sqrt(ground.batch / planned.shares)
    deviation = float(marginal_sigma(multiplier, reference.configuration.stability))
    tables = (pair for block in reference.load_blocks(counted) for pair in unpack_tables(block))
    return candidate_scores(tables, model.marginal, ground.settings, deviation)


def _measure(
    reference: RunReference,
    ground: _Ground,
    counted: StageResult,
    picks: tuple[Clique, ...],
    draw: PlannedDraw,
) -> StageResult:
    """One share of a round, which its marginals have as `allocation` says."""

    def prepare() -> PreparedDraw:
        noise = marginal_noise(draw, reference.configuration.stability)
        exact = _exact(reference, counted, picks)
        parts = split_noise(noise, draw.parameter, picks, ground.sizes, ground.allocation)
        return PreparedDraw(
            inputs=text_digest([str(picks), counts_digest(exact)]),
            used=noise.terms(parts),
            make=lambda bits, _: pack_measurements(list(measure_marginals(noise, exact, picks, parts, bits))),
            size=measurement_bytes(picks, ground.sizes),
        )

    return draw_once(reference, draw, prepare)[1]


def _exact(reference: RunReference, counted: StageResult, picks: Sequence[Clique]) -> list[NDArray[np.int64]]:
    """The exact marginals of the chosen sets. Private."""
    wanted = set(picks)
    found: dict[Clique, NDArray[np.int64]] = {}
    for block in reference.load_blocks(counted):
        found |= {clique: table for clique, table in unpack_tables(block) if clique in wanted}
        if len(found) == len(wanted):
            break
    return [found[clique] for clique in picks]
