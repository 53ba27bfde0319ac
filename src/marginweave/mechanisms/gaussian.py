"""Adds Gaussian noise to private counts, and chooses by private scores. Integers in, integers out.

`zero_cells` says which of many counts that are zero would pass a threshold, without adding noise to each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from marginweave.base.arrays import Floats, Integers
from marginweave.base.budget import Cost, Stability, amount
from marginweave.base.digests import fractions_digest, text_digest
from marginweave.base.errors import InputError
from marginweave.configuration.values import MAX_CELLS
from marginweave.mechanisms.base import CountNoise, Sensitivity, check_room
from marginweave.mechanisms.exponential import choose
from marginweave.mechanisms.noise_table import MAX_SIGMA, SAMPLER_FORMAT, draw_signed, noise_table
from marginweave.mechanisms.normal import ndtri
from marginweave.mechanisms.percentile import rank_scores, score_sensitivity
from marginweave.mechanisms.randomness import DrawBits

_CHUNK = 1 << 17
_SIGMA_STEP = 1024


def gaussian_sigma(multiplier: float, sensitivity: Sensitivity) -> Fraction:
    """Return the standard deviation of the noise of a measurement, in the steps of the sensitivity.

    It is multiplier times L2 sensitivity, rounded up to a multiple of 1/1024.
    DP: arithmetic on public or released numbers. Raises InputError unless multiplier is positive.
    """
    if not math.isfinite(multiplier) or multiplier <= 0:
        raise InputError(f"multiplier ({multiplier}) must be positive")
    square = (Fraction(multiplier) * _SIGMA_STEP) ** 2 * sensitivity.l2_squared
    steps = math.isqrt(math.ceil(square) - 1) + 1
    return Fraction(steps, _SIGMA_STEP)


def noise_sigma(multiplier: float, contribution_bound: int, stability: Stability) -> Fraction:
    """Return the standard deviation of the noise of one level: multiplier theta sqrt(Delta_k).

    A row adds 1 to at most Delta_k counts of the level. It is sqrt(2) times as much where units are replaced
    (`Sensitivity.of_rows`).
    DP: arithmetic on public or released numbers. Raises InputError unless multiplier is positive and the bound at least 1.
    """
    if contribution_bound < 1:
        raise InputError(f"contribution_bound ({contribution_bound}) must be at least 1")
    return gaussian_sigma(
        multiplier,
        Sensitivity.of_rows(stability, l1=contribution_bound, l2_squared=contribution_bound),
    )


def marginal_sigma(multiplier: float, stability: Stability) -> Fraction:
    """Return the standard deviation of the noise of one marginal: multiplier times its L2 sensitivity, a multiple of 1/1024.

    A unit holds at most theta = stability.records records of the bounded table. Coming or going, it moves the marginal by a
    vector u >= 0 with |u|_1 <= theta, so |u|_2 <= theta, which one full cell reaches; replaced, by u - v with
    |u - v|_2^2 <= |u|_2^2 + |v|_2^2 <= 2 theta^2, because u.v >= 0. m marginals cost mu^2 = sum_i 1/multiplier_i^2.
    DP: arithmetic on public numbers. Raises InputError unless multiplier is positive.
    """
    return noise_sigma(multiplier, 1, stability)


def count_sigma(multiplier: float, stability: Stability) -> Fraction:
    """Return the standard deviation of the noise of the record count: multiplier theta, under both relations.

    theta rows that come or go move it by theta; a replacement by no more than that, as a unit may have fewer rows than
    another (not at all where a row is the unit: it is noised and charged all the same).
    DP: arithmetic on public numbers. Raises InputError as `noise_sigma`.
    """
    return noise_sigma(multiplier, 1, replace(stability, neighbors="add-remove"))


def gaussian_terms(*sigmas: Fraction) -> dict[str, str | int]:
    """Return what rounded Gaussian noise of these standard deviations depends on apart from its seed.

    These are the exact values, and the digest of the table that it is drawn from; for several, digests of all. The tables are
    built here, ahead of the draw, so that little that can fail happens after its charge.
    DP: arithmetic on public or released numbers. Raises InputError for a sigma that has no table.
    """
    tables = [noise_table(sigma).digest for sigma in dict.fromkeys(sigmas)]
    if len(sigmas) == 1:
        return {"sigma": str(sigmas[0]), "table": tables[0], "sampler": SAMPLER_FORMAT}
    return {
        "noise": fractions_digest(sigmas),
        "table": text_digest(tables),
        "sampler": SAMPLER_FORMAT,
    }


def add_noise(
    counts: Integers, sigma: Fraction, bits: DrawBits, *, table: int = 0, start: int = 0
) -> Integers:
    """Return counts plus independent rounded Gaussian noise of standard deviation `sigma`: a function of `bits` and the cell.

    Theorem: f + N(0, sigma^2 I) is S/sigma-GDP (Dong, Roth and Su 2019, theorem 2.7) and S^2/(2 sigma^2)-zCDP (Bun
    and Steinke 2016, proposition 1.6) for every f of L2 sensitivity S. Counts are integers, so that adding rounded noise is
    rounding what the theorem speaks of: post-processing (`noise_table` says how near). Every cell of the candidate set must
    be in `counts`, zeros included: which of them are there is not covered.
    DP: (S / sigma)-GDP and S^2/(2 sigma^2)-zCDP, S the L2 sensitivity of `counts`.

    Args:
        counts: any shape, int64.
        sigma: standard deviation in counts, from `noise_sigma`.
        bits: of the draw.
        table: number of these counts in the draw.
        start: place of the first of them in that table; cell i of the flattened counts has the word `start` + i.

    Returns:
        the shape of `counts`, int64.

    Raises:
        InputError: counts of another type, or a sigma that has no table.
        StageError: a count so large that noise could leave 64 bits.
    """
    if counts.dtype != np.int64:
        raise InputError(f"counts ({counts.dtype}) must be int64")
    distribution = noise_table(sigma)
    check_room(counts, distribution.largest)
    flat = counts.ravel()
    noisy = np.empty(flat.size, np.int64)
    for first in range(0, flat.size, _CHUNK):
        chunk = flat[first : first + _CHUNK]
        noise = draw_signed(distribution, bits, table, start + first, len(chunk))
        noisy[first : first + _CHUNK] = chunk + noise
    return noisy.reshape(counts.shape)


def select_percentile(
    histogram: Integers,
    percentile: float,
    epsilon: float,
    stability: Stability,
    bits: DrawBits,
) -> int:
    """Choose a candidate 1 … cap near the wanted percentile: of combinations a record, or of values on a public grid.

    Exponential mechanism on `rank_scores`, Pr[c] proportional to e^{epsilon s(c) / (2 sensitivity)}, exactly
    (`exponential.choose`); the candidates are public, 0 is none of them. The chosen rank is off by at most
    (2 / epsilon) ln(cap / beta) records with probability 1 - beta.
    Theorem: it is epsilon-DP (McSherry and Talwar 2007, theorem 6), its loss lies in an interval of length epsilon (Durfee and
    Rogers 2019): epsilon^2/8-zCDP (Cesar and Rogers 2021), and `selection_mu`-GDP by the proof that stands with that.
    DP: epsilon-DP, epsilon^2/8-zCDP and selection_mu(epsilon)-GDP under `stability`, each record counted once at most.

    Args:
        histogram: shape (cap + 1,), int64; entry c is the number of records with c combinations, clipped to cap.
        percentile: in (0, 100).
        epsilon: of the exponential mechanism, undivided for every length.
        stability: how many records of one unit move, and how: it sets the sensitivity of the score.
        bits: of the draw.

    Raises:
        InputError: a parameter out of range.
    """
    if histogram.dtype != np.int64 or histogram.ndim != 1 or len(histogram) < 2:
        raise InputError("histogram must be a vector of int64 with at least one candidate")
    scores = rank_scores(histogram, percentile)
    return 1 + select_candidate(scores, score_sensitivity(percentile, stability), epsilon, bits)


def select_candidate(scores: Integers, sensitivity: int, epsilon: float, bits: DrawBits) -> int:
    """Choose the place of one of the candidates, with probability proportional to e^{epsilon score / (2 sensitivity)}.

    Exponential mechanism, exactly (`exponential.choose`), epsilon being the double's own fraction; scores are integers, and
    what they are of is public. Theorem: as of `select_percentile`.
    DP: epsilon-DP, epsilon^2/8-zCDP and selection_mu(epsilon)-GDP, if no neighbor moves a score by more than `sensitivity`.

    Args:
        scores: shape (candidates,), int64; private.
        sensitivity: in the unit of the scores.
        epsilon: of the exponential mechanism.
        bits: of the draw.

    Raises:
        InputError: scores of another kind, none of them, or a parameter out of range.
    """
    if scores.dtype != np.int64 or scores.ndim != 1 or not len(scores):
        raise InputError("scores must be a vector of int64 with at least one candidate")
    if sensitivity < 1 or not math.isfinite(epsilon) or epsilon <= 0:
        raise InputError(
            f"sensitivity ({sensitivity}) must be at least 1 and epsilon ({epsilon}) positive"
        )
    return choose(scores, Fraction(epsilon) / (2 * sensitivity), bits)


class RoundedGaussian(CountNoise):
    """Rounded Gaussian noise; the part of a marginal is its standard deviation."""

    name = "rounded-gaussian"
    parameter = "noise_multiplier"
    words = (
        "rounded Gaussian noise on counts, standard deviation {parameter:.6g} times the sensitivity"
    )
    setting = "gaussian"
    title = "Gaussian"
    share_power = 2 / 3
    mean_error = math.sqrt(2 / math.pi)
    kurtosis = 3.0
    is_normal = True
    rounding_variance = 1 / 12
    most_cells = MAX_CELLS
    largest_part = MAX_SIGMA

    @staticmethod
    def price(parameter: float) -> Cost:
        """Return 1/multiplier^2 in mu^2, half of it in rho."""
        mu2 = 1 / Fraction(parameter) ** 2
        rho = mu2 / 2
        return Cost(mu2=amount(float(mu2)), rho=amount(float(rho)), delta=amount(0.0))

    def parts(self, parameter: float, shares: Sequence[float]) -> tuple[Fraction, ...]:
        """Return the standard deviation of each marginal.

        The marginal with the share s_i has the multiplier M / sqrt(s_i): together sum_i s_i / M^2 = 1 / M^2 in mu^2.
        """
        multipliers = [parameter / math.sqrt(share) for share in shares]
        return tuple(marginal_sigma(multiplier, self.stability) for multiplier in multipliers)

    def sigma(self, part: Fraction) -> Fraction:
        """Return the part, which is the standard deviation."""
        return part

    def cell_error(self, parameter: float) -> float:
        """Return S / sqrt(pi rho), S the L2 sensitivity, rho = mu^2 / 2."""
        sensitivity = float(marginal_sigma(1.0, self.stability))
        return sensitivity / math.sqrt(math.pi * parameter**-2 / 2)

    def add(self, counts: Integers, part: Fraction, bits: DrawBits, table: int) -> Integers:
        """Return the counts with noise, as `add_noise`."""
        return add_noise(counts, part, bits, table=table)

    def terms(self, parts: Sequence[Fraction]) -> Mapping[str, str | int]:
        """Return the terms of the noise, as `gaussian_terms`."""
        return gaussian_terms(*parts)

    @staticmethod
    def log_tail(sigma: float, least: Integers) -> Floats:
        """Return log Phi((1/2 - least) / sigma), as the noise is a normal number that was rounded."""
        from scipy.special import log_ndtr  # a plan does without it

        return np.asarray(log_ndtr((0.5 - least) / sigma), np.float64)

    @staticmethod
    def reach(sigma: float, level: float) -> int:
        """Return floor(1/2 + z sigma), z the normal quantile of (1 + level)/2."""
        return math.floor(0.5 - ndtri((1 - level) / 2) * sigma)
