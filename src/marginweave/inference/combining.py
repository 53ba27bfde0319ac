"""Reads results of analyses of several synthetic tables, as packages for statistics return them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from marginweave.answers.intervals import check_level
from marginweave.answers.least_squares import Estimates
from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.inference.sets import FEWEST_SETS
from marginweave.inference.several_sets import combined


def combine_results(
    results: Iterable[Any], level: float
) -> tuple[tuple[str, ...], Estimates, Floats]:
    """Return names, estimates with their covariance, and half the widths of intervals. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.combine`.
    """
    check_level(level)
    read = [_read(result) for result in results]
    if len(read) < FEWEST_SETS:
        raise InputError(
            f"combine takes the results of at least {FEWEST_SETS} tables, and got {len(read)}; 20 are usual"
        )
    if len({(result.names, result.estimates.shape) for result in read}) > 1:
        raise InputError(
            "the results are not of the same coefficients; a table may lack a value that another one has"
        )
    estimates = np.stack([result.estimates for result in read])
    covariances = np.stack([result.covariance for result in read])
    if not (np.isfinite(estimates).all() and np.isfinite(covariances).all()):
        raise InputError("a result has an estimate or a variance that is no finite number")
    is_negative = np.diagonal(covariances, axis1=1, axis2=2) < 0
    is_symmetric = np.allclose(covariances, covariances.swapaxes(1, 2))
    if is_negative.any() or not is_symmetric:
        raise InputError("a result has a negative variance, or a covariance that is not symmetric")
    combined_estimates, half_widths = combined(estimates, covariances, level)
    return read[0].names, combined_estimates, half_widths


@dataclass(frozen=True, kw_only=True, eq=False)
class _Result:
    """The result of one analysis: estimates, shape (coefficients,), and their covariance."""

    names: tuple[str, ...]
    estimates: Floats
    covariance: Floats


def _read(result: Any) -> _Result:
    """Read a result; coefficients of several equations come one equation after the other. Raises InputError."""
    try:
        if type(result) in (tuple, list):
            params, spread = result
        else:
            params = result.params
            spread = result.cov_params()
        estimates = np.asarray(params, np.float64).ravel(order="F")
        covariance = np.asarray(spread, np.float64)
    except (AttributeError, TypeError, ValueError):
        raise InputError(
            "a result must have params and cov_params(), or be a pair of estimates and their variances or covariance"
        ) from None
    if covariance.ndim < 2:
        covariance = np.diag(np.atleast_1d(covariance))
    if not len(estimates) or covariance.shape != (len(estimates), len(estimates)):
        raise InputError(
            f"a result has {len(estimates)} estimates and a covariance of shape {covariance.shape}, which do not go together"
        )
    names = _names(params, spread, len(estimates))
    return _Result(names=names, estimates=estimates, covariance=covariance)


def _names(params: Any, spread: Any, number: int) -> tuple[str, ...]:
    """Return the names of coefficients, or their places where neither estimates nor variances name them."""
    indexes = [
        table.index for table in (params, spread) if isinstance(table, pd.Series | pd.DataFrame)
    ]
    if len(indexes) == 2:
        first, second = indexes
        if first.nlevels == second.nlevels and not first.equals(second):
            raise InputError(
                "the variances of a result have other names than its estimates, or another order"
            )
    for index in reversed(indexes):
        if len(index) == number:
            return tuple(map(str, index))
    return tuple(map(str, range(number)))
