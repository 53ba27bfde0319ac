"""Draw of the rows that bounded contributions leave out, and of the number of subjects that have such rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.base.digests import counts_digest
from marginweave.checkpoints.codecs import pack_codes, unpack_codes
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import UncountedRows
from marginweave.measurements.base import (
    PREPROCESS,
    Drawn,
    Exact,
    Forecast,
    Measurement,
    PrivateRows,
    RowView,
    Terms,
)
from marginweave.mechanisms.base import Sensitivity
from marginweave.mechanisms.gaussian import add_noise, gaussian_sigma, gaussian_terms
from marginweave.mechanisms.noise_table import MAX_SIGMA
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.combinations import Aggregates
from marginweave.observations.uncounted import uncounted_rows
from marginweave.prepare.clean import CleanBlock
from marginweave.released.statement import DrawNoise

SHARE = 0.01
"""Share of the budget: noise is ten times that of all of it, which tells a few subjects from none in a table of thousands."""
# Of one subject's rows beyond theta, no more are examined: noise grows with their number.
_MOST = 100


class RowsBeyondCap(Measurement[tuple[Integers, Fraction]]):
    """w times the number of subjects with more than theta rows; and their rows beyond theta, w of each at most.

    w is theta, and smaller where theta is above 100, or noise would be too large to be drawn. Rounded Gaussian noise on both
    numbers. DP: mu-GDP with mu = 1 / its multiplier.
    """

    template = "rows-beyond-cap"
    title = "rows that are not counted"
    view = RowView("subjects", PREPROCESS, grouped=True)

    @classmethod
    def is_planned(cls, configuration: Configuration) -> bool:
        """Return whether rows of subjects are left out and counted: in a resized table their number has no meaning."""
        subject = configuration.privacy.subject
        return subject is not None and not subject.join and configuration.resize is None

    @staticmethod
    def cap(configuration: Configuration) -> int:
        """Return theta, how many rows of a subject are counted."""
        return configuration.privacy.stability.records

    def most(self, configuration: Configuration) -> int:
        """Return w, how many rows of a subject beyond theta are counted at most. DP: arithmetic on public numbers."""
        drawable = math.floor(MAX_SIGMA / (2 * self.noise_multiplier))
        return max(1, min(self.cap(configuration), _MOST, drawable))

    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return the sensitivity of both numbers.

        Either is between 0 and w for one subject, whatever rows it has, so that a replacement moves it no farther.
        """
        most = self.most(configuration)
        return Sensitivity(l1=2 * most, l2_squared=2 * most**2)

    def sigma(self, configuration: Configuration) -> Fraction:
        """Return the standard deviation of the noise of either number."""
        return gaussian_sigma(self.noise_multiplier, self.sensitivity(configuration))

    def terms(self, configuration: Configuration) -> Terms:
        """Return its sigma and w."""
        return {"sigma": str(self.sigma(configuration)), "most": self.most(configuration)}

    def forecast(self, configuration: Configuration) -> Forecast:
        """Return the noise of the number of subjects, and of rows."""
        sigma = float(self.sigma(configuration))
        return Forecast(sigmas=(sigma / self.most(configuration), sigma))

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - as released
        """Return the noise of the number of rows."""
        return DrawNoise(sigma=float(self.sigma(configuration)))

    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[tuple[Integers, Fraction]]:
        """Return both exact numbers. Private."""
        configuration = drawn.configuration
        sigma = self.sigma(configuration)
        counted = beyond_cap(rows.clean(), self.cap(configuration), self.most(configuration))
        return Exact(
            counts=(counted, sigma),
            digest=counts_digest([counted]),
            used=gaussian_terms(sigma),
        )

    def draw(self, exact: Exact[tuple[Integers, Fraction]], bits: DrawBits, sealed: bytes) -> bytes:  # noqa: ARG002 - none
        """Return both numbers with noise."""
        counted, sigma = exact.counts
        return pack_codes([add_noise(counted, sigma, bits)])

    def observed(self, drawn: Drawn) -> UncountedRows:
        """Return the drawn numbers, as subjects and rows. DP: post-processing."""
        configuration = drawn.configuration
        ((subjects, rows),) = unpack_codes(drawn.payload(self))
        return uncounted_rows(
            int(subjects),
            int(rows),
            cap=self.cap(configuration),
            most=self.most(configuration),
            sigma=float(self.sigma(configuration)),
        )


def beyond_cap(
    blocks: Iterable[CleanBlock],
    cap: int,
    most: int,
) -> Integers:
    """Count `most` times the subjects with more than `cap` rows, and their rows beyond, `most` of each; private.

    `cap` rows of such a subject are in the blocks, and each row says how many rows the subject has.

    Returns:
        both numbers, shape (2,), int64.
    """
    subjects = rows = 0
    for block in blocks:
        assert block.rows_of_unit is not None
        beyond = np.minimum(block.rows_of_unit - cap, most)
        beyond = beyond[beyond > 0]
        subjects += len(beyond)
        rows += int(beyond.sum())
    return np.array([most * (subjects // cap), rows // cap], np.int64)


def observed_uncounted(drawn: Drawn) -> UncountedRows | None:
    """Return the drawn number of rows that are not counted; None where it is not drawn. DP: post-processing."""
    measurements = drawn.plan.of(RowsBeyondCap)
    return measurements[0].observed(drawn) if measurements else None
