"""Regressions from a release alone, with intervals: `regression`.

    from marginweave.inference import regression

    found = regression("release", "cost", ["age", "region"])
    print(found.table)

DP: post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    from marginweave.tasks.answers.regression import Kind

Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Coefficients:
    """Coefficients of a regression, and their covariance; `low` to `high` covers each with probability `level`.

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
        release: a folder with privacy.json, measurements.parquet and model.parquet.
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
    from marginweave.flows.postprocess.regressions import Regression, answer_regression

    asked = Regression(target=target, columns=tuple(columns), kind=kind, of=of, values=values or {}, level=level)
    names, found, half = answer_regression(Path(release), asked)
    return Coefficients(
        names=names,
        estimate=found.values,
        covariance=found.covariance,
        low=found.values - half,
        high=found.values + half,
        level=level,
    )
