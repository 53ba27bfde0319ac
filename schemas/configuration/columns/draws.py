"""How a synthetic value is chosen inside the bin that was released."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, model_validator

from marginweave.schemas.configuration.numbers import FROZEN, to_number


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of numbers")
    return tuple(to_number(item) for item in value)


Numbers = Annotated[tuple[float, ...], BeforeValidator(_numbers)]


class Histogram(BaseModel):
    """A public distribution, known from elsewhere: `weights[i]` lies evenly on [edges[i], edges[i+1]).

    Inside a bin a value is drawn in proportion to it; where it has no weight, evenly.
    """

    model_config = FROZEN
    edges: Numbers
    weights: Numbers

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.edges) != len(self.weights) + 1 or not self.weights:
            raise ValueError("must have one edge more than weights, and one weight at least")
        if any(low >= high for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("must have increasing edges")
        if min(self.weights) < 0 or sum(self.weights) <= 0:
            raise ValueError("must have weights that are not negative, and not all 0")
        return self


def _draw(value: Any) -> Any:
    if isinstance(value, Histogram) or value in ("uniform", "midpoint", None):
        return value
    if isinstance(value, dict):
        return Histogram.model_validate(value)
    raise ValueError("must be uniform, midpoint or a public distribution {edges: …, weights: …}")


Draw = Annotated[Literal["uniform", "midpoint"] | Histogram | None, BeforeValidator(_draw)]
