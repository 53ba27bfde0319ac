"""Settings of the aggregation: lengths, shares of the budget, contribution bound, thresholds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from marginweave.base.errors import MustError
from marginweave.configuration.values import (
    FrozenModel,
    Number,
    OpenFraction,
    Positive,
    PositiveWhole,
    or_none,
    to_number,
)

DEFAULT_BOUNDS_SHARE = 0.05
SigmaRule = Literal["long", "short", "balanced", "singles"]
MAX_COMBINATIONS = 2_000_000


class FixedThresholds(FrozenModel):
    """Keep a combination of length k when its noisy count exceeds `fixed[k]`."""

    fixed: dict[PositiveWhole, Annotated[Number, Field(ge=0)]]


def _beyond_single(adaptive: dict[int, float]) -> dict[int, float]:
    if 1 in adaptive:
        raise ValueError(
            "has an eta for length 1, whose threshold is fixed by delta; lengths begin at 2"
        )
    return adaptive


class AdaptiveThresholds(FrozenModel):
    """Thresholds from the noise: `rule: sds` is eta_k / 2 a cell, `rule: paper` bounds their expected number."""

    adaptive: Annotated[
        dict[PositiveWhole, Annotated[Positive, Field(le=1)]], AfterValidator(_beyond_single)
    ]
    rule: Literal["sds", "paper"] = "sds"


def _sigma(value: Any) -> Any:
    if isinstance(value, list | tuple):
        proportions = tuple(to_number(item) for item in value)
        if any(proportion <= 0 for proportion in proportions):
            raise MustError("have positive proportions")
        return proportions
    if value not in get_args(SigmaRule):
        raise MustError(
            f"be auto, {', '.join(get_args(SigmaRule))} or a list of positive proportions"
        )
    return value


def _thresholds(value: Any) -> Any:
    for key, model in (("fixed", FixedThresholds), ("adaptive", AdaptiveThresholds)):
        if isinstance(value, model) or (isinstance(value, dict) and key in value):
            return model.model_validate(value)
    raise MustError("be {fixed: …} or {adaptive: …}")


Thresholds = Annotated[FixedThresholds | AdaptiveThresholds, BeforeValidator(_thresholds)]


_PERCENTILE = or_none(
    to_number, lambda percentile: 1 <= percentile < 100, "lie in [1, 100), or be none"
)


class AggregateSettings(FrozenModel):
    """Settings of the counts of k-tuples. Shares are of the budget, mu².

    `sigma` spreads the budget over lengths: the noise of length k is p_k times a common scale, `long` p_k = 1/k (long
    combinations are more exact), `short` 1/(R-k+1), `balanced` 1, `singles` 1 for single values and 5 (k-1) beyond; `auto` is
    replaced by one of these. `bounds_share` (0.05 unless declared) is the share of all columns with private bounds in all.
    Where more than `max_combinations` of a length would be kept, its threshold is raised.
    """

    method: Literal["k-tuples"] = "k-tuples"
    reporting_length: PositiveWhole | None = None
    sigma: Annotated[SigmaRule | tuple[float, ...], BeforeValidator(_sigma)] = "balanced"
    percentile: Annotated[float | Literal["none"] | None, _PERCENTILE] = None
    percentile_share: OpenFraction = 0.10
    count_share: OpenFraction = 0.02
    bounds_share: OpenFraction | None = None
    delta_threshold_share: OpenFraction = 0.1
    thresholds: Thresholds | None = None
    max_combinations: PositiveWhole = MAX_COMBINATIONS

    def check_length(self, columns: int) -> None:
        """Refuse a reporting length beyond the number of columns, and settings for longer lengths (ValueError)."""
        length = self.reporting_length or min(3, columns)
        if length > columns:
            raise ValueError(
                f"aggregate.reporting_length ({length}) must be at most the number of columns ({columns})"
            )
        if isinstance(self.sigma, tuple) and len(self.sigma) != length:
            raise ValueError(
                f"aggregate.sigma has {len(self.sigma)} proportions; it must have one a length ({length})"
            )
        for key in self._threshold_lengths:
            if key > length:
                raise ValueError(
                    f"aggregate.thresholds names length {key}; the reporting length is {length}"
                )

    @property
    def _threshold_lengths(self) -> Collection[int]:
        """Lengths for which thresholds are declared."""
        if self.thresholds is None:
            return ()
        return (
            self.thresholds.fixed
            if isinstance(self.thresholds, FixedThresholds)
            else self.thresholds.adaptive
        )

    def proportions(self, length: int) -> tuple[float, ...]:
        """Return p_1 … p_R, the proportions of the noise scale, for R = `length`."""
        if isinstance(self.sigma, tuple):
            return self.sigma
        if self.sigma == "long":
            return tuple(1 / k for k in range(1, length + 1))
        if self.sigma == "short":
            return tuple(1 / (length - k + 1) for k in range(1, length + 1))
        if self.sigma == "singles":
            return (1.0, *(5.0 * (k - 1) for k in range(2, length + 1)))
        return (1.0,) * length
