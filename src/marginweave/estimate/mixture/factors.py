"""Common factors of many attributes, found in noisy pairs of which each says little, and components that have them."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.rounding import project_simplex
from marginweave.observations.tables import CensoredObservation, Observation

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Fewer attributes are fitted from a tree, whatever their noise: `auto` measures no pairs of these that are spread over them.
_MANY_ATTRIBUTES = 108
# Pairs of each attribute without which factors are not looked for: its effect is a mean over its pairs.
_LEAST_PAIRS = 8
# Sigmas of noise that the mean cell of a pair holds at most. Of a chain of 300 columns with 20,000 rows (13 sigmas) a model was
# .023 to .027 off by factors (TVD of pairs, simulated), .010 by a tree; with 5,000 rows (3.3 sigmas) .017 and .022.
_MOST_SIGMAS = 4.0
_MOST_FACTORS = 8
# By how much a factor has to stand out from noise alone, whose largest eigenvalue varies: of 300 columns in 4,000 pairs by 2 %.
_CLEAR = 1.1
_STEPS = 30  # of the posterior, most
_SETTLED = 1e-3  # relative change of an effect after which they end
_CORRECTIONS = 10  # of components whose shares would be below 0
_NEVER = 0.5  # records of a code of which nothing was counted
_LEAST_SHARE = 0.01  # of a code in a component, relative to its share of all records


@dataclass(frozen=True, kw_only=True, eq=False)
class CommonFactors:
    """Effects of factors on the shares of codes: in records at the place f a code c of an attribute has p_c + g_c'f.

    Over all records f has mean 0 and covariance I, so that two attributes have p p' + G G' together. The codes of all
    attributes are in a row, attribute a from `begins[a]` on; `shares` are p, shape (codes,), `effects` g, shape (codes,
    factors). Without factors attributes are independent.
    """

    begins: Integers
    shares: Floats
    effects: Floats

    def components(self, number: int, generator: np.random.Generator) -> Floats:
        """Return the shares of each code in components at normal places f, shape (components, codes). DP: post-processing.

        Shares that would be below 0 are raised to hardly any. Then p and g are changed until all components together have p
        and g as they were, as far as shares allow.
        """
        places = _normal_places(number, self.effects.shape[1], generator)
        rows = np.column_stack([np.ones(number), places])
        target = np.vstack([self.shares, self.effects.T])
        least = _LEAST_SHARE * self.shares
        sizes = np.diff(self.begins, append=len(self.shares))
        attribute_of = np.repeat(np.arange(len(sizes)), sizes)
        coefficients = target
        shares = np.empty((number, len(least)))
        for _ in range(_CORRECTIONS):
            shares = np.maximum(rows @ coefficients, least)
            shares /= np.add.reduceat(shares, self.begins, axis=1)[:, attribute_of]
            coefficients = coefficients + target - rows.T @ shares / number
        return shares


class FactorStart:
    """Components at places of common factors: in each, attributes are independent but for structural zeros."""

    def __init__(self, factors: CommonFactors, blocks: Sequence[Block], total: float) -> None:
        self._factors = factors
        self._blocks = blocks
        self._supports: Sequence[Flags] = [np.ones(len(block.cells), np.bool_) for block in blocks]
        self.one_way = [total * shares for shares in np.split(factors.shares, factors.begins[1:])]

    def within(self, supports: Sequence[Flags]) -> FactorStart:
        """Return the start for records inside one box; `supports` are the cells of each block that are in it."""
        inside = copy.copy(self)
        inside._supports = supports  # noqa: SLF001 - its own
        return inside

    def shares(self, components: int, generator: np.random.Generator) -> Floats:
        """Return shares of components, shape (components, cells of all blocks). DP: post-processing."""
        code_shares = self._factors.components(components, generator)
        shares = list[Floats]()
        for block, support in zip(self._blocks, self._supports, strict=True):
            block_shares = np.tile(support.astype(np.float64), (components, 1))
            for attribute, codes in zip(block.attributes, block.cells.T, strict=True):
                block_shares *= code_shares[:, self._factors.begins[attribute] + codes]
            shares.append(block_shares / block_shares.sum(axis=1, keepdims=True))
        return np.concatenate(shares, axis=1)


def common_factors(
    measurements: Sequence[Observation], sizes: Sequence[int], total: float
) -> CommonFactors | None:
    """Return what attributes have in common by pairs of which each says little; None where other fits are better.

    That is with at most 107 attributes, an attribute in fewer than eight pairs, pairs whose mean cell holds more than
    `_MOST_SIGMAS` of noise, or where more than eight factors stand out.

    Of a pair y with noise sigma, n records and shares p of codes, R = y / n - p p', less the means of its rows and columns,
    is G_a G_b' and noise of s = sigma / n. Factors are added one at a time, while the matrix of all (R - G_a G_b') / s, 0 where
    no pair is measured, has an eigenvalue of `_CLEAR` times the largest of noise alone (parallel analysis: Horn 1965). Each
    time all effects become those of `_PairMatrix.posterior`. Own method; evidence: docs/methods.md (many columns).
    DP: post-processing.
    """
    pairs = [m for m in measurements if len(m.attributes) == 2 and _is_whole(m)]
    pairs_of = Counter(a for pair in pairs for a in pair.attributes)
    is_wide = len(sizes) >= _MANY_ATTRIBUTES
    if not is_wide or min(pairs_of[a] for a in range(len(sizes))) < _LEAST_PAIRS:
        return None
    cells = sum(pair.counts.size for pair in pairs)
    if sum(total / pair.deviation for pair in pairs) / cells > _MOST_SIGMAS:
        return None
    with threadpool_limits(1):  # the same bytes on any number of cores
        begins = np.cumsum([0, *sizes[:-1]])
        shares = _single_shares([m for m in measurements if _is_whole(m)], sizes, total)
        effects = _effects(_PairMatrix(pairs, begins, shares, total))
    if effects is None:
        return None
    return CommonFactors(begins=begins, shares=shares, effects=effects)


def _effects(pairs: _PairMatrix) -> Floats | None:
    """Return G of all factors that stand out from noise, shape (codes, factors); None where these are too many."""
    effects = np.zeros((pairs.codes, 0))
    least = _CLEAR * pairs.largest_of_noise()
    while effects.shape[1] <= _MOST_FACTORS:
        factor, largest = pairs.next_factor(effects)
        if largest < least:
            return effects
        effects = pairs.posterior(np.column_stack([effects, factor]))
    return None


def _is_whole(measurement: Observation) -> bool:
    """Return whether a table has a count of every code of its attributes."""
    return not isinstance(measurement, CensoredObservation) and not measurement.coarser


def _single_shares(
    measurements: Sequence[Observation], sizes: Sequence[int], total: float
) -> Floats:
    """Return the shares of the codes of every attribute, shape (codes,): means of all tables that have it, by precision."""
    sums = [np.zeros(size) for size in sizes]
    precision = np.zeros(len(sizes))
    for m in measurements:
        counts = m.counts * m.scale(total)
        for axis, a in enumerate(m.attributes):
            others = tuple(other for other in range(counts.ndim) if other != axis)
            weight = sizes[a] / counts.size / (m.deviation * m.scale(total)) ** 2
            sums[a] += weight * counts.sum(axis=others)
            precision[a] += weight
    shares = []
    for of_codes, weight in zip(sums, precision, strict=True):
        counts = project_simplex(of_codes / weight, total) + _NEVER
        shares.append(counts / counts.sum())
    return np.concatenate(shares)


class _PairMatrix:
    """What measured pairs have beyond single attributes, R, as entries of a symmetric matrix of all `codes`.

    `rows` and `columns` are the codes of an entry, `beyond` is R there, `precision` 1 / s^2, and `noise` what noise alone would
    have, with a deviation of 1; shape (entries,).
    """

    def __init__(
        self, pairs: Sequence[Observation], begins: Integers, shares: Floats, total: float
    ) -> None:
        generator = np.random.default_rng(0)  # post-processing
        self._begins = begins
        self.codes = len(shares)
        self._attribute_of = np.searchsorted(begins, np.arange(self.codes), side="right") - 1
        entries = list[Floats]()
        for pair in pairs:
            first, second = np.indices(pair.counts.shape)
            first += begins[pair.attributes[0]]
            second += begins[pair.attributes[1]]
            scale = pair.scale(total) / total
            beyond = scale * pair.counts - shares[first] * shares[second]
            noise = generator.standard_normal(pair.counts.shape)
            precision = np.full(pair.counts.shape, (scale * pair.deviation) ** -2)
            cells = (first, second, _centered(beyond), _centered(noise), precision)
            entries.append(np.stack(cells).reshape(len(cells), -1))
        rows, columns, self._beyond, self._noise, self._precision = np.concatenate(entries, axis=1)
        self._rows = rows.astype(np.int64)
        self._columns = columns.astype(np.int64)

    def largest_of_noise(self) -> float:
        """Return the largest eigenvalue of the matrix of noise alone."""
        return self._largest(self._noise)[1]

    def next_factor(self, effects: Floats) -> tuple[Floats, float]:
        """Return the largest factor that these effects leave, shape (codes,), and its eigenvalue.

        It is as large as if all pairs were measured.
        """
        explained = (effects[self._rows] * effects[self._columns]).sum(axis=1)
        roots = np.sqrt(self._precision)
        direction, largest = self._largest((self._beyond - explained) * roots)
        measured = 2 * len(roots) / self.codes**2  # part of the pairs of codes
        return math.sqrt(max(largest, 0.0) / roots.mean() / measured) * direction, largest

    def _largest(self, values: Floats) -> tuple[Floats, float]:
        """Return the largest eigenvalue of the matrix of these entries, and its vector of length 1."""
        from scipy.sparse.linalg import (
            eigsh,
        )  # slow to import, and few tables have so many attributes

        start = np.random.default_rng(0).standard_normal(self.codes)  # post-processing
        numbers, vectors = eigsh(self._matrix(values), k=1, which="LA", v0=start)
        return vectors[:, 0], float(numbers[0])

    def _matrix(self, values: Floats) -> csr_array:
        """Return the symmetric matrix of these entries."""
        from scipy.sparse import coo_array

        half = coo_array(
            (values, (self._rows, self._columns)), shape=(self.codes, self.codes)
        ).tocsr()
        return half + half.T

    def posterior(self, effects: Floats) -> Floats:
        """Return the posterior means of effects with a normal prior of covariance T, from these effects on.

        Variational Bayes (Lim and Teh 2007): with v = 1 / s^2 and sums over the pairs of attribute a, G_a has the covariance
        C_a = (sum_b v (G_b'G_b + d_b C_b) + T^-1)^-1 in each of its d_a = codes - 1 dimensions, and the mean
        sum_b v R_ab G_b C_a. T is the mean of G_a'G_a + d_a C_a, for one dimension. So a factor that is no more than noise gets
        small by itself. All attributes move at once, and half of the way, as the others move as well.
        """
        factors = effects.shape[1]
        weighted = self._matrix(self._precision * self._beyond)
        of_pairs = self._matrix(self._precision)[self._begins][:, self._begins]
        dimensions = np.bincount(self._attribute_of) - 1.0
        covariance = np.zeros((len(dimensions), factors, factors))
        for _ in range(_STEPS):
            products = effects[:, :, None] * effects[:, None, :]
            squares = np.add.reduceat(products, self._begins, axis=0)
            squares += dimensions[:, None, None] * covariance
            curvature = (of_pairs @ squares.reshape(-1, factors**2)).reshape(squares.shape)
            prior = squares.sum(axis=0) / dimensions.sum()
            covariance = np.linalg.inv(curvature + np.linalg.inv(prior))
            best = np.einsum("cf,cfg->cg", weighted @ effects, covariance[self._attribute_of])
            change = float(np.abs(best - effects).max() / np.abs(effects).max())
            effects = (effects + best) / 2
            if change < _SETTLED:
                break
        return effects


def _centered(table: Floats) -> Floats:
    """Return a table less the means of its rows and columns, which single attributes explain."""
    rows = table.mean(axis=1, keepdims=True)
    columns = table.mean(axis=0, keepdims=True)
    return np.asarray(table - rows - columns + table.mean())


def _normal_places(number: int, factors: int, generator: np.random.Generator) -> Floats:
    """Return places of components, with mean 0 and covariance I: normal quantiles, in random order.

    Shape (number, factors).
    """
    from scipy.special import ndtri

    orders = np.empty((number, factors))
    for factor in range(factors):
        orders[:, factor] = generator.permutation(number)
    places = ndtri((orders + 0.5) / number)
    root = np.linalg.cholesky(places.T @ places / number)
    return np.asarray(np.linalg.solve(root, places.T).T, np.float64)
