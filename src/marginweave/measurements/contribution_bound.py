"""Bound on how many combinations of one length a record is counted in: a percentile, drawn for each length."""

from __future__ import annotations

from marginweave.base.arrays import Integers
from marginweave.base.budget import Stability
from marginweave.base.digests import counts_digest
from marginweave.checkpoints.codecs import pack_number
from marginweave.configuration.release import Configuration
from marginweave.measurements.base import Drawn, Exact, Forecast, Measurement, PrivateRows, Terms
from marginweave.measurements.survivors import candidates_of, has_candidates, released_blocks
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import select_percentile
from marginweave.mechanisms.percentile import rank_error, score_sensitivity
from marginweave.mechanisms.randomness import DrawBits


class ContributionBound(Measurement[tuple[Integers, float, Stability]]):
    """Delta_k, from 1 to its public cap: near the percentile `aggregate.percentile` of the combinations that records have.

    Exponential mechanism on ranks (`select_percentile`). DP: epsilon-DP.
    """

    template = "percentile-{}"
    title = "contribution bound, length {}"
    share_key = "aggregate.percentile_share"

    @property
    def length(self) -> int:
        """Length k."""
        return self.place[0]

    @staticmethod
    def percentile(configuration: Configuration) -> float:
        """Return the percentile that the bound approximates."""
        percentile = configuration.percentile
        assert percentile is not None
        return percentile

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return how far a unit moves any score."""
        moved = score_sensitivity(
            self.percentile(configuration), self.view.stability(configuration)
        )
        return Sensitivity(l1=moved, l2_squared=moved**2)

    def terms(self, configuration: Configuration) -> Terms:
        """Return the percentile, the public cap, and the sensitivity of the scores."""
        return {
            "percentile": str(self.percentile(configuration)),
            "cap": configuration.contribution_cap(self.length),
            "sensitivity": self.sensitivity(configuration).l1,
        }

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return by how many ranks the choice may be off."""
        unit = self.view.stability(configuration)
        cap = configuration.contribution_cap(self.length)
        ranks = rank_error(self.percentile(configuration), unit, self.epsilon, cap)
        return Forecast(short=f"rank ± {ranks:.0f}")

    def is_needed(self, drawn: Drawn) -> bool:
        """Return whether there are combinations of its length."""
        return has_candidates(drawn, self.length)

    def unreached(self, drawn: Drawn) -> bytes:
        """Return the public cap."""
        return pack_number(drawn.configuration.contribution_cap(self.length))

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[tuple[Integers, float, Stability]]:
        """Return how many records have how many combinations, up to the cap; private."""
        # numba, which a plan does without
        from marginweave.counts.bounded_counts import contribution_histogram

        configuration = drawn.configuration
        blocks = released_blocks(rows, drawn, self.length)
        cap = configuration.contribution_cap(self.length)
        with rows.engine() as engine:
            candidates = candidates_of(drawn, blocks, self.length)
            histogram = contribution_histogram(blocks, candidates, cap, engine, rows.memory)
        return Exact(
            counts=(histogram, self.percentile(configuration), self.view.stability(configuration)),
            digest=counts_digest([histogram]),
            used=self.terms(configuration),
        )

    def draw(
        self,
        exact: Exact[tuple[Integers, float, Stability]],
        bits: DrawBits,
        sealed: bytes,  # noqa: ARG002 - none
    ) -> bytes:
        """Return the chosen bound."""
        histogram, percentile, unit = exact.counts
        return pack_number(select_percentile(histogram, percentile, self.epsilon, unit, bits))
