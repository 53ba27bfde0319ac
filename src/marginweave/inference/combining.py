"""Reads what analyses of several synthetic tables say, as packages for statistics return it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from marginweave.answers.intervals import check_level
from marginweave.answers.least_squares import Estimates
from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.inference.sets import FEWEST_SETS
from marginweave.inference.several_sets import combined


def combine_results(results: Iterable[Any], level: float) -> tuple[tuple[str, ...], Estimates, Floats]:
    """Names, estimates with their covariance, and half the width of intervals. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.combine`.
    """
    check_level(level)
    found = [_read(result) for result in results]
    if len(found) < FEWEST_SETS:
        raise InputError(
            f"combine takes the results of at least {FEWEST_SETS} tables, and got {len(found)}; 20 are usual"
        )
    if len({(names, estimates.shape) for names, estimates, _ in found}) > 1:
        raise InputError("the results are not of the same coefficients; a table may lack a value that another one has")
    estimates, covariances = (np.stack([one[k] for one in found]) for k in (1, 2))
    if not (np.isfinite(estimates).all() and np.isfinite(covariances).all()):
        raise InputError("a result has an estimate or a variance that is no finite number")
    if (np.diagonal(covariances, axis1=1, axis2=2) < 0).any() or not np.allclose(
        covariances, covariances.swapaxes(1, 2)
    ):
        raise InputError("a result has a negative variance, or a covariance that is not symmetric")
    return found[0][0], *combined(estimates, covariances, level)


def _read(result: Any) -> tuple[tuple[str, ...], Floats, Floats]:
    """Names, estimates and covariance of one result; coefficients of several equations one equation after the other."""
    try:
        params, spread = result if type(result) in (tuple, list) else (result.params, result.cov_params())
        estimates, covariance = np.asarray(params, np.float64).ravel(order="F"), np.asarray(spread, np.float64)
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
    named = [one.index for one in (params, spread) if isinstance(one, pd.Series | pd.DataFrame)]
    if len(named) == 2 and named[0].nlevels == named[1].nlevels and not named[0].equals(named[1]):
        raise InputError("the variances of a result have other names than its estimates, or another order")
    names = next((index for index in reversed(named) if len(index) == len(estimates)), range(len(estimates)))
    return tuple(map(str, names)), estimates, covariance
