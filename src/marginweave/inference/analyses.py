"""Inference from a release alone: regressions, and any other analysis by way of several synthetic tables.

    from marginweave.inference import analyse, regression

    print(regression("release", "cost", ["age", "region"]).table)
    print(analyse("release", ["cost", "age"], lambda rows: smf.ols("cost ~ age", rows).fit()).table)

DP: post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from marginweave.base.errors import must_be

if TYPE_CHECKING:
    from marginweave.answers.least_squares import Estimates
    from marginweave.inference.independence_tests import Independence
    from marginweave.inference.normal_regression import Kind

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """What was estimated, and its covariance; `low` to `high` covers each with probability `level`.

    The covariance is of the noise and, for a population, of sampling.
    """

    names: tuple[str, ...]
    estimate: Numbers
    covariance: Numbers
    low: Numbers
    high: Numbers
    level: float

    @property
    def table(self) -> pd.DataFrame:
        """A line a coefficient: estimate, low, high, sd."""
        sd = np.sqrt(np.diagonal(self.covariance))
        found = {"estimate": self.estimate, "low": self.low, "high": self.high, "sd": sd}
        return pd.DataFrame(found, index=list(self.names))


def regression(
    release: str | Path,
    target: str,
    columns: Sequence[str],
    *,
    kind: Kind = "linear",
    of: Literal["population", "table"] = "population",
    values: Mapping[str, Mapping[str, float]] | None = None,
    level: float = 0.95,
) -> Coefficients:
    """The regression of `target` on `columns`, from the measured pairs of columns of the release in a folder.

    A number counts as the middle of its bin, a category of numbers as these, another one as an indicator of each of its values
    but the first. Intervals are of coefficients of such numbers; those of the numbers inside bins may be others. Of a mean,
    `query --mean` has a range that covers them. `docs/inference.md` says how it is computed, how often intervals cover,
    and when they do not.

    Args:
        release: a folder with privacy.json, measurements.parquet and model.parquet, or the name of a run.
        target: a column; for "logistic" one whose values count 0 or 1.
        columns: what it is regressed on, beside an intercept. Any two, and each with the target, were measured together.
        kind: least squares, or logistic regression.
        of: whether intervals are about the population that the rows are a simple random sample of, or about the rows.
        values: of a column, what each of its values counts, "(missing)" for the missing one.
        level: of the intervals.

    Raises:
        InputError: an argument is none of these. The release has no model. A column was not counted, or has values without a
            number. Two columns are in no measured set together. The rows are no sample. There is no single solution.
    """
    from marginweave.inference.opened import Release
    from marginweave.inference.regressions import Regression, answer_regression

    must_be("columns", columns, (list, tuple), f'["{columns}"]')
    asked = Regression(target=target, columns=tuple(columns), kind=kind, of=of, values=values or {}, level=level)
    names, found, half = answer_regression(Release.open(release).place, asked)
    return _coefficients(names, found, half, level)


def independence(
    release: str | Path, one: str, other: str, *, of: Literal["population", "table"] = "population"
) -> Independence:
    """Whether two columns of a release depend on each other, by a chi-square test that knows the noise.

    Where a person has up to m rows, rows of one person are kept together: the test is of the population of persons, and
    its p is no smaller than it should be. A usual test of synthetic records or of released counts takes noise for
    association.

    Args:
        release: a folder with privacy.json and measurements.parquet, or the name of a run.
        one: a column.
        other: another one, in a measured set with it.
        of: whether it tests the population that the rows (or the persons) are a simple random sample of, or whether the
            association of the rows themselves is more than noise.

    Raises:
        InputError: an argument is none of these. The columns are in no measured set together. The rows are no sample.
    """
    from marginweave.inference.answers import read_answers
    from marginweave.inference.independence_tests import answer_independence
    from marginweave.inference.opened import Release

    return answer_independence(read_answers(Release.open(release).place), (one, other), of)


def synthetic_sets(
    release: str | Path,
    columns: Sequence[str] = (),
    *,
    sets: int = 20,
    of: Literal["population", "table"] = "population",
    seed: int | None = None,
) -> Iterator[pd.DataFrame]:
    """Several synthetic tables of some columns of the release in a folder, one after the other, for `combine`.

    They differ as the noise, and sampling, may have changed what is known: each is a draw of what the table, or the population,
    may have been, of five records a row. One alone says no more than the published records. Name no column that the analysis
    does not need. A number is the middle of its bin, a category of numbers is these, another one its text; missing
    values are missing.

    Args:
        release: a folder with privacy.json, measurements.parquet and model.parquet, or the name of a run.
        columns: any two of them were measured together; all without.
        sets: how many tables, at least 5.
        of: whether `combine` is to tell of the population that the rows are a simple random sample of, or of the rows.
        seed: of public draws; that of the configuration by default.

    Raises:
        InputError: an argument is none of these. The release has no model. A column was not counted. Two columns are in no
            measured set together. The rows are no sample.
    """
    from marginweave.inference.opened import Release
    from marginweave.inference.sets import draw_sets

    return draw_sets(Release.open(release).place, columns, sets, of, seed)


def combine(results: Iterable[Any], *, level: float = 0.95) -> Coefficients:
    """What the same analysis of several synthetic tables says together, with intervals.

    T = (1 + 1/M) B - V, with B the variance of the estimates between the M tables and V the mean of those that the analyses
    state (Raghunathan, Reiter and Rubin 2003), or V where that is more. It is for tables of `synthetic_sets`, and for estimates
    that are about normally distributed and follow from single columns and pairs of them: means, shares, correlations, linear
    and logistic regressions. It is not for published records of several seeds, which vary by chance alone, nor for extremes,
    nor for what three columns have in common.

    Args:
        results: of each table a result of statsmodels, or of another package that has `params` and `cov_params()`; or a pair of
            estimates, shape (coefficients,), and their variances or covariance. A number counts as a vector of one.
        level: of the intervals.

    Raises:
        InputError: fewer than five results, results of different coefficients, or numbers that are no estimates and variances.
    """
    from marginweave.inference.combining import combine_results

    names, found, half = combine_results(results, level)
    return _coefficients(names, found, half, level)


def analyse(
    release: str | Path,
    columns: Sequence[str],
    analysis: Callable[[pd.DataFrame], Any],
    *,
    sets: int = 20,
    of: Literal["population", "table"] = "population",
    level: float = 0.95,
    seed: int | None = None,
) -> Coefficients:
    """An analysis of some columns of a release: `combine` of what the function `analysis` says of each of `synthetic_sets`.

    Raises:
        InputError: as these.
    """
    return combine(map(analysis, synthetic_sets(release, columns, sets=sets, of=of, seed=seed)), level=level)


def _coefficients(names: tuple[str, ...], found: Estimates, half: Numbers, level: float) -> Coefficients:
    return Coefficients(
        names=names,
        estimate=found.values,
        covariance=found.covariance,
        low=found.values - half,
        high=found.values + half,
        level=level,
    )
