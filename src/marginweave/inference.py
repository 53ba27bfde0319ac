"""Estimates and intervals from several synthetic tables of one release: `analyze` and `combine`.

`marginweave synthesize RUN --sets 20` writes the tables. Analyse each of them as if it were real, and combine:

    import statsmodels.formula.api as smf
    from marginweave.inference import analyze, read_sets

    sets = read_sets("release/sets-0")
    print(analyze(sets, lambda table: smf.logit("had ~ age + religious", table).fit(disp=0)).table)

DP: post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from marginweave.schemas.errors import InputError

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class CombinedEstimate:
    """What several synthetic tables say together of one number, shape (), or of k numbers, shape (k,).

    `low` to `high` covers the truth with probability `level`, each number by itself. `variance` is that of the estimate, and
    `degrees` are the degrees of freedom of its t distribution. `fallback` says where T was not positive, so that `variance` is
    the mean variance inside a set. `between` and `within` are the variance of the estimates of the sets and the mean of their
    variances: shape (), or (k, k).
    """

    names: tuple[str, ...]
    sets: int
    level: float
    estimate: Numbers
    variance: Numbers
    degrees: Numbers
    low: Numbers
    high: Numbers
    fallback: NDArray[np.bool_]
    between: Numbers
    within: Numbers

    @property
    def table(self) -> pd.DataFrame:
        """A line a number: estimate, low, high, sd, degrees, and whether the variance is the fallback."""
        shown = ("estimate", "low", "high", "variance", "degrees", "fallback")
        frame = pd.DataFrame({name: np.atleast_1d(getattr(self, name)) for name in shown}, index=list(self.names))
        frame["variance"] = np.sqrt(frame["variance"])
        return frame.rename(columns={"variance": "sd"})

    def contrast(self, weights: ArrayLike) -> CombinedEstimate:
        """The same of the sum of `weights` times the k numbers, such as the difference of two coefficients.

        Raises:
            InputError: not as many weights as numbers.
        """
        w = np.asarray(weights, np.float64)
        if not self.estimate.ndim or w.shape != self.estimate.shape:
            raise InputError(
                f"weights of shape {w.shape} must have the shape {self.estimate.shape} of a vector of estimates"
            )
        moments = (w @ self.estimate, w @ self.between @ w, w @ self.within @ w)
        return _combined(("contrast",), self.sets, self.level, *(np.asarray(m) for m in moments))


def combine(
    estimates: ArrayLike, variances: ArrayLike, *, level: float = 0.95, names: Sequence[str] = ()
) -> CombinedEstimate:
    """Combine the estimates of M synthetic tables by the rule for fully synthetic data.

    With q the mean of the estimates, b the variance between them (divisor M - 1) and v the mean of the variances,
    T = (1 + 1/M) b - v is the variance of q, and (q - truth) / sqrt(T) has a t distribution with
    nu = (M - 1) (1 - v / ((1 + 1/M) b))^2 degrees of freedom (Raghunathan, Reiter and Rubin 2003; for differentially private
    models Räisä, Jälkö, Kaski and Honkela 2023). b holds the sampling of the records of a set, which is no error of q beyond
    its share of 1/M, so v goes. Where T <= 0, v takes its place, with M - 1 degrees of freedom: take more sets, or more records
    a set.

    Conditions; `marginweave synthesize --sets` is made for the first three. Regressions measured so far cover
    too seldom (docs/inference.md), as the models are biased:

    1. Each set is drawn from a model of its own, and the models differ as much as estimates from repeated releases would.
       Tables made by `--seed` alone come from one model: then b shows nothing of the noise, and intervals are far too narrow.
    2. The records of a set are independent draws of its model, and `variances` are those of an analysis that takes them so.
    3. The sets are of the target that you want: sets of `--of population` for the population that the rows are a simple random
       sample of, sets of `--of table` for the analysis of the rows themselves.
    4. The model holds what you analyse: coefficients of columns that were measured together, or whose dependence the model
       got right. Misfit of the model is not in T.
    5. The estimate is nearly normal and its variance is right: enough records, no coefficient that is infinite in some set.

    Never combine them by Rubin's rule for missing data (v + (1 + 1/M) b) or the rule for partially synthetic data (v + b/M).

    Args:
        estimates: one a set, shape (M,), or k a set, shape (M, k).
        variances: of each estimate, shape (M,), or their covariances, shape (M, k, k).
        level: of the intervals.
        names: of the k numbers.

    Raises:
        InputError: fewer than two sets, shapes that do not fit, numbers that are not finite, or variances that are negative.
    """
    q, u = np.asarray(estimates, np.float64), np.asarray(variances, np.float64)
    if q.ndim not in (1, 2) or u.shape != q.shape[:1] + q.shape[1:] * 2:
        raise InputError(
            f"variances of shape {u.shape} do not fit estimates of shape {q.shape}: give one variance for each estimate, or a "
            "(k, k) covariance for each vector of k"
        )
    if len(q) < 2:
        raise InputError(f"{len(q)} set of estimates says nothing of their spread; at least 2 are needed, better 20")
    if not (np.isfinite(q).all() and np.isfinite(u).all()):
        raise InputError("an estimate or a variance of some set is not finite; did every analysis converge?")
    diagonal = u if q.ndim == 1 else np.diagonal(u, axis1=1, axis2=2)
    if (diagonal < 0).any():
        raise InputError("a variance of some set is negative")
    if not 0 < level < 1:
        raise InputError(f"level ({level}) must lie between 0 and 1")
    labels = tuple(names) or tuple(f"x{i}" for i in range(1, 1 + int(np.prod(q.shape[1:]))))
    if len(labels) != np.prod(q.shape[1:]):
        raise InputError(f"there are {len(labels)} names for {np.prod(q.shape[1:]):.0f} numbers")
    away = q - q.mean(axis=0)
    return _combined(labels, len(q), level, q.mean(axis=0), away.T @ away / (len(q) - 1), u.mean(axis=0))


def _combined(
    names: tuple[str, ...], sets: int, level: float, mean: Numbers, between: Numbers, within: Numbers
) -> CombinedEstimate:
    mean, between, within = (np.asarray(part, np.float64) for part in (mean, between, within))
    b, v = (part if part.ndim < 2 else np.diagonal(part) for part in (between, within))
    spread = (1 + 1 / sets) * b
    fallback = np.asarray(spread - v <= 0)
    variance = np.where(fallback, v, spread - v)
    degrees = (sets - 1) * np.where(fallback, 1.0, 1 - v / np.where(fallback, 1.0, spread)) ** 2
    reach = stdtrit(degrees, (1 + level) / 2)
    half = np.where(variance > 0, np.where(np.isnan(reach), np.inf, reach) * np.sqrt(variance), 0.0)
    return CombinedEstimate(
        names=names,
        sets=sets,
        level=level,
        estimate=mean,
        variance=variance,
        degrees=degrees,
        low=mean - half,
        high=mean + half,
        fallback=fallback,
        between=between,
        within=within,
    )


def analyze(sets: Iterable[Any], function: Callable[[Any], Any], *, level: float = 0.95) -> CombinedEstimate:
    """Run `function` over the sets and combine what it returns; conditions as in `combine`.

    `function` returns an estimate and its variance, a vector and its covariance, or a result as those of statsmodels: an
    object with `params` and `cov_params()`.

    Raises:
        InputError: as `combine`; or results of different sets have different coefficients.
    """
    found = [_estimate(function(one)) for one in sets]
    names = {labels for _, _, labels in found}
    if len(names) > 1:
        raise InputError(
            "the analyses of two sets have different coefficients; declare the categories of columns, so that a value that one "
            "set lacks has its place in all"
        )
    sizes = {estimate.shape for estimate, _, _ in found} | {()}
    if len(sizes) > 2:
        raise InputError("the analyses of two sets have different numbers of estimates")
    estimates, variances = ([part[i] for part in found] for i in (0, 1))
    return combine(np.array(estimates), np.array(variances), level=level, names=next(iter(names), ()))


def _estimate(result: Any) -> tuple[Numbers, Numbers, tuple[str, ...]]:
    """Estimate, variance, and names where there are some; duck typing, so that no statistics package is needed."""
    if not hasattr(result, "cov_params"):
        estimate, variance = result
        return np.asarray(estimate, np.float64), np.asarray(variance, np.float64), ()
    params = result.params
    names = getattr(params, "index", None)
    if names is None:
        names = getattr(getattr(result, "model", None), "exog_names", None) or ()
    return np.asarray(params, np.float64), np.asarray(result.cov_params(), np.float64), tuple(map(str, names))


def read_sets(folder: str | Path) -> list[pd.DataFrame]:
    """The tables that `marginweave synthesize --sets` wrote to a folder, in order.

    Raises:
        InputError: there are none.
    """
    files = sorted(Path(folder).glob("set-*/synthetic.parquet"))
    if not files:
        raise InputError(f"{folder} has no sets; make some: marginweave synthesize RUN --sets 20 --to {folder}")
    return [pd.read_parquet(file) for file in files]
