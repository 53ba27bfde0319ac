"""Draws of whole marginals, which share the noise of their draw, one kind of noise in a release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from marginweave.base.arrays import Counts
from marginweave.base.digests import counts_digest, fractions_digest, text_digest
from marginweave.checkpoints.codecs import pack_codes, unpack_codes
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import cells
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import domain_sizes
from marginweave.measurements.base import Exact, Forecast, Measurement, Terms
from marginweave.measurements.marginals import measure_marginals, split_noise
from marginweave.mechanisms.base import CountNoise, Sensitivity
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.payloads import observation_bytes, pack_observations


@dataclass(frozen=True, kw_only=True, eq=False)
class MarginalCounts:
    """The exact marginals of some sets of attributes, and the part of the noise that each has. Private."""

    noise: CountNoise
    cliques: Sequence[Clique]
    parts: Sequence[Fraction]
    tables: Sequence[Counts]


class SharedNoise(Measurement[MarginalCounts]):
    """Marginals that share the noise of one draw, by the cells of each as `aggregate.allocation` says.

    A row is in one cell of each. DP: the price of its mechanism at the joint parameter (`measure_marginals`).
    """

    def count_noise(self, configuration: Configuration) -> CountNoise:
        """Return its noise."""
        assert issubclass(self.mechanism, CountNoise)
        return self.mechanism(self.view.stability(configuration))

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return the sensitivity of one marginal: a row is in one of its cells."""
        return Sensitivity.of_rows(self.view.stability(configuration))

    def split(
        self,
        configuration: Configuration,
        cliques: Sequence[Clique],
        sizes: Sequence[int],
    ) -> tuple[Fraction, ...]:
        """Return the part of its noise that each of these marginals has, with `sizes` codes of the attributes."""
        settings = configuration.marginal_settings
        levels = settings.levels(public_sizes(configuration), configuration.attributes)
        return split_noise(
            self.count_noise(configuration),
            self.parameter,
            cliques,
            sizes,
            settings.allocation,
            reserved=settings.reserved_shares(cliques),
            weights=settings.target_weights(cliques, levels),
        )

    def exact(
        self,
        configuration: Configuration,
        cliques: Sequence[Clique],
        sizes: Sequence[int],
        tables: Sequence[Counts],
    ) -> Exact[MarginalCounts]:
        """Return the exact `tables`, with the part of the noise that each has by its cells.

        Attributes have `sizes` codes.
        """
        noise = self.count_noise(configuration)
        parts = self.split(configuration, cliques, sizes)
        return Exact(
            counts=MarginalCounts(
                noise=noise,
                cliques=cliques,
                parts=parts,
                tables=tables,
            ),
            digest=text_digest([str(cliques), counts_digest(tables)]),
            used=dict(noise.terms(parts)),
            size=observation_bytes(tables),
        )

    def seal(self, exact: Exact[MarginalCounts]) -> Callable[[], bytes] | None:
        """Return the function that makes the noise of a library that takes no key, before the charge."""
        counts = exact.counts
        if not counts.noise.takes_no_key:
            return None
        cells_of_tables = [table.size for table in counts.tables]
        return lambda: pack_codes(counts.noise.presample(cells_of_tables, counts.parts))

    def draw(
        self,
        exact: Exact[MarginalCounts],
        bits: DrawBits,
        sealed: bytes,
    ) -> bytes:
        """Return every marginal with noise on all of its cells."""
        counts = exact.counts
        presampled = unpack_codes(sealed) if counts.noise.takes_no_key else None
        noisy = measure_marginals(
            counts.noise, counts.tables, counts.cliques, counts.parts, bits, presampled
        )
        return pack_observations(list(noisy))


class WholeMarginals(SharedNoise):
    """Marginals that share one draw's noise, known before the first draw unless pairs are selected."""

    @classmethod
    @abstractmethod
    def cliques(cls, configuration: Configuration) -> tuple[Clique, ...]:
        """Return the marginals, over attributes and levels of `counted_sizes`; none where they are not known yet."""

    def parts(self, configuration: Configuration) -> tuple[Fraction, ...]:
        """Return the part of the noise that each of `cliques` has, and behind them the parts of all else that shares it."""
        return self.split(configuration, self.cliques(configuration), counted_sizes(configuration))

    def sigmas(self, configuration: Configuration) -> tuple[Fraction | float, ...]:
        """Return the standard deviation of the noise of a cell of each of `cliques`. DP: arithmetic on public numbers."""
        noise = self.count_noise(configuration)
        number = len(self.cliques(configuration))
        parts = self.parts(configuration)[:number]
        return tuple(map(noise.sigma, parts))

    def sigma_alone(self, configuration: Configuration) -> float:
        """Return the sigma of a marginal that has the draw to itself: the least possible."""
        noise = self.count_noise(configuration)
        (part,) = noise.parts(self.parameter, [1.0])
        return float(noise.sigma(part))

    def terms(self, configuration: Configuration) -> Terms:
        """Return how noise is shared, and where the marginals are public, their number and the digest of its parts."""
        terms: Terms = {"allocation": configuration.marginal_settings.allocation}
        if not configuration.private_columns and self.is_public(configuration):
            parts = self.parts(configuration)
            terms |= {"marginals": len(parts), "noise": fractions_digest(parts)}
        return terms

    def is_public(self, configuration: Configuration) -> bool:
        """Return whether the marginals and their cells follow from the configuration, apart from private domains."""
        return bool(self.cliques(configuration))

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise of a cell; if the number of marginals is not known, that of a marginal with the draw to itself."""
        sigmas = tuple(map(float, self.sigmas(configuration)))
        if not sigmas:
            return Forecast(
                sigmas=(self.sigma_alone(configuration),),
                unit="cell",
                is_shared=True,
            )
        return Forecast(sigmas=sigmas, unit="cell")

    def shares(self, configuration: Configuration) -> Sequence[float] | None:
        """Return one over its number of cells, for each marginal; none where values are private.

        None where the marginals are not known yet.
        """
        cliques = self.cliques(configuration)
        if not cliques:
            return None
        if configuration.private_columns:
            return ()
        sizes = counted_sizes(configuration)
        return tuple(1 / cells(clique, sizes) for clique in cliques)

    def exact(
        self,
        configuration: Configuration,
        cliques: Sequence[Clique],
        sizes: Sequence[int],
        tables: Sequence[Counts],
    ) -> Exact[MarginalCounts]:
        """Return `SharedNoise.exact`; the parts of the noise are compared with what was reserved, where that is known."""
        exact = super().exact(configuration, cliques, sizes, tables)
        used = {**exact.used, "noise": fractions_digest(exact.counts.parts)}
        return Exact(
            counts=exact.counts,
            digest=exact.digest,
            used=used,
            size=exact.size,
        )

    def equal_sigma(self, configuration: Configuration, number: int) -> float:
        """Return the noise of a cell where `number` marginals share it equally, the fallback of an unequal split."""
        noise = self.count_noise(configuration)
        settings = configuration.marginal_settings
        left = 1 - sum(settings.reserved_shares(self.cliques(configuration)).values())
        (part,) = noise.parts(self.parameter, [left / (number * settings.most_weight)])
        return float(noise.sigma(part))


def public_sizes(configuration: Configuration) -> tuple[int, ...]:
    """Return the number of codes of each attribute, the missing value included; of a private domain only that one is known."""
    return domain_sizes(
        configuration.attributes, [attribute.labels for attribute in configuration.attributes]
    )


def counted_sizes(configuration: Configuration) -> tuple[int, ...]:
    """Return `public_sizes`, and behind them those of the levels that larger marginals are counted at (`BinLevels`)."""
    sizes = public_sizes(configuration)
    settings = configuration.marginals
    if settings is None:
        return sizes
    return settings.levels(sizes, configuration.attributes).sizes
