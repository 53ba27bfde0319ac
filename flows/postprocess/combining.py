"""Reads what analyses of several synthetic tables say, as packages for statistics return it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from marginweave.schemas.arrays import Floats
from marginweave.schemas.errors import InputError
from marginweave.tasks.answers.intervals import check_level
from marginweave.tasks.answers.least_squares import Estimates
from marginweave.tasks.answers.sets import combined


def combine_results(results: Iterable[Any], level: float) -> tuple[tuple[str, ...], Estimates, Floats]:
    """Names, estimates with their covariance, and half the width of intervals. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.combine`.
    """
    check_level(level)
    found = [_read(result) for result in results]
    if len(found) < 2:
        raise InputError(f"combine takes the results of several tables, and got {len(found)}")
    if len({(names, *(array.shape for array in arrays)) for names, *arrays in found}) > 1:
        raise InputError("the results are not of the same coefficients; a table may lack a value that another one has")
    estimates, covariances = (np.stack([one[k] for one in found]) for k in (1, 2))
    if not (np.isfinite(estimates).all() and np.isfinite(covariances).all()):
        raise InputError("a result has an estimate or a variance that is no finite number")
    return found[0][0], *combined(estimates, covariances, level)


def _read(result: Any) -> tuple[tuple[str, ...], Floats, Floats]:
    """Names, estimates and covariance of one result."""
    try:
        if hasattr(result, "cov_params"):
            params, spread = result.params, result.cov_params()
        else:
            params, spread = result
        estimates = np.atleast_1d(np.asarray(params, np.float64))
        covariance = np.asarray(spread, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "a result must have params and cov_params(), or be a pair of estimates and their variances or covariance"
        ) from None
    if covariance.ndim < 2:
        covariance = np.diag(np.atleast_1d(covariance))
    if estimates.ndim != 1 or covariance.shape != (len(estimates), len(estimates)):
        raise InputError(
            f"a result has estimates of shape {estimates.shape} and a covariance of shape {covariance.shape}, which do not "
            "go together"
        )
    names = params.index if isinstance(params, pd.Series) else range(len(estimates))
    return tuple(map(str, names)), estimates, covariance
