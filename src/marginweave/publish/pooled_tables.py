"""Packs for the explorer's page what `query` computes with: pooled tables, axes and rules, from which it sums several values.

The page evaluates the formula of `LeastSquares` on these numbers, and no other. DP: post-processing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from marginweave.answers.axes import Axis
from marginweave.answers.cells import LONGEST
from marginweave.answers.codes import Codes, ValueRange
from marginweave.answers.intervals import Reach
from marginweave.answers.least_squares import LeastSquares, Signature
from marginweave.answers.tables import PartTables
from marginweave.base.arrays import Flags, Floats
from marginweave.base.errors import InputError
from marginweave.domain.masks import Clique, NeverTogether, StructuralZeros

MOST_COVARIANCES = 300_000
"""Numbers of covariances of axes that a page holds, those of small axes first; of other axes it has variances alone."""
MOST_VALUES = 1000
"""Values of a column of numbers, some of which were measured together with others, up to which a page has its mean."""

Arrays = dict[str, Any]
Ends = list[list[float | None] | None]
"""The least and the largest number of each code; None for a code that is no number, and for an end that an open bin lacks."""


def pack_squares(
    measured: PartTables,
    shown: Collection[Clique],
    numeric: Collection[int],
    reach: Reach,
    arrays: Arrays,
) -> dict[str, Any]:
    """Add pooled tables and axes to `arrays`, in float64, and return their facts for the page's header.

    `shown` are the attributes of each table of the page, `numeric` those of numbers.

    `parts` has the axis of each part; `blocks` the block of each code, part by part. `pools` has the parts of each pooled
    table and the variance of a cell; its counts are in the array `pools`, one table after the other. `axes` has for each axis
    the number of its blocks and of its solutions, and whether they have covariances: the first one is of questions about
    several axes, and a second one, where that is another, of questions about it alone. The arrays `axis-blocks` and `inside`
    are over codes; each solution in the array `axes` has means, slopes and covariances (the upper triangle, or the diagonal).
    `reaches[k - 1]` is the reach, in standard deviations, of normal noise with the level of each of k intervals that hold
    together, as many as `marginweave query` takes for a mean.
    """
    intervals = range(1, _most_intervals(measured, numeric) + 1)
    squares = LeastSquares(measured)
    return {
        "parts": [part.axis for part in measured.parts],
        "full": list(measured.full_parts.values()),
        "pools": _pack_pools(squares, shown, arrays),
        "axes": _pack_axes(squares, arrays),
        "total": list(squares.total),
        "laplace": bool(measured.tails),
        "reaches": [Reach(level=reach.level).shared_by(k).of(1.0) for k in intervals],
    }


def _most_intervals(measured: PartTables, numeric: Collection[int]) -> int:
    """Return the most intervals that hold together: four of a share; where values are merged, two for each value of a mean."""
    most = 4
    if any(part.size < len(part.blocks) for part in measured.parts):
        for axis in numeric:
            if measured.sizes[axis] <= MOST_VALUES:
                most = max(most, 2 * (measured.sizes[axis] + 1))
    return most


def _pack_pools(
    squares: LeastSquares, shown: Collection[Clique], arrays: Arrays
) -> list[tuple[Signature, float]]:
    """Add the blocks of all parts and the pooled counts to `arrays`, and return parts and variance of each pooled table."""
    measured = squares.measured
    arrays["blocks"] = np.concatenate([part.blocks for part in measured.parts])
    pools = list[tuple[Signature, float]]()
    counts = list[Floats]()
    for signature in _signatures(measured, shown):
        table, precision = squares.pool(signature)
        counts.append(table.ravel())
        pools.append((signature, 1 / precision))
    arrays["pools"] = np.concatenate([np.empty(0), *counts])
    return pools


def _signatures(measured: PartTables, shown: Collection[Clique]) -> Iterable[Signature]:
    """Return the parts, of several axes, over which a table of the page can be read, in the order of the tables."""
    signatures = dict[Signature, None]()
    for table in measured.tables:
        for length in range(2, LONGEST + 1):
            for signature in itertools.combinations(table.parts, length):
                axes = sorted(measured.parts[number].axis for number in signature)
                if tuple(axes) in shown:
                    signatures[signature] = None
    return signatures


def _pack_axes(squares: LeastSquares, arrays: Arrays) -> list[tuple[int, int, bool]]:
    """Add all axes to `arrays`, and return of each the numbers of blocks and of solutions, and if it has covariances."""
    axes = [_solutions(squares, axis) for axis in squares.measured.sizes]
    sizes = [solutions[0].blocks.size for solutions in axes]
    numbers_left = MOST_COVARIANCES
    with_covariances = set[int]()
    for axis in sorted(range(len(axes)), key=sizes.__getitem__):
        numbers_left -= len(axes[axis]) * sizes[axis] * (sizes[axis] + 1) // 2
        if numbers_left >= 0:
            with_covariances.add(axis)
    packed = list[Floats]()
    for axis, solutions in enumerate(axes):
        for solution in solutions:
            rows = np.triu_indices(solution.blocks.size)
            if axis not in with_covariances:
                rows = np.diag_indices(solution.blocks.size)
            packed += [solution.means, solution.slopes, solution.covariance[rows]]
    arrays["axis-blocks"] = np.concatenate([solutions[0].blocks.blocks for solutions in axes])
    arrays["inside"] = np.concatenate([solutions[0].inside for solutions in axes])
    arrays["inside-variance"] = np.array([solutions[0].variance for solutions in axes])
    arrays["axes"] = np.concatenate(packed)
    return [
        (size, len(solutions), axis in with_covariances)
        for axis, (size, solutions) in enumerate(zip(sizes, axes, strict=True))
    ]


def _solutions(squares: LeastSquares, axis: int) -> list[Axis]:
    """Return the estimates of an axis in questions about several axes, and those about it alone where they differ."""
    joint = squares.axis(axis, any_joint_query=True)
    single = squares.axis(axis, any_joint_query=False)
    is_same = (
        np.array_equal(joint.means, single.means)
        and np.array_equal(joint.slopes, single.slopes)
        and np.array_equal(joint.covariance, single.covariance)
    )
    return [joint] if is_same else [joint, single]


def pack_rules(rules: Sequence[StructuralZeros], arrays: Arrays) -> list[dict[str, Any]]:
    """Add what rules allow to `arrays`, and return the facts of each rule.

    A rule has its `attributes`, and `kinds`, the kind of each code of each attribute. `allowed`, one after the other, is over
    kinds. A rule of `codes` forbids these codes together.
    """
    facts = list[dict[str, Any]]()
    allowed = list[Flags]()
    for rule in rules:
        if isinstance(rule, NeverTogether):
            facts.append({"attributes": rule.attributes, "codes": rule.codes})
            continue
        kinds = [rule.kinds_along(attribute).tolist() for attribute in rule.attributes]
        facts.append({"attributes": rule.attributes, "kinds": kinds, "shape": rule.allowed.shape})
        allowed.append(rule.allowed.ravel())
    arrays["allowed"] = np.concatenate([np.empty(0, np.bool_), *allowed]).astype(np.uint8)
    return facts


def pack_numbers(codes: Codes) -> dict[int, Ends]:
    """Return the ends of each code, by the place of each attribute of numbers."""
    ends = dict[int, Ends]()
    for attribute in codes.configuration.attributes:
        with suppress(InputError):
            numbers = codes.numbers(attribute.column)
            ends[numbers.place] = _ends(numbers)
    return ends


def _ends(numbers: ValueRange) -> Ends:
    """Return the ends of each code."""
    ends: Ends = []
    for low, high in zip(numbers.low.tolist(), numbers.high.tolist(), strict=True):
        bounds = [end if math.isfinite(end) else None for end in (low, high)]
        ends.append(None if math.isnan(low) else bounds)
    return ends
