"""Inference from a release alone: regressions, and any other analysis by way of several synthetic tables.

    from marginweave.inference import analyse, regression

    print(regression("release", "cost", ["age", "region"]).table)
    print(analyse("release", ["cost", "age"], lambda rows: smf.ols("cost ~ age", rows).fit()).table)

DP: post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from warnings import warn

import numpy as np
import pandas as pd

from marginweave.base.arrays import Floats
from marginweave.base.errors import must_be

if TYPE_CHECKING:
    from marginweave.answers.least_squares import Estimates
    from marginweave.inference.independence_tests import Independence
    from marginweave.inference.normal_regression import Kind
    from marginweave.inference.opened import Release


@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """Estimated coefficients with their covariance; `low` to `high` covers each with probability `level`.

    The covariance is of the noise and, for a population, of sampling. `level` is None where no coverage is claimed. `bins` of a
    regression is how far each coefficient may move by where numbers lie inside their bins, which no interval has; None for
    other analyses. `flags` say "do not use" where that is too far, and "no coverage" where none is claimed. `says` is in
    sentences what the coefficients are of, and what their intervals are; of other analyses, what is not claimed to cover.
    """

    names: tuple[str, ...]
    estimate: Floats
    covariance: Floats
    low: Floats
    high: Floats
    level: float | None
    bins: Floats | None = None
    flags: tuple[str, ...] = ()
    says: str = ""

    @property
    def table(self) -> pd.DataFrame:
        """Frame with a line for each coefficient: estimate, low, high, sd; also bins, and flag, where there are any."""
        frame = pd.DataFrame(index=list(self.names))
        frame["estimate"] = self.estimate
        frame["low"] = self.low
        frame["high"] = self.high
        frame["sd"] = np.sqrt(np.diagonal(self.covariance))
        if self.bins is not None:
            frame["bins"] = self.bins
        if self.flags:
            frame["flag"] = self.flags
        return frame


def regression(
    release: Release | str | Path,
    target: str,
    columns: Sequence[str],
    *,
    kind: Kind = "linear",
    of: Literal["population", "table"] = "population",
    values: Mapping[str, Mapping[str, float]] | None = None,
    level: float = 0.95,
) -> Coefficients:
    """Return the regression of `target` on `columns`, from the measured pairs of columns of the release in a folder.

    A number counts as the middle of its bin, a category of numbers as these, any other category as an indicator of each value
    but the first. Intervals are for the regression of rows, or of a population, with every number at the middle of its bin.
    `bins` says how far a coefficient may move by where numbers lie inside, and `flag` where that is too far. Where the rows
    have chosen which columns were measured together, no coverage of a population is claimed. `docs/inference.md` says how the
    regression is computed, how often intervals cover, and when they do not.

    Args:
        release: one that is opened, a folder with privacy.json, measurements.parquet and model.parquet, or the name of a run.
        target: a column; for "logistic" one whose values count 0 or 1.
        columns: the predictors, in addition to an intercept. Any two, and each with the target, were measured together.
        kind: least squares, or logistic regression.
        of: whether intervals are about the population that the rows are a simple random sample of, or about the rows.
        values: for a column, the number that each of its values counts, "(missing)" for the missing one.
        level: of the intervals.

    Raises:
        InputError: an argument is none of these. The release has no model. A column was not counted, or has values without a
            number. Two columns are in no measured set together. The rows are no sample. There is no single solution.
    """
    from marginweave.inference.opened import Release
    from marginweave.inference.regressions import Regression, answer_regression

    must_be("columns", columns, (list, tuple), f'["{columns}"]')
    question = Regression(
        target=target,
        columns=tuple(columns),
        kind=kind,
        of=of,
        values=values or {},
        level=level,
    )
    answer = answer_regression(Release.open(release).place, question)
    coefficients = _coefficients(answer.names, answer.estimates, answer.half_widths, answer.level)
    return replace(coefficients, bins=answer.bins, flags=answer.flags, says=answer.says)


def independence(
    release: Release | str | Path,
    one: str,
    other: str,
    *,
    of: Literal["population", "table"] = "population",
) -> Independence:
    """Test whether two columns of a release depend on each other, by a chi-square test that knows the noise.

    Where a person has up to m rows, rows of one person are kept together: the test is of the population of persons, and
    its p is no smaller than it should be. A usual test of synthetic records or of released counts takes noise for
    association.

    Args:
        release: one that is opened, a folder with privacy.json and measurements.parquet, or the name of a run.
        one: a column.
        other: another column, in a measured set with it.
        of: whether it tests the population that the rows (or the persons) are a simple random sample of, or whether the
            association of the rows themselves is more than noise.

    Raises:
        InputError: an argument is none of these. The columns are in no measured set together. The rows are no sample, or have
            chosen the columns, so that no test of the population holds.
    """
    from marginweave.inference.answers import read_answers
    from marginweave.inference.independence_tests import answer_independence
    from marginweave.inference.opened import Release

    answers = read_answers(Release.open(release).place)
    return answer_independence(answers, (one, other), of)


def synthetic_sets(
    release: Release | str | Path,
    columns: Sequence[str] = (),
    *,
    sets: int = 20,
    of: Literal["population", "table"] = "population",
    seed: int | None = None,
) -> Iterator[pd.DataFrame]:
    """Yield several synthetic tables of some columns of the release in a folder, for `combine`.

    They differ by as much as noise, and sampling, may have changed the counts. Each is a draw of a table, or population, that
    agrees with the release, with as many records as there are rows, or more where these are few. A single table says no more
    than the published records. Name no column that the analysis does not need. A number is the middle of its bin, a category
    of numbers is these, any other category its text; missing values are missing, and so are codes of a number column that
    mean no number. A warning says where `combine` is claimed to cover nothing: the rows have chosen which columns were
    measured together, or many records lack a value. It also names values that are too rare for the noise.

    Args:
        release: one that is opened, a folder with privacy.json, measurements.parquet and model.parquet, or the name of a run.
        columns: any two of them were measured together; every column by default.
        sets: number of tables, at least 5.
        of: whether the result of `combine` is about the population that the rows are a simple random sample of, or about the
            rows.
        seed: for public draws; that of the configuration by default.

    Raises:
        InputError: an argument is none of these. The release has no model. A column was not counted. Two columns are in no
            measured set together. The rows are no sample.
    """
    from marginweave.inference.opened import Release
    from marginweave.inference.sets import SyntheticSets

    tables = SyntheticSets.of_release(Release.open(release).place, columns, of, seed)
    drawn = tables.draw(sets)
    if tables.cautions:
        warn(tables.cautions, stacklevel=2)
    return drawn


def combine(results: Iterable[Any], *, level: float = 0.95) -> Coefficients:
    """Combine the results of one analysis of several synthetic tables, with intervals.

    T = (1 + 1/M) B, with B the variance of the estimates between the M tables, or a fifth of the mean of those that the
    analyses state, where that is more. It is for tables of `synthetic_sets` alone, whose records vary by noise and sampling and
    hardly by themselves: other rules for synthetic tables take off a variance that these do not have. It is for estimates that
    are about normally distributed and follow from single columns and pairs of them: means, shares, correlations, linear
    and logistic regressions. It is not for published records of several seeds, which vary by chance alone, nor for extremes,
    nor for what three columns have in common.

    Args:
        results: for each table a result of statsmodels, or of another package that has `params` and `cov_params()`; or a pair
            of estimates, shape (coefficients,), and their variances or covariance. A number counts as a vector of length 1.
        level: of the intervals.

    Raises:
        InputError: fewer than five results, results of different coefficients, or numbers that are no estimates and variances.
    """
    from marginweave.inference.combining import combine_results

    names, estimates, half_widths = combine_results(results, level)
    return _coefficients(names, estimates, half_widths, level)


def analyse(
    release: Release | str | Path,
    columns: Sequence[str],
    analysis: Callable[[pd.DataFrame], Any],
    *,
    sets: int = 20,
    of: Literal["population", "table"] = "population",
    level: float = 0.95,
    seed: int | None = None,
) -> Coefficients:
    """Return an analysis of some columns of a release: `combine` of the results of `analysis` for each of `synthetic_sets`.

    `level` of the result is None where nothing says how often its intervals cover. For the population that is where the rows
    have chosen which of the columns were measured together. Of three columns and more it is where many records lack a value.
    `says` names values that are so rare that a coefficient of one is claimed to cover nothing, whatever `level` says.

    Raises:
        InputError: as these.
    """
    from marginweave.inference.modelled import UNCLAIMED
    from marginweave.inference.opened import Release
    from marginweave.inference.sets import SyntheticSets

    tables = SyntheticSets.of_release(Release.open(release).place, columns, of, seed)
    combined = combine(map(analysis, tables.draw(sets)), level=level)
    if tables.unclaimed:
        flags = (UNCLAIMED,) * len(combined.names)
        return replace(combined, level=None, flags=flags, says=tables.unclaimed)
    return replace(combined, says=tables.cautions)


def _coefficients(
    names: tuple[str, ...],
    estimates: Estimates,
    half_widths: Floats,
    level: float | None,
) -> Coefficients:
    return Coefficients(
        names=names,
        estimate=estimates.values,
        covariance=estimates.covariance,
        low=estimates.values - half_widths,
        high=estimates.values + half_widths,
        level=level,
    )
