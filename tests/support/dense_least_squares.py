"""Measured tables of a small made-up domain, and generalised least squares over all of its cells at once, as an oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.tables import tables_of
from marginweave.domain.masks import Clique
from marginweave.observations.tables import Observation

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Dense:
    """Estimates of all cells, and their covariance."""

    cells: Array
    covariance: Array

    def answer(self, queries: Array) -> tuple[Array, Array]:
        """Estimates of queries, shape (queries, cells), and their covariance."""
        return queries @ self.cells, queries @ self.covariance @ queries.T


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Tables to measure of attributes with `sizes`.

    `sets` have attributes, the sigma of the noise, and whether values are merged as `merged` says.
    """

    sizes: tuple[int, ...]
    sets: tuple[tuple[Clique, float, bool], ...]
    merged: tuple[tuple[int, ...], ...]

    @property
    def cells(self) -> tuple[int, ...]:
        """The shape of the whole table."""
        return self.sizes

    def codes(self, clique: Clique, merges: bool) -> tuple[Array, ...]:
        return tuple(
            np.array(self.merged[a]) if merges else np.arange(self.sizes[a]) for a in clique
        )

    def design(self, clique: Clique, merges: bool) -> Array:
        """Which cells of the whole table each cell of a measured one sums."""
        return _design(self, clique, merges)

    def measure(
        self, table: Array, rng: np.random.Generator, *, known: bool = False
    ) -> LeastSquares:
        """Noisy tables of a table, with rounded normal noise."""
        found = []
        for clique, sigma, merges in self.sets:
            exact = self.design(clique, merges) @ table.ravel()
            counts = exact.astype(np.int64) + np.rint(rng.normal(0, sigma, exact.shape)).astype(
                np.int64
            )
            codes = self.codes(clique, merges)
            shaped = counts.reshape([int(c.max()) + 1 for c in codes])
            found.append(
                Observation(attributes=clique, counts=shaped, deviation=sigma, levels=codes)
            )
        return LeastSquares(tables_of(found, self.sizes, float(table.sum()) if known else None))

    def dense(self, squares: LeastSquares, total: float) -> Dense:
        """Best linear unbiased estimates of all cells by one large system, where the records are `total` in number.

        That is a constraint: what is left varies among tables that add up to it.
        """
        size = math.prod(self.cells)
        information, said = np.zeros((size, size)), np.zeros(size)
        for (clique, sigma, merges), table in zip(self.sets, squares.measured.tables, strict=True):
            design, variance = self.design(clique, merges), sigma**2 + 1 / 12
            assert np.isclose(table.variance, variance)
            information += design.T @ design / variance
            said += design.T @ self._counts(squares, clique, merges, table.counts) / variance
        start = np.full(size, total / size)
        basis = np.linalg.svd(np.ones((1, size)))[2][1:].T
        inverse = np.linalg.pinv(basis.T @ information @ basis, rcond=1e-11, hermitian=True)
        covariance = basis @ inverse @ basis.T
        return Dense(start + covariance @ (said - information @ start), covariance)

    def _counts(self, squares: LeastSquares, clique: Clique, merges: bool, counts: Array) -> Array:
        """The counts of a table over parts, in the order of its own codes."""
        number = [place for place, (c, _, m) in enumerate(self.sets) if (c, m) == (clique, merges)]
        parts = next(
            squares.measured.tables[n].parts
            for n in number
            if squares.measured.tables[n].counts is counts
        )
        order = [
            next(i for i, p in enumerate(parts) if squares.measured.parts[p].axis == a)
            for a in clique
        ]
        moved = counts.transpose(order)
        for place, codes in enumerate(self.codes(clique, merges)):
            back = np.zeros(int(codes.max()) + 1, np.int64)
            back[codes] = squares.measured.parts[parts[order[place]]].blocks
            moved = np.take(moved, back, axis=place)
        return moved.ravel()

    def products(self, weights: Mapping[int, Array]) -> Array:
        """Queries over the cells of the whole table from weights by axis."""
        count = len(next(iter(weights.values()))) if weights else 1
        found = np.ones((count, *self.cells))
        for axis, own in weights.items():
            found = found * own.reshape(
                [count, *(size if a == axis else 1 for a, size in enumerate(self.cells))]
            )
        return found.reshape(count, -1)


@lru_cache(maxsize=64)  # a survey is measured hundreds of times
def _design(survey: Survey, clique: Clique, merges: bool) -> Array:
    codes = survey.codes(clique, merges)
    shape = [int(c.max()) + 1 for c in codes]
    rows = np.zeros((math.prod(shape), math.prod(survey.cells)))
    for number, cell in enumerate(itertools.product(*map(range, survey.cells))):
        rows[
            np.ravel_multi_index([c[cell[a]] for c, a in zip(codes, clique, strict=True)], shape),
            number,
        ] = 1
    return rows


def random_weights(
    survey: Survey, axes: Sequence[int], rng: np.random.Generator, *, merged: bool, queries: int = 2
) -> dict[int, Array]:
    """Weights that are the same for merged values, where these are asked together."""
    found = {}
    for axis in axes:
        own = rng.normal(size=(queries, survey.cells[axis]))
        found[axis] = own[:, np.array(survey.merged[axis])] if merged else own
    return found
