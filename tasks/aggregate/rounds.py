"""Tasks of marginals that are chosen in rounds: the candidates' exact counts, once, then a round each.

A round chooses marginals by the exponential mechanism, one draw each, and measures them with one draw a share. Each draw goes
through `draw_once`: charged, then drawn, then committed. What a round is like follows from committed draws alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from marginweave.base.digests import counts_digest, text_digest
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts import rounds
from marginweave.counts.discovery import compress_mask, compress_measurement
from marginweave.counts.marginal_rows import (
    compressed_rows,
    drawn_one_way,
    prepared_marginals,
)
from marginweave.counts.marginals import count_marginals, estimate_total, in_passes
from marginweave.counts.payloads import pack_pick, pack_tables, unpack_measurements, unpack_pick, unpack_tables
from marginweave.counts.rounds import Round
from marginweave.draws.draw import draw_once, is_committed
from marginweave.draws.protocol import PreparedDraw
from marginweave.draws.references import RunReference, StageResult
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.model import Mixture, pack_mixture, unpack_mixture
from marginweave.measurements.plan import DrawKind, PlannedDraw
from marginweave.measurements.tables import ChosenMisfit, Clique, Measurement
from marginweave.mechanisms.gaussian import marginal_sigma, select_candidate
from marginweave.mechanisms.randomness import DrawBits
from marginweave.planning.marginals import rounds_of

from ..stage import stage

# A model that chooses needs less than one that records are made of; each round goes on from the one before.
_MODEL = MixtureSynthesis(components=200, fits=1, iterations=200)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Finished:
    """A round whose draws are committed."""

    round: Round
    picks: tuple[Clique, ...]
    measurements: tuple[Measurement, ...]
    draws: tuple[StageResult, ...]


@stage("count candidates")
def count_candidates(reference: RunReference, encoded: StageResult) -> StageResult:
    """Exact marginals of all candidates, by few passes over the rows, as a private checkpoint. DP: none; nothing leaves."""
    known = _Rounds(reference)
    rows = compressed_rows(reference, encoded, known.drawn)

    def compute() -> Iterator[bytes]:
        for some in in_passes(known.candidates, rows.sizes):
            yield pack_tables(dict(zip(some, count_marginals(rows, rows.sizes, some), strict=True)))

    return reference.checkpoint_blocks("candidates", [encoded.digest, known.one_way_draw.digest], compute)


@stage("adaptive round", run_name="adaptive round {number}")
def measure_round(reference: RunReference, counted: StageResult, number: int) -> StageResult:
    """Round `number`, which follows finished ones: marginals are chosen, then measured with each of its shares.

    DP: the planned costs of its draws, one ledger event each; how many shares it takes follows from earlier draws.
    """
    known = _Rounds(reference)
    earlier = known.finished(number - 1)
    planned = rounds.next_round(earlier[-1].round if earlier else None, known.pace(earlier), known.settings.rounds)
    picks = known.choose(counted, earlier, planned)
    drawn = [known.measure(counted, picks, share) for share in range(planned.first, planned.last + 1)]
    names = map(str, known.selections(number))
    return replace(drawn[-1], charged=(*names, *(name for result in drawn for name in result.charged)))


def rounds_left(reference: RunReference) -> bool:
    """Whether a share is left to measure with, and a marginal to choose. What is left of selections goes back at the end.

    DP: post-processing.
    """
    known = _Rounds(reference)
    return bool(known.candidates) and not is_committed(reference, known.share(known.settings.rounds))


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnLarger:
    """Larger marginals, the draws that they are from, and of rounds the misfit of the sets that they chose."""

    measured: tuple[Measurement, ...]
    draws: tuple[StageResult, ...]
    misfit: ChosenMisfit | None = None


def drawn_in_rounds(reference: RunReference) -> DrawnLarger:
    """What all rounds have measured. DP: post-processing."""
    known = _Rounds(reference)
    finished = known.finished(known.settings.rounds) if known.candidates else []
    return DrawnLarger(
        measured=rounds.merge_measurements([m for one in finished for m in one.measurements]),
        draws=tuple(draw for one in finished for draw in one.draws),
        misfit=known.misfit(finished),
    )


class _Rounds:
    """The rounds of a run: their candidates, what is known before the first, and what their committed draws say."""

    def __init__(self, reference: RunReference) -> None:
        settings = rounds_of(reference.configuration)
        assert settings is not None
        self.drawn = drawn_one_way(reference)
        compression = self.drawn.estimated_compression
        self.one_way_draw = draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[1]
        self.one_way = [compress_measurement(m, compression) for m in self.drawn.estimated]
        self.masks = [compress_mask(mask, compression) for mask in self.drawn.masks]
        self.reference, self.settings, self.sizes = reference, settings, self.drawn.estimated_sizes
        self.candidates = rounds.candidate_sets(settings, self.sizes)
        self.batch = min(settings.batch, len(self.candidates))

    def estimated(self, measurement: Measurement) -> Measurement:
        """A measurement without the cells of codes that are not kept."""
        return measurement.without_last(self.drawn.ignored)

    def selections(self, number: int) -> list[PlannedDraw]:
        """The planned choices of a round."""
        return [self.reference.plan.draw(DrawKind.SELECT, number, pick) for pick in range(1, self.batch + 1)]

    def share(self, number: int) -> PlannedDraw:
        """The planned draw that measures with share `number` of all rounds."""
        return self.reference.plan.draw(DrawKind.MEASURE, number)

    def finished(self, most: int) -> list[_Finished]:
        """The first rounds, at most `most`, by their committed draws."""
        found: list[_Finished] = []
        while len(found) < most and (not found or found[-1].round.last < self.settings.rounds):
            chosen = [draw_once(self.reference, draw) for draw in self.selections(len(found) + 1)]
            picks, paces = zip(*(unpack_pick(payload) for payload, _ in chosen), strict=True)
            planned = rounds.next_round(found[-1].round if found else None, paces[0], self.settings.rounds)
            shares = range(planned.first, planned.last + 1)
            measured = [draw_once(self.reference, self.share(share)) for share in shares]
            measurements = rounds.merge_measurements([m for drawn, _ in measured for m in unpack_measurements(drawn)])
            draws = tuple(result for _, result in (*chosen, *measured))
            found.append(_Finished(round=planned, picks=picks, measurements=measurements, draws=draws))
        return found

    def pace(self, earlier: Sequence[_Finished]) -> int:
        """The pace of the round after `earlier`: that of its first choice if it has begun, else by how far the model moved."""
        first = self.selections(len(earlier) + 1)[0]
        if is_committed(self.reference, first):
            return unpack_pick(draw_once(self.reference, first)[0])[1]
        if not earlier:
            return 1
        last = earlier[-1]
        if not self.settings.annealing:
            return last.round.pace
        before, after = self.model(earlier[:-1]), self.model(earlier)
        moved = sum(float(np.abs(before.marginal(clique) - after.marginal(clique)).sum()) for clique in last.picks)
        noise = sum(rounds.expected_noise(m.deviation, m.counts.size) for m in map(self.estimated, last.measurements))
        return rounds.next_pace(last.round.pace, moved, noise)

    def model(self, earlier: Sequence[_Finished]) -> Mixture:
        """The model of what is measured after these rounds, from the one before; a checkpoint. DP: post-processing."""

        def compute() -> bytes:
            larger = [self.estimated(m) for one in earlier for m in one.measurements]
            measured = rounds.merge_measurements([*self.one_way, *larger])
            resize = self.reference.configuration.resize
            total = max(1.0, estimate_total(measured)) if resize is None else float(resize.records)
            start = self.model(earlier[:-1]) if earlier else None
            return pack_mixture(fit_mixture(measured, self.sizes, total, self.masks, _MODEL, start))

        public, inputs = self.reference.derived, [self.one_way_draw, *(draw for one in earlier for draw in one.draws)]
        return unpack_mixture(public.load(public.checkpoint("model", inputs, compute)))

    def misfit(self, finished: Sequence[_Finished]) -> ChosenMisfit | None:
        """How far chosen sets were from the models that chose them; None where nothing was chosen."""
        if not finished:
            return None
        numbers = range(len(finished))
        return ChosenMisfit(self._misfit_of(finished, numbers), self._misfit_of(finished, reversed(numbers)))

    def _misfit_of(self, finished: Sequence[_Finished], numbers: Iterable[int]) -> float:
        """That of the first of these rounds: a quarter of all sets, or a round."""
        least = math.ceil(sum(len(one.picks) for one in finished) / 4)
        chosen = list[tuple[Measurement, NDArray[np.float64]]]()
        for number in numbers:
            if len(chosen) < least:
                model = self.model(finished[:number])
                measured = map(self.estimated, finished[number].measurements)
                chosen += [(m, model.marginal(m.attributes)) for m in measured]
        return rounds.chosen_misfit(chosen)

    def choose(self, counted: StageResult, earlier: Sequence[_Finished], planned: Round) -> tuple[Clique, ...]:
        """The marginals of a round, each by a draw among the candidates that the round has not chosen yet."""
        stability, picks = self.reference.configuration.stability, list[Clique]()
        sensitivity = rounds.score_sensitivity(self.settings, self.candidates, stability)
        scores = cache(partial(self.scores, counted, earlier, planned))

        def prepare(epsilon: float) -> PreparedDraw:
            found = scores()
            left = np.array([i for i, clique in enumerate(self.candidates) if clique not in picks])

            def make(bits: DrawBits, _: bytes) -> bytes:
                place = left[select_candidate(found[left], sensitivity, epsilon, bits)]
                return pack_pick(self.candidates[place], planned.pace)

            inputs = text_digest([str(self.candidates), str(planned), counts_digest([left, found])])
            return PreparedDraw(inputs=inputs, used={"sensitivity": sensitivity}, make=make)

        for draw in self.selections(planned.number):
            payload, _ = draw_once(self.reference, draw, partial(prepare, draw.epsilon))
            picks.append(unpack_pick(payload)[0])
        return tuple(picks)

    def scores(self, counted: StageResult, earlier: Sequence[_Finished], planned: Round) -> NDArray[np.int64]:
        """The scores of all candidates, as if a round's marginals had its shares equally; private."""
        multiplier = self.share(planned.first).noise_multiplier * math.sqrt(self.batch / planned.shares)
        sigma = float(marginal_sigma(multiplier, self.reference.configuration.stability))
        kept = ((clique, table[tuple(slice(self.sizes[a]) for a in clique)]) for clique, table in self.tables(counted))
        return rounds.candidate_scores(kept, self.model(earlier).marginal, self.settings, sigma)

    def tables(self, counted: StageResult) -> Iterator[tuple[Clique, NDArray[np.int64]]]:
        """The exact marginals of all candidates, block by block. Private."""
        for block in self.reference.load_blocks(counted):
            yield from unpack_tables(block)

    def measure(self, counted: StageResult, picks: tuple[Clique, ...], share: int) -> StageResult:
        """One share of a round, which its marginals have as `allocation` says."""
        draw = self.share(share)

        def prepare() -> PreparedDraw:
            found = {clique: table for clique, table in self.tables(counted) if clique in picks}
            return prepared_marginals(self.reference, draw, picks, self.sizes, [found[clique] for clique in picks])

        return draw_once(self.reference, draw, prepare)[1]
