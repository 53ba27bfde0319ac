"""Settings for missing values and for the size of the table: imputation and resize."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from marginweave.base.budget import Stability
from marginweave.base.errors import MustError
from marginweave.configuration.values import FrozenModel, Number, Positive, PositiveWhole, to_number

MAX_PROPORTION = 10
MAX_RESIZED = 10**8
_FROM_THE_DATA = ("mean", "median", "mode")


class UniformImputation(FrozenModel):
    """Imputation by a uniform draw: from the declared values, or between the bounds."""

    kind: ClassVar[str] = "uniform"
    needs: ClassVar[str] = "the values of a private domain are not known"
    distribution: Literal["uniform"]


class GaussianImputation(FrozenModel):
    """Imputation by a draw from the normal distribution with public `mean` and `deviation`, clamped to the bounds."""

    kind: ClassVar[str] = "gaussian"
    needs: ClassVar[str] = "the column is no number"
    distribution: Literal["gaussian"]
    mean: Number
    deviation: Positive


def _weights(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise MustError("be a mapping from values to weights")
    weights = {str(text).strip(): to_number(weight) for text, weight in value.items()}
    if len(weights) < len(value):
        raise ValueError("names a value twice")
    if min(weights.values()) < 0 or not 0 < sum(weights.values()) < math.inf:
        raise MustError("have weights that are not negative and not all 0")
    return weights


class WeightedImputation(FrozenModel):
    """Imputation by one of the named values, with a probability proportional to its public weight."""

    kind: ClassVar[str] = "weights"
    needs: ClassVar[str] = "the column has no declared values"
    weights: Annotated[dict[str, float], BeforeValidator(_weights)]


def _imputation(value: Any) -> Any:
    distribution = value.get("distribution") if isinstance(value, dict) else value
    if distribution in _FROM_THE_DATA:
        raise MustError(
            f"not be the {distribution} of the column: it is read off the data, every record would move all imputed "
            "values, and it would be published for free; declare public weights or a public distribution"
        )
    if isinstance(value, dict) and "weights" in value:
        return WeightedImputation.model_validate(value)
    if isinstance(value, dict) and distribution == "uniform":
        return UniformImputation.model_validate(value)
    if isinstance(value, dict) and distribution == "gaussian":
        return GaussianImputation.model_validate(value)
    if isinstance(value, UniformImputation | GaussianImputation | WeightedImputation):
        return value
    raise MustError(
        "be {distribution: uniform}, {distribution: gaussian, mean: …, deviation: …} or {weights: {value: weight, …}}"
    )


Imputation = Annotated[
    UniformImputation | GaussianImputation | WeightedImputation, BeforeValidator(_imputation)
]


class ResizeSettings(FrozenModel):
    """A table of a public number of `records`, sampled from `proportion` of the sensitive table and filled up by imputation.

    docs/sources/data-processing.md, resize: c = ceil(p) copies of the table are sampled at the rate s = p/c, cut to n records
    and filled up to n. One row moves at most c records of the result, by replacement. By default every draw has noise for c
    records, and is charged as such. With `amplify: true` all draws together keep the functional (epsilon, delta) of `formula`,
    and the release is charged (epsilon, delta) to the account's allowance.
    """

    records: Annotated[PositiveWhole, Field(le=MAX_RESIZED)]
    proportion: Annotated[Number, Field(ge=1e-6, le=MAX_PROPORTION)] = 1.0
    amplify: bool = False
    formula: Literal["printed", "tight"] | None = None

    @model_validator(mode="after")
    def _check_formula(self) -> ResizeSettings:
        if self.formula is not None and not self.amplify:
            raise ValueError(
                "has formula, which needs amplify: true: without amplification nothing is converted"
            )
        return self

    @property
    def copies(self) -> int:
        """Number c of copies of the table that are sampled."""
        return math.ceil(self.proportion)

    @property
    def rate(self) -> Fraction:
        """Share s = p/c of the copies that is sampled; in (0, 1]."""
        return Fraction(repr(self.proportion)) / self.copies

    def stability(self, unit: Stability) -> Stability:
        """Return the number of records of the resized table that a unit changes, all by replacement.

        c theta records are replaced; with `amplify` it is one record, as `formula` includes the effect of sampling.
        """
        records = 1 if self.amplify else self.copies * unit.records
        return Stability(records=records, neighbors="replace-one")
