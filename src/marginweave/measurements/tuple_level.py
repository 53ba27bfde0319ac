"""Draw of the counts of all combinations of one length, with noise on each and a least count that survives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Self

from marginweave.accounting.charges import Charge
from marginweave.checkpoints.codecs import unpack_number
from marginweave.configuration.attributes import most_combinations
from marginweave.configuration.release import Configuration
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.released_rows import released_level
from marginweave.domain.combinations import Level
from marginweave.measurements.base import Drawn, Exact, Forecast, Measurement, PrivateRows, Terms
from marginweave.measurements.contribution_bound import ContributionBound
from marginweave.measurements.digests import level_digest
from marginweave.measurements.levels import (
    LevelMechanism,
    draw_level,
    level_noise,
    plan_level,
    prepare_level,
)
from marginweave.measurements.overflow import Expectation, keep_most, raise_threshold
from marginweave.measurements.survivors import (
    candidates_of,
    has_candidates,
    levels_below,
    released_blocks,
)
from marginweave.measurements.thresholds import level_threshold, private_threshold
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import gaussian_terms, noise_sigma
from marginweave.mechanisms.randomness import DrawBits, KeyedBits
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.payloads import DrawnLevel, pack_level
from marginweave.released.statement import DrawNoise

if TYPE_CHECKING:
    from marginweave.counts.bounded_counts import BoundedCounts  # numba, which a plan does without


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelCounts:
    """The exact counts of a length, and all that their draw needs. Private.

    `labels` are the values of every column, those of private ones among them; at most `most` combinations survive.
    """

    bounded: BoundedCounts
    candidates: CandidateSet
    mechanism: LevelMechanism
    noise: LevelNoise
    labels: tuple[tuple[str, ...], ...]
    most: int


@dataclass(frozen=True, kw_only=True)
class TupleLevel(Measurement[LevelCounts]):
    """All combinations of k attributes, over the survivors of the length below; length 1 discovers private values.

    `threshold_delta` pays for that. DP: mu-GDP with mu = 1 / its multiplier, plus `threshold_delta`.
    """

    template = "level-{}"
    title = "counts of length {}"

    threshold_delta: float = 0.0

    @property
    def length(self) -> int:
        """Length k."""
        return self.place[0]

    def charged(self, charge: Charge) -> Self:
        """Return this measurement with the numbers of `charge`."""
        delta = float(charge.terms.get("threshold_delta", self.threshold_delta))
        return replace(super().charged(charge), threshold_delta=delta)

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return the sensitivity: a row adds 1 to at most as many counts as the public cap."""
        cap = configuration.contribution_cap(self.length)
        return Sensitivity.of_rows(self.view.stability(configuration), l1=cap, l2_squared=cap)

    def sigma(self, configuration: Configuration, bound: int | None = None) -> Fraction:
        """Return the standard deviation of noise where a record has at most `bound` counts; without it at the public cap."""
        most = configuration.contribution_cap(self.length) if bound is None else bound
        return noise_sigma(self.noise_multiplier, most, self.view.stability(configuration))

    def terms(self, configuration: Configuration) -> Terms:
        """Return cap, thresholds and limits; where no percentile is drawn, noise and the thresholds themselves."""
        cap = configuration.contribution_cap(self.length)
        settings = configuration.tuples.model_dump(
            mode="json", include={"thresholds", "max_combinations"}
        )
        terms: Terms = {"cap": cap, **settings}
        discovers = bool(configuration.private_columns) and self.length == 1
        if discovers:
            terms |= {
                "threshold_delta": repr(self.threshold_delta),
                "private_values": configuration.private_values,
            }
        if configuration.percentile is None:
            sigma = self.sigma(configuration)
            terms |= {"contribution_bound": cap, "sigma": str(sigma)}
            if discovers:
                least = level_threshold(configuration.tuples, 1, sigma, 0, 0)
                terms["private_threshold"] = max(
                    least, self._discovery_threshold(configuration, sigma)
                )
        return terms

    def _discovery_threshold(self, configuration: Configuration, sigma: Fraction) -> int:
        """Return the least count of a private value that `threshold_delta` pays for, at the public cap."""
        values_each = min(configuration.contribution_cap(self.length), configuration.private_values)
        records = self.view.stability(configuration).records
        return private_threshold(sigma, values_each, records, self.threshold_delta)

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise at the public cap, and the threshold if every candidate survives, when it is lowest."""
        sigma = self.sigma(configuration)
        least = level_threshold(configuration.tuples, self.length, sigma, 1, 1)
        of_private = ""
        if self.length == 1 and configuration.private_columns:
            of_private = str(max(least, self._discovery_threshold(configuration, sigma)))
        return Forecast(
            sigmas=(float(sigma),),
            at_most=configuration.percentile is not None,
            threshold=str(least),
            private_threshold=of_private,
        )

    def shares(self, configuration: Configuration) -> Sequence[float]:
        """Return at most e_k(w) / e_k(s), the elementary symmetric polynomials of degree k; none where values are private.

        Attribute j has s_j declared values, of which a record can hold w_j.
        """
        if configuration.private_columns:
            return ()
        labels = [len(attribute.labels) for attribute in configuration.attributes]
        return (
            configuration.contribution_cap(self.length) / most_combinations(labels, self.length),
        )

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - as released
        """Return its sigma."""
        return DrawNoise(sigma=observed.noise[self.length - 1].deviation)

    def is_needed(self, drawn: Drawn) -> bool:
        """Return whether there are combinations of its length."""
        return has_candidates(drawn, self.length)

    def unreached(self, drawn: Drawn) -> bytes:
        """Return a length without candidates, with the noise planned for it at the public cap of its contributions."""
        configuration = drawn.configuration
        sizes = tuple(len(attribute.labels) for attribute in configuration.attributes)
        no_candidates = CandidateSet(length=self.length, sizes=sizes)
        mechanism = self._mechanism(
            drawn, no_candidates, configuration.contribution_cap(self.length), 0
        )
        noise = level_noise(mechanism, no_candidates)
        return pack_level(
            DrawnLevel(
                level=Level.empty(self.length),
                noise=noise,
                released={},
            )
        )

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[LevelCounts]:
        """Return the bounded counts of all candidates. Private."""
        from marginweave.counts.bounded_counts import bounded_counts

        configuration = drawn.configuration
        length = self.length
        blocks = released_blocks(rows, drawn, length)
        candidates = candidates_of(drawn, blocks, length)
        bound = self._bound(drawn)
        words = KeyedBits(key=rows.key, purpose=self.name)
        with rows.engine() as engine:
            bounded = bounded_counts(blocks, candidates, bound, words, engine, rows.memory)
        below = levels_below(drawn, length)
        most = configuration.tuples.max_combinations
        survivors = len(below[-1].level) if below else 0
        mechanism = self._mechanism(drawn, candidates, bound, survivors)
        if below:
            mechanism = raise_threshold(
                mechanism, Expectation.of(below[-1].level, candidates), most
            )
        counts = LevelCounts(
            bounded=bounded,
            candidates=candidates,
            mechanism=mechanism,
            noise=level_noise(mechanism, candidates),
            labels=blocks.labels,
            most=most,
        )
        prepare_level(candidates, mechanism)
        used = {
            **gaussian_terms(mechanism.sigma),
            "contribution_bound": bound,
            "threshold": mechanism.threshold,
        }
        if mechanism.private_threshold:
            used["private_threshold"] = mechanism.private_threshold
        # counts that were moved to disk are read once, for their digest
        return Exact(
            counts=counts,
            digest=level_digest(bounded, candidates, mechanism, blocks.labels),
            used=used,
        )

    def draw(self, exact: Exact[LevelCounts], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002 - none
        """Return the combinations that reach their threshold."""
        counts = exact.counts
        level = draw_level(counts.bounded, counts.candidates, counts.mechanism, bits)
        noise = counts.noise
        if self.length > 1:
            level, noise = keep_most(level, noise, counts.most)
        # names of private values leave only if they reached their threshold
        published, released = released_level(
            level, counts.labels, sorted(counts.mechanism.private_columns)
        )
        return pack_level(DrawnLevel(level=published, noise=noise, released=released))

    def _bound(self, drawn: Drawn) -> int:
        """Return Delta_k: its public cap, or the percentile that was drawn for it."""
        if drawn.configuration.percentile is None:
            return drawn.configuration.contribution_cap(self.length)
        return unpack_number(drawn.payload(drawn.plan.draw(ContributionBound, self.length)))

    def _mechanism(
        self,
        drawn: Drawn,
        candidates: CandidateSet,
        bound: int,
        survivors: int,
    ) -> LevelMechanism:
        """Return the mechanism with this contribution bound, and its threshold as configured."""
        return plan_level(
            drawn.configuration,
            candidates=candidates,
            survivors_before=survivors,
            contribution_bound=bound,
            sigma=self.sigma(drawn.configuration, bound),
            delta_threshold=self.threshold_delta,
        )
