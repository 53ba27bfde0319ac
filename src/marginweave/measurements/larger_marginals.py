"""Marginals of two and more columns that are declared, or selected by noisy scores of pairs."""

from __future__ import annotations

from marginweave.checkpoints.codecs import unpack_arrays
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import count_marginals
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import domain_sizes
from marginweave.measurements.base import Drawn, Exact, PrivateRows
from marginweave.measurements.one_way import compressed_rows, drawn_one_way
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.selection import (
    declared_cliques,
    fitting,
    most_cells,
    selected_cliques,
)
from marginweave.measurements.whole_marginals import MarginalCounts, WholeMarginals, public_sizes
from marginweave.observations.payloads import pack_observations


class LargerMarginals(WholeMarginals):
    """The marginals of two and more attributes, rare values merged."""

    template = "marginals"
    title = "larger marginals"

    @classmethod
    def cliques(cls, configuration: Configuration) -> tuple[Clique, ...]:
        """Return the declared marginals; none where they are chosen by noisy scores."""
        settings = configuration.marginal_settings
        if settings.selects(len(configuration.attributes)):
            return ()
        return declared_cliques(settings, configuration.attributes, public_sizes(configuration))

    def is_public(self, configuration: Configuration) -> bool:
        """Return whether the marginals and their cells are public: over merged values they are not."""
        return (
            super().is_public(configuration) and configuration.marginal_settings.compress == "none"
        )

    def is_needed(self, drawn: Drawn) -> bool:
        """Return whether any marginal is worth its noise."""
        return bool(self.measured_cliques(drawn))

    def unreached(self, drawn: Drawn) -> bytes:  # noqa: ARG002 - none of them
        """Return no marginals."""
        return pack_observations(())

    def measured_cliques(self, drawn: Drawn) -> tuple[Clique, ...]:
        """Return the sets that are measured over merged codes, with coarser bins behind them.

        Nothing drawn before makes a set too large. `max_cells` is about the released domain, so that there are never more
        marginals than `plan` has counted.
        DP: post-processing of the draws before.
        """
        configuration = drawn.configuration
        settings = configuration.marginal_settings
        attributes = configuration.attributes
        one_way = drawn_one_way(drawn)
        sizes = one_way.declared_sizes
        most = most_cells(self.mechanism)
        if not settings.selects(len(attributes)):
            domain = domain_sizes(attributes, one_way.domain.labels)
            return fitting(declared_cliques(settings, attributes, domain), sizes, most)
        scores = unpack_arrays(drawn.payload(drawn.plan.draw(PairScores)))[0]["scores"]
        return selected_cliques(
            settings, sizes, scores, self.count_noise(configuration), self.parameter
        )

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[MarginalCounts]:
        """Return the exact marginals over merged codes. Private."""
        merged = compressed_rows(rows, drawn)
        one_way = drawn_one_way(drawn)
        cliques = self.measured_cliques(drawn)
        tables = count_marginals(merged, merged.sizes, cliques)
        return self.exact(drawn.configuration, cliques, one_way.declared_sizes, tables)
