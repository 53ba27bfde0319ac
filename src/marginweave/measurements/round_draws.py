"""Draws of marginals that are chosen in rounds: a draw for each choice, and one for each share of the measurements.

The next round, its candidates and its number of shares follow from committed draws alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.digests import counts_digest, text_digest
from marginweave.configuration.marginals import AdaptiveCliques
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.counts.marginals import count_marginals, in_passes
from marginweave.domain.masks import Clique
from marginweave.measurements import rounds
from marginweave.measurements.base import Drawn, Exact, Forecast, Measurement, PrivateRows, Terms
from marginweave.measurements.marginal_rows import by_level
from marginweave.measurements.one_way import OneWayMarginals, compressed_rows, drawn_one_way
from marginweave.measurements.round_candidates import Candidates, table_in_bins
from marginweave.measurements.rounds import STEPS, Round
from marginweave.measurements.whole_marginals import MarginalCounts, SharedNoise, public_sizes
from marginweave.mechanisms.base import Sensitivity, l1_sensitivity
from marginweave.mechanisms.gaussian import marginal_sigma, select_candidate
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import compress_mask, compress_observation
from marginweave.observations.means import (
    chosen_misfit,
    estimate_total,
    expected_noise,
    merge_observations,
)
from marginweave.observations.payloads import (
    pack_pick,
    pack_tables,
    unpack_observations,
    unpack_pick,
    unpack_tables,
)
from marginweave.observations.tables import ChosenMisfit, Observation
from marginweave.released.statement import DrawNoise

if TYPE_CHECKING:
    from marginweave.estimate.mixture.model import Mixture  # numba, which a plan does without

# A model that chooses needs less than one that records are made of; each round starts from the model of the round before.
_MODEL = MixtureSynthesis(components=200, fits=1, iterations=200)


def _terms(configuration: Configuration) -> Terms:
    """Return the terms that choices and measurements of rounds are reserved with."""
    return {
        "settings": _settings(configuration).model_dump(mode="json"),
        "unit": STEPS * l1_sensitivity(configuration.stability),
        "allocation": configuration.marginal_settings.allocation,
    }


def _settings(configuration: Configuration) -> AdaptiveCliques:
    settings = configuration.rounds
    assert settings is not None
    return settings


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateScores:
    """Scores, in steps, of the candidates that a round has not chosen yet, and how far a unit moves any. Private.

    `places` are their places among all `candidates`; `pace` is the pace of the round, which is stored with its choices.
    """

    scores: Integers
    places: Integers
    candidates: tuple[Clique, ...]
    sensitivity: int
    pace: int


class RoundChoice(Measurement[CandidateScores]):
    """Choice number `place[1]` of round `place[0]`, among the candidates that the round has not chosen yet.

    Exponential mechanism on `candidate_scores`. DP: epsilon-DP.
    """

    template = "select-{}-{}"
    title = "choices of marginals"
    share_key = "aggregate.selection_share"
    is_repeated = True

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return how far a unit moves the score of the candidate that has the most weight, in steps."""
        settings = _settings(configuration)
        attributes = range(len(configuration.attributes))
        most = rounds.weight(settings, tuple(attributes[: settings.adaptive]))
        moved = STEPS * l1_sensitivity(self.view.stability(configuration)) * most
        return Sensitivity(l1=moved, l2_squared=moved**2, steps=STEPS)

    def terms(self, configuration: Configuration) -> Terms:
        """Return the settings of rounds."""
        return _terms(configuration)

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return by how many records the choice may miss the distance of the best marginal."""
        settings = _settings(configuration)
        sizes = public_sizes(configuration)
        levels = configuration.marginal_settings.levels(sizes, configuration.attributes)
        candidates = settings.candidates(levels)
        moved = l1_sensitivity(self.view.stability(configuration))
        distance = 2 * moved / self.epsilon * math.log(candidates / 0.05)
        return Forecast(short=f"L1 ± {distance:.0f}")

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - it is planned
        """Return how far a unit moves the distance of a marginal."""
        return DrawNoise(sensitivity=l1_sensitivity(self.view.stability(configuration)))

    def is_due(self, drawn: Drawn) -> bool:
        """Return whether it is the next choice of the next round."""
        number, pick = self.place
        if drawn.is_committed(self):
            return True
        state = Rounds(drawn)
        if state.next is None or state.next.number != number or pick > state.batch:
            return False
        return pick == 1 or drawn.is_committed(drawn.plan.draw(RoundChoice, number, pick - 1))

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[CandidateScores]:
        """Return the scores by the exact marginals of all candidates, which are counted once."""
        state = Rounds(drawn)
        planned = state.next
        assert planned is not None
        scores = rows.remember(
            f"scores of round {planned.number}", lambda: state.scores(rows, planned)
        )
        places = state.open_places(planned)
        unit = self.view.stability(drawn.configuration)
        sensitivity = rounds.score_sensitivity(state.settings, state.candidates.sets, unit)
        counts = CandidateScores(
            scores=scores[places],
            places=places,
            candidates=state.candidates.all,
            sensitivity=sensitivity,
            pace=planned.pace,
        )
        return Exact(
            counts=counts,
            digest=text_digest(
                [str(state.candidates.all), str(planned), counts_digest([places, scores])]
            ),
            used={"sensitivity": sensitivity},
        )

    def draw(self, exact: Exact[CandidateScores], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002 - none
        """Return the chosen marginal."""
        counts = exact.counts
        chosen = select_candidate(counts.scores, counts.sensitivity, self.epsilon, bits)
        place = counts.places[chosen]
        return pack_pick(counts.candidates[place], counts.pace)


class RoundMarginals(SharedNoise):
    """Share number `place[0]` of all rounds: the marginals of the round that the share is part of, measured once."""

    template = "measure-{}"
    title = "chosen marginals"
    is_repeated = True

    def sigma(self, configuration: Configuration) -> float:
        """Return the standard deviation of the noise of a cell where a whole batch has the share equally."""
        multiplier = self.noise_multiplier * math.sqrt(_settings(configuration).batch)
        return float(marginal_sigma(multiplier, self.view.stability(configuration)))

    def terms(self, configuration: Configuration) -> Terms:
        """Return the settings of rounds."""
        return _terms(configuration)

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise of a cell."""
        return Forecast(sigmas=(self.sigma(configuration),), unit="cell")

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - it is planned
        """Return the noise of a cell where a batch has the share equally."""
        return DrawNoise(sigma=self.sigma(configuration))

    def is_due(self, drawn: Drawn) -> bool:
        """Return whether its round has made its choices, and the share before it is drawn."""
        if drawn.is_committed(self):
            return True
        (share,) = self.place
        state = Rounds(drawn)
        planned = state.next
        if planned is None or not planned.first <= share <= planned.last:
            return False
        if len(state.picks(planned.number)) < state.batch:
            return False
        return share == planned.first or drawn.is_committed(
            drawn.plan.draw(RoundMarginals, share - 1)
        )

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[MarginalCounts]:
        """Return the exact marginals that the round has chosen. Private."""
        state = Rounds(drawn)
        assert state.next is not None
        picks = state.picks(state.next.number)
        one_way = drawn_one_way(drawn)
        tables: dict[Clique, Integers] = {}
        for block in state.tables(rows):
            for pick in picks:
                columns = state.candidates.levels.columns(pick)
                if columns in block:
                    tables[pick] = table_in_bins(
                        block[columns], pick, state.attributes, one_way.levels
                    )
        return self.exact(drawn.configuration, picks, state.sizes, [tables[pick] for pick in picks])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Finished:
    """A round whose draws are committed."""

    round: Round
    picks: tuple[Clique, ...]
    observations: tuple[Observation, ...]
    draws: tuple[Measurement[Any], ...]


class Rounds:
    """The rounds of a release: their candidates, the facts before the first round, and the results of committed draws.

    `next` is the round that is under way or comes next, None where no share or no candidate is left. DP: post-processing.
    """

    def __init__(self, drawn: Drawn) -> None:
        """Read the committed draws."""
        one_way = drawn_one_way(drawn)
        self.drawn = drawn
        self.settings = _settings(drawn.configuration)
        self.sizes = one_way.estimated_sizes
        self.ignored = one_way.ignored
        self.attributes = len(one_way.measured)
        self.candidates = drawn.remember(
            "candidates",
            lambda: Candidates(
                sets=rounds.candidate_sets(self.settings, self.sizes[: self.attributes]),
                levels=one_way.bin_levels,
                codes=one_way.estimated_levels,
            ),
        )
        self.batch = min(self.settings.batch, len(self.candidates.sets))
        self.finished = self._finished()
        self.next = self._next()

    def picks(self, number: int) -> tuple[Clique, ...]:
        """Return the marginals that a round has chosen so far."""
        committed = takewhile(self.drawn.is_committed, self._choices(number))
        return tuple(self._read_pick(choice)[0] for choice in committed)

    def open_places(self, planned: Round) -> Integers:
        """Return the places of the candidates that the next choice of a round is made from."""
        attributes = self.drawn.configuration.attributes
        for_ordinary = rounds.shares_of_ordinary_columns(attributes, self.settings.rounds)
        of_sets: list[int] = []
        if planned.first <= for_ordinary:
            of_sets = [place for place, attribute in enumerate(attributes) if attribute.of_set]
        columns_of = self.candidates.levels.columns
        picked = [columns_of(pick) for pick in self.picks(planned.number)]
        places = rounds.open_places(self.candidates.columns, picked, of_sets)
        records = estimate_total(drawn_one_way(self.drawn).estimated)
        allowed = self.candidates.worth_counting(self._sigma(planned), records)
        return places[allowed[places]]

    def scores(self, rows: PrivateRows, planned: Round) -> Integers:
        """Return the scores of all candidates, as if a round's marginals had its shares equally; private."""
        model = self.model(self.finished)
        return rounds.candidate_scores(
            self._estimated_tables(rows),
            model.marginals,
            self.candidates,
            self.settings,
            self._sigma(planned),
        )

    def _sigma(self, planned: Round) -> float:
        """Return the noise of a cell where a round's marginals have its shares equally."""
        share = self.drawn.plan.draw(RoundMarginals, planned.first)
        multiplier = share.noise_multiplier * math.sqrt(self.batch / planned.shares)
        return float(marginal_sigma(multiplier, self.drawn.configuration.stability))

    def _estimated_tables(self, rows: PrivateRows) -> Iterator[Mapping[Clique, Integers]]:
        """Yield the exact marginals of all candidates, without the cells of codes that estimates ignore. Private."""
        for tables in self.tables(rows):
            estimated: dict[Clique, Integers] = {}
            for clique, table in tables.items():
                cells = tuple(slice(self.sizes[a]) for a in clique)
                estimated[clique] = table[cells]
            yield estimated

    def tables(self, rows: PrivateRows) -> Iterator[Mapping[Clique, Integers]]:
        """Yield the exact marginals of all candidates, by few passes over the rows once, then block by block. Private."""

        def compute() -> Iterator[bytes]:
            merged = compressed_rows(rows, self.drawn)
            for cliques in in_passes(self.candidates.sets, merged.sizes):
                tables = count_marginals(merged, merged.sizes, cliques)
                yield pack_tables(dict(zip(cliques, tables, strict=True)))

        for block in rows.cached_blocks(
            "candidates", [self.drawn.plan.draw(OneWayMarginals)], compute
        ):
            yield unpack_tables(block)

    def model(self, finished: Sequence[_Finished]) -> Mixture:
        """Return the model of all that is measured after these rounds. DP: post-processing."""
        from marginweave.estimate.mixture.fit import fit_mixture
        from marginweave.estimate.mixture.model import pack_mixture, unpack_mixture

        def compute() -> bytes:
            one_way = drawn_one_way(self.drawn)
            compression = one_way.estimated_compression
            single = [
                compress_observation(observation, compression) for observation in one_way.estimated
            ]
            masks = [compress_mask(mask, compression) for mask in one_way.masks]
            larger = self._estimated(merge_observations(_observations(finished)))
            measured = [*single, *larger]
            resize = self.drawn.configuration.resize
            total = max(1.0, estimate_total(measured)) if resize is None else float(resize.records)
            return pack_mixture(
                fit_mixture(measured, self.sizes[: self.attributes], total, masks, _MODEL)
            )

        follows: list[Measurement[Any]] = [self.drawn.plan.draw(OneWayMarginals)]
        for finished_round in finished:
            follows += finished_round.draws
        return self.drawn.remember(
            f"model after {len(finished)} rounds",
            lambda: unpack_mixture(self.drawn.derived("model", follows, compute)),
        )

    def misfit(self) -> ChosenMisfit | None:
        """Return how far chosen sets were from the models that chose them; None where nothing was chosen."""
        if not self.finished:
            return None
        numbers = range(len(self.finished))
        return ChosenMisfit(self._misfit_of(numbers), self._misfit_of(reversed(numbers)))

    def observed(self) -> tuple[Observation, ...]:
        """Return all that rounds have measured, the mean of what was measured more than once."""
        return merge_observations(_observations(self.finished))

    def _misfit_of(self, numbers: Iterable[int]) -> float:
        """Return the misfit of the first of these rounds: as many as hold a quarter of all sets, at least one."""
        least = math.ceil(sum(len(finished.picks) for finished in self.finished) / 4)
        chosen = list[tuple[Observation, Floats]]()
        for number in numbers:
            if len(chosen) >= least:
                break
            model = self.model(self.finished[:number])
            for observation in self._estimated(self.finished[number].observations):
                chosen.append((observation, _expected(observation, model)))
        return chosen_misfit(chosen)

    def _finished(self) -> list[_Finished]:
        """Return the rounds of which all draws are committed."""
        finished: list[_Finished] = []
        last: Round | None = None
        while self.candidates.sets and (last is None or last.last < self.settings.rounds):
            choices = self._choices(1 if last is None else last.number + 1)
            if not all(map(self.drawn.is_committed, choices)):
                break
            picks, paces = zip(*map(self._read_pick, choices), strict=True)
            planned = rounds.next_round(last, paces[0], self.settings.rounds)
            numbers = range(planned.first, planned.last + 1)
            shares = [self.drawn.plan.draw(RoundMarginals, number) for number in numbers]
            if not all(map(self.drawn.is_committed, shares)):
                break
            measured = [observation for share in shares for observation in self._read_share(share)]
            observations = merge_observations(measured)
            draws = (*choices, *shares)
            finished.append(
                _Finished(
                    round=planned,
                    picks=picks,
                    observations=observations,
                    draws=draws,
                )
            )
            last = planned
        return finished

    def _next(self) -> Round | None:
        last = self.finished[-1].round if self.finished else None
        if not self.candidates.sets or (last is not None and last.last >= self.settings.rounds):
            return None
        return rounds.next_round(last, self._pace(last), self.settings.rounds)

    def _pace(self, last: Round | None) -> int:
        """Return the pace of the round after `last`: that of its first choice, else by how far the model moved."""
        first = self._choices(1 if last is None else last.number + 1)[0]
        if self.drawn.is_committed(first):
            return self._read_pick(first)[1]
        if last is None:
            return 1
        if not self.settings.annealing:
            return last.pace
        return self.drawn.remember(f"pace after round {last.number}", lambda: self._annealed(last))

    def _annealed(self, last: Round) -> int:
        ended = self.finished[-1]
        before = self.model(self.finished[:-1])
        after = self.model(self.finished)

        def distance(observation: Observation) -> float:
            return float(
                np.abs(_expected(observation, before) - _expected(observation, after)).sum()
            )

        estimated = self._estimated(ended.observations)
        moved = sum(map(distance, estimated))
        noise = sum(
            expected_noise(observation.deviation, observation.counts.size)
            for observation in estimated
        )
        return rounds.next_pace(last.pace, moved, noise)

    def _read_pick(self, choice: RoundChoice) -> tuple[Clique, int]:
        return self.drawn.remember(choice.name, lambda: unpack_pick(self.drawn.payload(choice)))

    def _read_share(self, share: RoundMarginals) -> tuple[Observation, ...]:
        return self.drawn.remember(
            share.name, lambda: unpack_observations(self.drawn.payload(share))
        )

    def _choices(self, number: int) -> list[RoundChoice]:
        """Return the planned choices of a round."""
        picks = range(1, self.batch + 1)
        return [self.drawn.plan.draw(RoundChoice, number, pick) for pick in picks]

    def _estimated(self, observations: Sequence[Observation]) -> list[Observation]:
        """Return observations over attributes, those in coarser bins last, without the cells of codes that estimates ignore."""
        finest, coarse = by_level(observations, drawn_one_way(self.drawn).levels, self.attributes)
        return [observation.without_last(self.ignored) for observation in (*finest, *coarse)]


def _expected(observation: Observation, model: Mixture) -> Floats:
    """Return the model's counts of the cells of an observation."""
    from marginweave.estimate.mixture.draws import expected_counts

    return expected_counts(observation, model.marginal(observation.attributes), model.total)


def _observations(finished: Iterable[_Finished]) -> list[Observation]:
    return [
        observation for finished_round in finished for observation in finished_round.observations
    ]
