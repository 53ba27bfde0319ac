"""Generalised least squares over all measured tables at once, for queries inside what was measured.

A query weighs the records by a product of weights, one factor for each axis. On the cells of a table that has all of its
axes it is a sum over sets B of axes of residual queries: products of centered weights over B. White noise on the cells of a
table is independent for different B, so each B is estimated by itself: by the mean of all tables that have B, weighted by
inverse variance (ResidualPlanner: Xiao, He, Zhang, Kifer 2023; GReM: Mullins et al. 2024). Where the tables of B divide each
of its axes in one way, no linear unbiased estimate has less variance.

The number of records n is the mean of what all tables add up to, by their precision: merging values does not change a
table's sum. Given n, one axis is solved although tables divide an axis in several ways (`axes`), and the axes are
independent of each other and of larger B. If any of the questions is about several axes, all of them take the axis as it is
estimated for these.

Sets of axes that tables divide in several ways are estimated by those that divide them as the table that the query is read in:
unbiased, with the variance that is stated, which may be larger than the least one.
DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from marginweave.answers.axes import Axis, AxisTable, Trust, solve_axis
from marginweave.answers.tables import Part, PartTable, PartTables
from marginweave.base.arrays import Floats, Integers

Weights = Mapping[int, Floats]
"""Weights of the codes of each axis for some queries, shape (queries, codes); an axis that is left out weighs all by 1."""

Member = TypeVar("Member")
Signature = tuple[int, ...]
"""Indices into `PartTables.parts`, one for each axis: parts that a table has together."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Share:
    """The share of some queries that is in one set of parts: residual queries times `scales`.

    `rows` are the places of the queries in the result. `vectors` has for each part the centered weights of the queries.
    """

    rows: Integers
    scales: Floats
    vectors: Sequence[Floats]


class _Residuals:
    """Residual queries of groups of one query each, in one set of parts, and how much each group has of them.

    `vectors` has for each residual query the centered weights by part. `numbers` has for its weights, by their parts, its place
    among these: groups that weigh a part by the same weights share it. `scales` has group, place and scale.
    """

    def __init__(self) -> None:
        self.vectors: list[tuple[Floats, ...]] = []
        self.scales: list[tuple[int, int, float]] = []
        self._numbers: dict[tuple[tuple[int, int], ...], int] = {}

    def add(
        self,
        group: int,
        scale: float,
        key: tuple[tuple[int, int], ...],
        vectors: tuple[Floats, ...],
    ) -> None:
        """Add the residual query with these vectors to a group; `key` has the part and the weights of each of them."""
        number = self._numbers.setdefault(key, len(self.vectors))
        if number == len(self.vectors):
            self.vectors.append(vectors)
        self.scales.append((group, number, scale))

    def scale_table(self, groups: int) -> Floats:
        """Return the scales, shape (groups, residual queries)."""
        table = np.zeros((groups, len(self.vectors)))
        for group, number, scale in self.scales:
            table[group, number] += scale
        return table


class LeastSquares:
    """Answers queries from measured tables. What all tables say of a set of axes is pooled once."""

    def __init__(self, measured: PartTables) -> None:
        self.measured = measured
        self._tables_of_part: dict[int, set[int]] = defaultdict(set)
        for number, table in enumerate(measured.tables):
            for part in table.parts:
                self._tables_of_part[part].add(number)
        self._parts_of_axis: dict[int, set[int]] = defaultdict(set)
        for number, part in enumerate(measured.parts):
            self._parts_of_axis[part.axis].add(number)
        self._pooled: dict[Signature, tuple[Floats, float]] = {}
        self._axes: dict[tuple[int, bool], Axis] = {}
        self._counts: dict[int, Floats] = {}
        self._signatures_of_axes: dict[frozenset[int], Sequence[Signature]] = {}

    def solve(self, weights: Weights) -> Estimates:
        """Return estimates of queries, at least one, of the same axes.

        Raises:
            NotMeasuredError: no measured table has all of their axes, divided at least as the weights are.
        """
        return self.solve_jointly([weights])

    def check_measured(self, weights: Weights) -> None:
        """Raise NotMeasuredError where `solve` does."""
        self._fitting_signatures(weights)

    def solve_jointly(self, groups: Sequence[Weights]) -> Estimates:
        """Return estimates of groups of queries, each group of its own axes, and the covariance of all, in order.

        Raises:
            NotMeasuredError: as `solve`.
        """
        readings = [(weights, self._best_signature(weights)) for weights in groups]
        return self._solve_readings(readings)

    @property
    def single_axes(self) -> LeastSquares:
        """Estimates of queries of single axes: this object itself. `ModelAnswers` has the same property; there it differs."""
        return self

    def counts(self, axis: int) -> Floats:
        """Return estimates of the records of each code of an axis. They are kept for the next question."""
        if axis not in self._counts:
            every_code = np.eye(self.measured.sizes[axis])
            self._counts[axis] = self.solve({axis: every_code}).values
        return self._counts[axis]

    def finest_parts(self, axes: Iterable[int]) -> list[Part]:
        """Return the finest parts over which a table has all of these axes. Raises NotMeasuredError."""
        signatures = self._signatures(frozenset(axes))
        if not signatures:
            raise NotMeasuredError(merged=False)
        finest: list[Part] = []
        most_cells = -1
        for signature in signatures:
            parts = [self.measured.parts[number] for number in signature]
            cells = math.prod(part.size for part in parts)
            if cells > most_cells:
                finest = parts
                most_cells = cells
        return finest

    def pooled(self, axes: Iterable[int]) -> tuple[list[Part], Floats, float]:
        """Return the pooled counts over the finest parts that a table has of all these axes.

        Returns:
            The parts in the order of `axes`, what all tables say of their counts, and the variance of the noise of a cell.

        Raises:
            NotMeasuredError: no table has all of these axes.
        """
        axes = [*axes]
        parts = self.finest_parts(axes)
        parts.sort(key=lambda part: axes.index(part.axis))
        numbers = [self.measured.parts.index(part) for part in parts]
        signature = tuple(sorted(numbers))
        table, precision = self.pool(signature)
        # rank of each part: from sorted order back to the order of `axes`
        ranks = np.argsort(np.argsort(numbers))
        return parts, table.transpose(ranks), 1 / precision

    @cached_property
    def total(self) -> tuple[float, float]:
        """Number of records and the variance of its noise, which is 0 where the number is public."""
        if self.measured.total is not None:
            return self.measured.total, 0.0
        counts, precision = self.pool(())
        return float(counts), 1 / precision

    def _best_signature(self, weights: Weights) -> Signature:
        """Return the signature in which queries have the least sum of variances. Raises NotMeasuredError."""
        signatures = self._fitting_signatures(weights)
        if len(signatures) == 1:
            return signatures[0]
        return min(signatures, key=lambda signature: self._sum_of_variances(weights, signature))

    def _sum_of_variances(self, weights: Weights, signature: Signature) -> float:
        estimates = self._solve_readings([(weights, signature)])
        return float(np.trace(estimates.covariance))

    def _fitting_signatures(self, weights: Weights) -> list[Signature]:
        """Return the parts over which queries with these weights can be read in a measured table. Raises NotMeasuredError."""
        axes = set(weights)
        if len(axes) <= 1:
            return [tuple(self.measured.full_parts[axis] for axis in axes)]
        signatures = self._signatures(frozenset(axes))
        fitting = [signature for signature in signatures if self._fits(signature, weights)]
        if not fitting:
            raise NotMeasuredError(merged=bool(signatures))
        return fitting

    def _fits(self, signature: Signature, weights: Weights) -> bool:
        """Return whether codes of one block weigh the same in each part."""
        for number in signature:
            part = self.measured.parts[number]
            if part.tells_all:
                continue
            vectors = weights[part.axis]
            of_blocks = part.values(vectors)
            if not np.array_equal(of_blocks[:, part.blocks], vectors):
                return False
        return True

    def _signatures(self, axes: frozenset[int]) -> Sequence[Signature]:
        """Return the parts of these axes in each table that has all of them. They are kept for the next query."""
        if axes not in self._signatures_of_axes:
            # only tables with all of the axes are looked at: there may be thousands of others
            parts_of_axes = set[int]()
            numbers = set(range(len(self.measured.tables)))
            for axis in axes:
                parts = self._parts_of_axis[axis]
                parts_of_axes |= parts
                numbers &= set[int]().union(*(self._tables_of_part[part] for part in parts))
            signatures: dict[Signature, None] = {}
            for table_number in sorted(numbers):
                table = self.measured.tables[table_number]
                signature = tuple(number for number in table.parts if number in parts_of_axes)
                if len(signature) == len(axes):
                    signatures[signature] = None
            self._signatures_of_axes[axes] = tuple(signatures)
        return self._signatures_of_axes[axes]

    def _solve_readings(self, readings: Sequence[tuple[Weights, Signature]]) -> Estimates:
        """Return estimates of groups of queries, each with the parts that it is read in."""
        any_joint_query = any(len(signature) > 1 for _, signature in readings)
        if all(len(vectors) == 1 for weights, _ in readings for vectors in weights.values()):
            return self._solve_singles(readings, any_joint_query=any_joint_query)
        shares_of_parts, slopes = self._residual_shares(readings)
        estimates = np.zeros(len(slopes))
        covariance = np.zeros((len(slopes), len(slopes)))
        for parts, shares in shares_of_parts.items():
            rows = np.concatenate([share.rows for share in shares])
            scales = np.concatenate([share.scales for share in shares])
            vectors = _joined_vectors(shares)
            if len(parts) == 1:
                part = self.measured.parts[parts[0]]
                axis = self.axis(part.axis, any_joint_query=any_joint_query)
                residuals, residual_slopes, residual_covariance = axis.estimates(vectors[0])
                slopes[rows] += scales * residual_slopes
            else:
                residuals, residual_covariance = self._residual(parts, vectors)
            estimates[rows] += scales * residuals
            scale_products = np.outer(scales, scales)
            covariance[np.ix_(rows, rows)] += scale_products * residual_covariance
        total, total_variance = self.total
        return Estimates(
            values=estimates + slopes * total,
            covariance=covariance + np.outer(slopes, slopes) * total_variance,
        )

    def _solve_singles(
        self, readings: Sequence[tuple[Weights, Signature]], *, any_joint_query: bool
    ) -> Estimates:
        """Return estimates of groups of one query each: the same as `_solve_readings`, by sums of a few numbers."""
        residuals_of_parts, slopes = self._single_residuals(readings)
        estimates = np.zeros(len(readings))
        covariance = np.zeros((len(readings), len(readings)))
        for parts, residuals in residuals_of_parts.items():
            scales = residuals.scale_table(len(readings))
            if len(parts) == 1:
                axis = self.axis(
                    self.measured.parts[parts[0]].axis, any_joint_query=any_joint_query
                )
                vectors = np.array([vectors[0] for vectors in residuals.vectors])
                values, residual_slopes, residual_covariance = axis.estimates(vectors)
                slopes += scales @ residual_slopes
            else:
                values, residual_covariance = self._few_residuals(parts, residuals.vectors)
            estimates += scales @ values
            covariance += scales @ residual_covariance @ scales.T
        total, total_variance = self.total
        return Estimates(
            values=estimates + slopes * total,
            covariance=covariance + slopes[:, None] * slopes * total_variance,
        )

    def _single_residuals(
        self, readings: Sequence[tuple[Weights, Signature]]
    ) -> tuple[dict[Signature, _Residuals], Floats]:
        """Return the residual queries of groups of one query each, by their parts, and the slopes as `_residual_shares`."""
        residuals_of_parts: dict[Signature, _Residuals] = defaultdict(_Residuals)
        slopes = np.empty(len(readings))
        # weights are the same objects where groups have them in common
        centered_of = dict[tuple[int, int], tuple[float, Floats]]()
        for group, (weights, signature) in enumerate(readings):
            keys = []
            for number in signature:
                part = self.measured.parts[number]
                vectors = weights[part.axis]
                key = number, id(vectors)
                keys.append(key)
                if key not in centered_of:
                    values = part.values(vectors)[0]
                    mean = float(values.sum()) / len(values)
                    centered_of[key] = mean, values - mean
            slopes[group] = math.prod(centered_of[key][0] for key in keys)
            for inside in _nonempty_subsets(keys):
                scale = math.prod(centered_of[key][0] for key in keys if key not in inside)
                parts = tuple(number for number, _ in inside)
                centered = tuple(centered_of[key][1] for key in inside)
                if len(inside) == 1:  # all parts of an axis say something of its codes
                    part = self.measured.parts[parts[0]]
                    parts = (self.measured.full_parts[part.axis],)
                    centered = (centered[0][part.blocks],)
                residuals_of_parts[parts].add(group, scale, inside, centered)
        return residuals_of_parts, slopes

    def _few_residuals(
        self, parts: Signature, queries: Sequence[tuple[Floats, ...]]
    ) -> tuple[Floats, Floats]:
        """Return the same as `_residual`, for queries that are few: shape (queries,) and (queries, queries)."""
        table, precision = self.pool(parts)
        estimates = np.empty(len(queries))
        covariance = np.empty((len(queries), len(queries)))
        for place, vectors in enumerate(queries):
            summed = table
            for centered in reversed(vectors):
                summed = summed @ centered
            estimates[place] = summed
            for earlier_place, earlier_vectors in enumerate(queries[: place + 1]):
                pairs = zip(vectors, earlier_vectors, strict=True)
                product = math.prod(vector @ earlier for vector, earlier in pairs)
                covariance[place, earlier_place] = product / precision
                covariance[earlier_place, place] = product / precision
        return estimates, covariance

    def _residual_shares(
        self,
        readings: Sequence[tuple[Weights, Signature]],
    ) -> tuple[dict[Signature, list[_Share]], Floats]:
        """Divide queries into residual queries over sets of parts.

        Returns:
            The shares of the queries by the parts that they are in, and what a record more adds to each query if records are
            spread evenly over the codes.
        """
        shares_of_parts: dict[Signature, list[_Share]] = defaultdict(list)
        slopes = np.empty(0)
        for weights, signature in readings:
            values = dict[int, Floats]()
            for number in signature:
                part = self.measured.parts[number]
                values[number] = part.values(weights[part.axis])
            means = dict[int, Floats]()
            for number, part_values in values.items():
                means[number] = part_values.mean(axis=1)
            queries = len(means[signature[0]]) if signature else 1
            ones = np.ones(queries)
            rows = np.arange(len(slopes), len(slopes) + queries)
            means_product = math.prod(means.values(), start=ones)
            slopes = np.concatenate((slopes, means_product))
            for inside in _nonempty_subsets(signature):
                outer_means = [mean for number, mean in means.items() if number not in inside]
                scales = math.prod(outer_means, start=ones)
                parts = inside
                vectors = [values[number] - means[number][:, None] for number in inside]
                if len(inside) == 1:  # all parts of an axis say something of its codes
                    part = self.measured.parts[inside[0]]
                    parts = (self.measured.full_parts[part.axis],)
                    vectors = [vectors[0][:, part.blocks]]
                share = _Share(rows=rows, scales=scales, vectors=vectors)
                shares_of_parts[parts].append(share)
        return shares_of_parts, slopes

    def _residual(
        self,
        parts: Signature,
        vectors: Sequence[Floats],
    ) -> tuple[Floats, Floats]:
        """Return estimates and covariance of products of centered weights, `vectors`, of these parts."""
        table, precision = self.pool(parts)
        queries = len(vectors[0])
        estimates = np.broadcast_to(table, (queries, *table.shape))
        covariance = np.full((queries, queries), 1 / precision)
        for centered in reversed(vectors):
            estimates = np.einsum("k...a,ka->k...", estimates, centered)
            covariance = covariance * (centered @ centered.T)
        return estimates, covariance

    def products(
        self,
        signature: Signature,
        inside: Sequence[int],
        centered: Sequence[Floats],
    ) -> tuple[Floats, Floats, Floats]:
        """Return residuals of all products of centered weights at the places `inside` of a signature.

        Returns:
            Estimates, variances and slopes, of shape (weights, …), 1 at other places. The slope is what a record more adds.
        """
        shape = [1] * len(signature)
        for place in inside:
            shape[place] = len(centered[place])
        if len(inside) == 1:
            part = self.measured.parts[signature[inside[0]]]
            axis = self.axis(part.axis, any_joint_query=len(signature) > 1)
            vectors = centered[inside[0]]
            estimates, slopes, covariance = axis.estimates(vectors[:, part.blocks])
            variances = np.diag(covariance)
            return (
                estimates.reshape(shape),
                variances.reshape(shape),
                slopes.reshape(shape),
            )
        parts = tuple(signature[place] for place in inside)
        table, precision = self.pool(parts)
        variance = np.full((), 1 / precision)
        # the axis that is summed over is first, and what it becomes last: all in order at the end
        for place in inside:
            table = np.tensordot(table, centered[place], (0, 1))
            squares = (centered[place] ** 2).sum(axis=1)
            variance = np.multiply.outer(variance, squares)
        no_slopes = np.zeros([1] * len(shape))
        return table.reshape(shape), variance.reshape(shape), no_slopes

    def pool(self, parts: Signature) -> tuple[Floats, float]:
        """Return what all tables with these parts say of a table over them, and the precision of its cells."""
        if parts not in self._pooled:
            numbers = set(range(len(self.measured.tables)))
            for part in parts:
                numbers &= self._tables_of_part[part]
            tables = [self.measured.tables[number] for number in sorted(numbers)]
            self._pooled[parts] = self._weighted_mean(parts, tables)
        return self._pooled[parts]

    def _weighted_mean(
        self,
        parts: Signature,
        tables: Sequence[PartTable],
    ) -> tuple[Floats, float]:
        """Return the mean by precision of these tables, each summed over the axes of other parts.

        The second number is the precision of the cells of the mean.
        """
        shape = [self.measured.parts[part].size for part in parts]
        weighted_sum = np.zeros(shape)
        precision = 0.0
        cells = math.prod(shape)
        for table in tables:
            summed_axes = tuple(axis for axis, part in enumerate(table.parts) if part not in parts)
            # a cell of the sum adds up (cells of the table) / (cells of the sum) cells, each with the table's variance
            weight = cells / (table.counts.size * table.variance)
            weighted_sum += weight * table.counts.sum(axis=summed_axes)
            precision += weight
        return weighted_sum / precision, precision

    def axis(self, axis: int, *, any_joint_query: bool) -> Axis:
        """Return the estimates of an axis; `any_joint_query` says whether any query of the same call has several axes."""
        key = axis, any_joint_query
        if key not in self._axes:
            full_part = self.measured.full_parts[axis]
            own_tables = [table for table in self.measured.tables if table.parts == (full_part,)]
            larger = []
            for number, part in enumerate(self.measured.parts):
                tables = self._larger_tables(number)
                if part.axis == axis and tables:
                    larger.append(self._axis_table(number, tables))
            multiples = self.measured.merged_below.get(axis)
            trust = None
            if multiples is not None:
                counts_and_variances = [(table.counts, table.variance) for table in own_tables]
                trust = Trust.of(counts_and_variances, multiples)
            own_table = self._axis_table(full_part, own_tables)
            self._axes[key] = solve_axis(own_table, larger, trust, any_joint_query=any_joint_query)
        return self._axes[key]

    def _larger_tables(self, part: int) -> list[PartTable]:
        """Return the tables of several axes that are over a part."""
        numbers = sorted(self._tables_of_part[part])
        tables = [self.measured.tables[number] for number in numbers]
        return [table for table in tables if len(table.parts) > 1]

    def _axis_table(self, part: int, tables: Sequence[PartTable]) -> AxisTable:
        counts, precision = self._weighted_mean((part,), tables)
        return AxisTable(
            part=self.measured.parts[part],
            counts=counts,
            precision=precision,
        )


def _nonempty_subsets(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Yield all subsets but the empty one, in order, smaller ones first."""
    for length in range(1, len(members) + 1):
        yield from itertools.combinations(members, length)


def _joined_vectors(shares: Sequence[_Share]) -> list[Floats]:
    """Return for each part the centered weights of the queries of all shares."""
    vectors = []
    for place in range(len(shares[0].vectors)):
        of_shares = [share.vectors[place] for share in shares]
        vectors.append(np.concatenate(of_shares))
    return vectors
