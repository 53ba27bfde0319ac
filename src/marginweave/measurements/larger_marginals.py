"""Marginals of two and more columns that are declared, or selected by noisy scores of pairs."""

from __future__ import annotations

from typing import Any

from marginweave.base.digests import counts_digest, text_digest
from marginweave.checkpoints.codecs import unpack_arrays
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import domain_sizes
from marginweave.measurements.base import Drawn, Exact, PrivateRows, Terms
from marginweave.measurements.few_records import FewRecords, candidate_pairs, has_few_records
from marginweave.measurements.marginal_rows import released_rows
from marginweave.measurements.one_way import compressed_rows, drawn_one_way
from marginweave.measurements.pair_scores import PairScores
from marginweave.measurements.selection import (
    declared_cliques,
    fitting,
    most_cells,
    selected_cliques,
)
from marginweave.measurements.whole_marginals import MarginalCounts, WholeMarginals, public_sizes
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.payloads import observation_bytes, pack_observations


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
        settings = configuration.marginal_settings
        is_fixed = settings.compress == "none" and settings.least_records is None
        return is_fixed and super().is_public(configuration)

    def terms(self, configuration: Configuration) -> Terms:
        """Return those of whole marginals, and the number of records that decides what is measured."""
        terms = super().terms(configuration)
        least = configuration.marginal_settings.least_records
        return terms if least is None else {**terms, "least_records": least}

    def is_needed(self, drawn: Drawn) -> bool:
        """Return whether any marginal is worth its noise."""
        return has_few_records(drawn) or bool(self.measured_cliques(drawn))

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
        """Return the exact marginals over merged codes; with few records, those that may be chosen. Private."""
        if has_few_records(drawn):
            return self._few_records(rows, drawn)
        merged = compressed_rows(rows, drawn)
        one_way = drawn_one_way(drawn)
        cliques = self.measured_cliques(drawn)
        tables = count_marginals(merged, merged.sizes, cliques)
        return self.exact(drawn.configuration, cliques, one_way.declared_sizes, tables)

    def draw(self, exact: Exact[Any], bits: DrawBits, sealed: bytes) -> bytes:
        """Return every marginal with noise on all of its cells."""
        if isinstance(exact.counts, FewRecords):
            return pack_observations(exact.counts.measure(bits))
        return super().draw(exact, bits, sealed)

    def _few_records(self, rows: PrivateRows, drawn: Drawn) -> Exact[Any]:
        """Return the exact marginals of single attributes and of pairs that may be chosen, before merging. Private."""
        released = released_rows(rows, drawn)
        attributes = len(drawn.configuration.attributes)
        single = all_cliques(released.sizes[:attributes], 1)
        pairs = candidate_pairs(released.sizes[:attributes])
        tables = list(count_marginals(released, released.sizes, [*single, *pairs]))
        counts = FewRecords(
            drawn=drawn,
            noise=self.count_noise(drawn.configuration),
            multiplier=self.noise_multiplier,
            single=tables[:attributes],
            pairs=pairs,
            tables=tables[attributes:],
        )
        return Exact(
            counts=counts,
            digest=text_digest([str(pairs), counts_digest(tables)]),
            used=counts.terms,
            size=observation_bytes(tables),
        )
