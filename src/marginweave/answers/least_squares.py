"""Generalised least squares over all measured tables at once, for queries inside what was measured.

A query weighs the records by a product of weights, one factor for each axis. On the cells of a table that has all of its
axes it is a sum over sets B of axes of residual queries: products of centered weights over B. White noise on the cells of a
table is independent for different B, so each B is estimated by itself: by the mean of all tables that have B, weighted by
inverse variance (ResidualPlanner: Xiao, He, Zhang, Kifer 2023; GReM: Mullins et al. 2024). Where the tables of B divide each
of its axes in one way, no linear unbiased estimate has less variance.

The number of records n is the mean of what all tables add up to, by their precision: no sum of a whole table depends on which
values noise has merged. Given n, one axis is solved although tables divide an axis in several ways (`axes`), and the axes
are independent of each other and of larger B. Questions of which some are of several axes take that for them of all.

Sets of axes that tables divide in several ways are estimated by those that divide them as the table that the query is read in:
unbiased, with the variance that is stated, which may be larger than the least one.
DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from marginweave.answers.axes import Axis, AxisTable, Trust, solve_axis
from marginweave.answers.tables import Part, PartTable, PartTables
from marginweave.base.arrays import Floats, Integers

Weights = Mapping[int, Floats]
"""Of some queries the weights of the codes of each axis, shape (queries, codes); an axis that is left out weighs all by 1."""


class NotMeasuredError(Exception):
    """No measured table has all axes of a query; or each has values of them merged, of which some weigh more than others."""

    def __init__(self, *, merged: bool) -> None:
        super().__init__("not measured")
        self.merged = merged


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Estimates of some queries, shape (queries,), and their covariance, shape (queries, queries)."""

    values: Floats
    covariance: Floats


class LeastSquares:
    """Answers queries from measured tables; what tables say of a set of axes is pooled once."""

    def __init__(self, measured: PartTables) -> None:
        self.measured = measured
        self._holders: dict[int, set[int]] = defaultdict(set)
        for number, table in enumerate(measured.tables):
            for part in table.parts:
                self._holders[part].add(number)
        self._pooled: dict[tuple[int, ...], tuple[Floats, float]] = {}
        self._axes: dict[tuple[int, bool], Axis] = {}
        self._counts: dict[int, Floats] = {}
        self._divided: dict[frozenset[int], Sequence[tuple[int, ...]]] = {}

    def solve(self, weights: Weights) -> Estimates:
        """Estimates of queries, at least one, of the same axes.

        Raises:
            NotMeasuredError: no measured table has all of their axes, divided at least as the weights are.
        """
        return self.solve_jointly([weights])

    def check_measured(self, weights: Weights) -> None:
        """Raise NotMeasuredError where `solve` does."""
        self._signatures(weights)

    def solve_jointly(self, groups: Sequence[Weights]) -> Estimates:
        """Estimates of groups of queries, each group of its own axes, and the covariance of all, in order.

        Raises:
            NotMeasuredError: as `solve`.
        """
        best = []
        for weights in groups:
            read = [(weights, signature) for signature in self._signatures(weights)]
            best.append(read[0] if len(read) == 1 else min(read, key=lambda one: self._trace(*one)))
        return self._solved(best)

    @property
    def alone(self) -> LeastSquares:
        """What answers of single axes."""
        return self

    def counts(self, axis: int) -> Floats:
        """Estimates of the records of each code of an axis, kept for the next question."""
        if axis not in self._counts:
            self._counts[axis] = self.solve({axis: np.eye(self.measured.sizes[axis])}).values
        return self._counts[axis]

    def divided(self, axes: Iterable[int]) -> list[Part]:
        """The finest parts over which a table has all of these axes. Raises NotMeasuredError."""
        together = self._together(frozenset(axes))
        if not together:
            raise NotMeasuredError(merged=False)
        parts = ([self.measured.parts[number] for number in some] for some in together)
        return max(parts, key=lambda own: math.prod(part.size for part in own))

    def pooled(self, axes: Iterable[int]) -> tuple[list[Part], Floats, float]:
        """The finest parts over which a table has all of these axes, in their order, with what all tables say of their counts.

        And the variance of the noise of a cell. Raises NotMeasuredError.
        """
        axes = [*axes]
        parts = sorted(self.divided(axes), key=lambda part: axes.index(part.axis))
        numbers = [self.measured.parts.index(part) for part in parts]
        table, precision = self._pool(tuple(sorted(numbers)))
        return parts, table.transpose(np.argsort(np.argsort(numbers))), 1 / precision

    def _trace(self, weights: Weights, signature: tuple[int, ...]) -> float:
        return float(np.trace(self._solved([(weights, signature)]).covariance))

    @cached_property
    def total(self) -> tuple[float, float]:
        """The number of records and its variance; 0 where it is public."""
        if self.measured.total is not None:
            return self.measured.total, 0.0
        counts, precision = self._pool(())
        return float(counts), 1 / precision

    def _signatures(self, weights: Weights) -> list[tuple[int, ...]]:
        """The parts, one for each axis, over which queries with these weights can be read in a measured table."""
        axes, parts = set(weights), self.measured.parts
        if len(axes) <= 1:
            return [tuple(self.measured.whole[axis] for axis in axes)]
        together = self._together(frozenset(axes))
        fitting = [some for some in together if all(_fits(parts[part], weights[parts[part].axis]) for part in some)]
        if not fitting:
            raise NotMeasuredError(merged=bool(together))
        return fitting

    def _together(self, axes: frozenset[int]) -> Sequence[tuple[int, ...]]:
        """The parts of these axes that are in a table together, of each table that has all of them, kept for the next query."""
        if axes not in self._divided:
            inside = (tuple(p for p in t.parts if self.measured.parts[p].axis in axes) for t in self.measured.tables)
            self._divided[axes] = tuple(dict.fromkeys(some for some in inside if len(some) == len(axes)))
        return self._divided[axes]

    def _solved(self, groups: Sequence[tuple[Weights, tuple[int, ...]]]) -> Estimates:
        """Estimates of groups of queries, each with the parts that it is read in."""
        parts, total, slopes = self.measured.parts, self.total, np.empty(0)
        beside = any(len(signature) > 1 for _, signature in groups)
        shares: dict[tuple[int, ...], list[tuple[Integers, Floats, list[Floats]]]] = defaultdict(list)
        for weights, signature in groups:
            values = {number: parts[number].values(weights[parts[number].axis]) for number in signature}
            means = {number: own.mean(axis=1) for number, own in values.items()}
            queries = len(means[signature[0]]) if signature else 1
            rows, ones = np.arange(len(slopes), len(slopes) + queries), np.ones(queries)
            slopes = np.concatenate((slopes, math.prod(means.values(), start=ones)))
            for inside in (some for k in range(len(signature)) for some in itertools.combinations(signature, k + 1)):
                scale = math.prod((own for number, own in means.items() if number not in inside), start=ones)
                centered = [values[number] - means[number][:, None] for number in inside]
                if len(inside) > 1:
                    shares[inside].append((rows, scale, centered))
                else:  # all parts of an axis tell of its codes
                    part = parts[next(iter(inside))]
                    shares[self.measured.whole[part.axis],].append((rows, scale, [centered[0][:, part.blocks]]))
        estimates, covariance = np.zeros(len(slopes)), np.zeros((len(slopes), len(slopes)))
        for inside, some in shares.items():
            rows, scale = np.concatenate([one[0] for one in some]), np.concatenate([one[1] for one in some])
            vectors = [np.concatenate(own) for own in zip(*(one[2] for one in some), strict=True)]
            if len(inside) == 1:
                at_zero, each, own = self._axis(parts[inside[0]].axis, beside=beside).estimates(vectors[0])
                slopes[rows] += scale * each
            else:
                at_zero, own = self._residual(inside, dict(zip(inside, vectors, strict=True)))
            estimates[rows] += scale * at_zero
            covariance[np.ix_(rows, rows)] += np.outer(scale, scale) * own
        return Estimates(
            values=estimates + slopes * total[0], covariance=covariance + np.outer(slopes, slopes) * total[1]
        )

    def _residual(self, inside: tuple[int, ...], centered: Mapping[int, Floats]) -> tuple[Floats, Floats]:
        """Estimates and covariance of products of centered weights of these parts."""
        table, precision = self._pool(inside)
        queries = len(centered[inside[0]])
        left, own = np.broadcast_to(table, (queries, *table.shape)), np.full((queries, queries), 1 / precision)
        for number in reversed(inside):
            left = np.einsum("k...a,ka->k...", left, centered[number])
            own = own * (centered[number] @ centered[number].T)
        return left, own

    def products(
        self, signature: tuple[int, ...], inside: Sequence[int], centered: Sequence[Floats]
    ) -> tuple[Floats, Floats, Floats]:
        """Residuals of all products of centered weights at these places of a signature: estimates, variances, slopes.

        Of shape (weights, …), 1 at other places. The slope is what a record more adds.
        """
        shape = [len(centered[place]) if place in inside else 1 for place in range(len(signature))]
        if len(inside) == 1:
            part = self.measured.parts[signature[inside[0]]]
            found = self._axis(part.axis, beside=len(signature) > 1)
            at_zero, each, own = found.estimates(centered[inside[0]][:, part.blocks])
            return at_zero.reshape(shape), np.diag(own).reshape(shape), each.reshape(shape)
        table, precision = self._pool(tuple(signature[place] for place in inside))
        variance = np.full((), 1 / precision)
        for place in inside:  # the axis that is summed over is first, and what it becomes last: all in order at the end
            table = np.tensordot(table, centered[place], (0, 1))
            variance = np.multiply.outer(variance, (centered[place] ** 2).sum(axis=1))
        return table.reshape(shape), variance.reshape(shape), np.zeros([1] * len(shape))

    def _pool(self, parts: tuple[int, ...]) -> tuple[Floats, float]:
        """What all tables with these parts say of a table over them, and the precision of its cells, which is one for all."""
        if parts not in self._pooled:
            tables = self.measured.tables
            holders = set.intersection(*(self._holders[part] for part in parts)) if parts else set(range(len(tables)))
            self._pooled[parts] = self._summed(parts, [tables[number] for number in sorted(holders)])
        return self._pooled[parts]

    def _summed(self, parts: tuple[int, ...], tables: Sequence[PartTable]) -> tuple[Floats, float]:
        """The mean by precision of these tables, each summed over the axes of other parts, and the precision of its cells."""
        shape = [self.measured.parts[part].size for part in parts]
        summed, precision = np.zeros(shape), 0.0
        for table in tables:
            others = tuple(axis for axis, part in enumerate(table.parts) if part not in parts)
            weight = math.prod(shape) / (table.counts.size * table.variance)
            summed += weight * table.counts.sum(axis=others)
            precision += weight
        return summed / precision, precision

    def _axis(self, axis: int, *, beside: bool) -> Axis:
        """What is known of an axis, for questions about it alone or `beside` others."""
        if (axis, beside) not in self._axes:
            numbers = [number for number, part in enumerate(self.measured.parts) if part.axis == axis]
            whole, multiples = self.measured.whole[axis], self.measured.merged_below.get(axis)
            alone = [table for table in self.measured.tables if table.parts == (whole,)]
            own = [(table.counts, table.variance) for table in alone]
            self._axes[axis, beside] = solve_axis(
                self._axis_table(whole, alone),
                [self._axis_table(number, larger) for number in numbers if (larger := self._larger(number))],
                None if multiples is None else Trust.of(own, multiples),
                beside=beside,
            )
        return self._axes[axis, beside]

    def _larger(self, part: int) -> list[PartTable]:
        """The tables of several axes that are over a part."""
        tables = (self.measured.tables[number] for number in sorted(self._holders[part]))
        return [table for table in tables if len(table.parts) > 1]

    def _axis_table(self, part: int, tables: Sequence[PartTable]) -> AxisTable:
        counts, precision = self._summed((part,), tables)
        return AxisTable(part=self.measured.parts[part], counts=counts, precision=precision)


def _fits(part: Part, weights: Floats) -> bool:
    """Whether codes of one block weigh the same."""
    return bool(np.array_equal(part.values(weights)[:, part.blocks], weights))
