"""Draw of the values of private domains: which of those that occur are released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np

from marginweave.accounting.charges import Charge
from marginweave.base.arrays import Counts
from marginweave.configuration.release import Configuration
from marginweave.counts.released_rows import count_values
from marginweave.measurements.base import Drawn, Exact, Forecast, Measurement, PrivateRows, Terms
from marginweave.measurements.digests import values_digest
from marginweave.measurements.thresholds import private_threshold
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import add_noise, gaussian_sigma, gaussian_terms
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.combinations import Aggregates
from marginweave.observations.payloads import pack_labels, unpack_labels
from marginweave.released.statement import DrawNoise


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivateValueCounts:
    """The counts of each value of private attributes, by attribute, and the values of every attribute. Private."""

    counts: Mapping[int, Counts]
    labels: Sequence[tuple[str, ...]]
    sigma: Fraction
    threshold: int


@dataclass(frozen=True, kw_only=True)
class PrivateValues(Measurement[PrivateValueCounts]):
    """The values of private domains, in a release of marginals; `threshold_delta` pays for their discovery.

    DP: mu-GDP with mu = 1 / its multiplier, plus `threshold_delta`.
    """

    template = "values"
    title = "private values"
    share_key = "aggregate.values_share"

    threshold_delta: float

    def charged(self, charge: Charge) -> Self:
        """Return this measurement with the numbers of `charge`."""
        delta = float(charge.terms.get("threshold_delta", self.threshold_delta))
        return replace(super().charged(charge), threshold_delta=delta)

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return the sensitivity: a row has one value of each of p private attributes at most."""
        values_each = len(configuration.private_columns)
        return Sensitivity.of_rows(
            self.view.stability(configuration), l1=values_each, l2_squared=values_each
        )

    def sigma(self, configuration: Configuration) -> Fraction:
        """Return the standard deviation of its noise, in records."""
        return gaussian_sigma(self.noise_multiplier, self.sensitivity(configuration))

    def threshold(self, configuration: Configuration) -> int:
        """Return the least noisy count of a value that is released."""
        records = self.view.stability(configuration).records
        values_each = len(configuration.private_columns)
        return private_threshold(
            self.sigma(configuration), values_each, records, self.threshold_delta
        )

    def terms(self, configuration: Configuration) -> Terms:
        """Return noise, threshold, and the delta that pays for it."""
        return {
            "columns": len(configuration.private_columns),
            "sigma": str(self.sigma(configuration)),
            "threshold": self.threshold(configuration),
            "threshold_delta": repr(self.threshold_delta),
        }

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise of a value's count, and the least count that is released."""
        sigma = float(self.sigma(configuration))
        threshold = self.threshold(configuration)
        return Forecast(
            sigmas=(sigma,),
            unit="cell",
            threshold=str(threshold),
        )

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - it is planned
        """Return sigma, and the least noisy count of a released value."""
        return DrawNoise(
            threshold=self.threshold(configuration), sigma=float(self.sigma(configuration))
        )

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[PrivateValueCounts]:
        """Return how many records have each value. Private."""
        configuration = drawn.configuration
        encoded = rows.encoded()
        columns = [j for j, attribute in enumerate(configuration.attributes) if attribute.private]
        counts = count_values(encoded, columns)
        sigma = self.sigma(configuration)
        threshold = self.threshold(configuration)
        return Exact(
            counts=PrivateValueCounts(
                counts=counts,
                labels=encoded.labels,
                sigma=sigma,
                threshold=threshold,
            ),
            digest=values_digest(counts, encoded.labels),
            used={**gaussian_terms(sigma), "threshold": threshold},
        )

    def draw(self, exact: Exact[PrivateValueCounts], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002 - none
        """Return the values whose noisy count reaches the threshold."""
        values = exact.counts
        return pack_labels(
            discover_labels(values.counts, values.labels, values.sigma, values.threshold, bits)
        )


def released_labels(drawn: Drawn) -> tuple[tuple[str, ...], ...]:
    """Return the released domain: public labels, and the discovered ones. DP: post-processing."""
    discovered: dict[int, tuple[str, ...]] = {}
    if drawn.configuration.private_columns:
        measurement = drawn.plan.draw(PrivateValues)
        discovered = drawn.remember("values", lambda: unpack_labels(drawn.payload(measurement)))
    attributes = enumerate(drawn.resolved.attributes)
    return tuple(discovered.get(j, attribute.labels) for j, attribute in attributes)


def discover_labels(
    counts: Mapping[int, Counts],
    labels: Sequence[tuple[str, ...]],
    sigma: Fraction,
    threshold: int,
    bits: DrawBits,
) -> dict[int, tuple[str, ...]]:
    """Return values of private attributes whose noisy count reaches the threshold, sorted, by attribute.

    Only values that occur are noised; that they do is what delta_threshold pays for (`private_threshold`; differentially
    private set union: Korolova et al. 2009, Gopi et al. 2020).
    DP: mu-GDP with mu = 1 / multiplier, plus delta_threshold.

    Args:
        counts: by attribute, from `count_values`.
        labels: the values of every attribute.
        sigma: standard deviation of the noise.
        threshold: noisy counts below it are not released.
        bits: of the draw; an attribute's table has its number.
    """
    released = {}
    for j, exact in counts.items():
        occurring = np.flatnonzero(exact)
        noisy = add_noise(exact[occurring], sigma, bits, table=j)
        values = occurring[noisy >= threshold]
        released[j] = tuple(sorted(labels[j][value] for value in values.tolist()))
    return released
