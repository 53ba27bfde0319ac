"""Draw of the number of records."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.digests import counts_digest
from marginweave.checkpoints.codecs import pack_number
from marginweave.configuration.release import Configuration
from marginweave.measurements.base import Drawn, Exact, Forecast, Measurement, PrivateRows, Terms
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import add_noise, count_sigma, gaussian_terms
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.combinations import Aggregates
from marginweave.released.statement import DrawNoise


class RecordCount(Measurement[tuple[Integers, Fraction]]):
    """The number of records: n plus rounded Gaussian noise. DP: mu-GDP with mu = 1 / its multiplier."""

    template = "count"
    title = "record count"
    share_key = "aggregate.count_share"
    heading = "record count"

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return theta, under both relations: see `count_sigma`."""
        theta = self.view.stability(configuration).records
        return Sensitivity(l1=theta, l2_squared=theta**2)

    def sigma(self, configuration: Configuration) -> Fraction:
        """Return the standard deviation of its noise, in records."""
        return count_sigma(self.noise_multiplier, self.view.stability(configuration))

    def terms(self, configuration: Configuration) -> Terms:
        """Return its sigma."""
        return {"sigma": str(self.sigma(configuration))}

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise of one query."""
        return Forecast(sigmas=(float(self.sigma(configuration)),))

    def shares(self, configuration: Configuration) -> Sequence[float]:  # noqa: ARG002 - of any
        """Return 1: the count is of all records."""
        return (1.0,)

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - as released
        """Return its sigma."""
        return DrawNoise(sigma=observed.record_deviation)

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[tuple[Integers, Fraction]]:
        """Return the exact number of records. Private."""
        records = np.array([rows.encoded().records], np.int64)
        sigma = self.sigma(drawn.configuration)
        return Exact(
            counts=(records, sigma),
            digest=counts_digest([records]),
            used=gaussian_terms(sigma),
        )

    def draw(self, exact: Exact[tuple[Integers, Fraction]], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002 - none
        """Return the number of records with noise."""
        records, sigma = exact.counts
        return pack_number(int(add_noise(records, sigma, bits)[0]))
