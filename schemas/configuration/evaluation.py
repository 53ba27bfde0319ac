"""What is compared after a release: settings of `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from marginweave.schemas.configuration.attributes import Attribute
from marginweave.schemas.configuration.columns import Category, Column, Texts
from marginweave.schemas.configuration.values import FrozenModel, OpenFraction, PositiveWhole

LONGEST_PAID = 3


class PaidSettings(FrozenModel):
    """A releasable comparison with the sensitive table: the mean count error of all marginals of `length` attributes.

    It has the `share` of the accountant's budget (of mu² by default), and is one planned draw like the counts.
    """

    share: OpenFraction
    length: Annotated[PositiveWhole, Field(le=LONGEST_PAID)] = 2


class EvaluationSettings(FrozenModel):
    """`internal` also compares with the sensitive table; the result never leaves `internal/`.

    `paid` buys a comparison that may leave, from the budget; nothing is bought without it.
    `target` is a column, or a group, that a classifier predicts from all others in the internal evaluation. `ordered` are
    categories whose values are declared in their order: rank correlations take them in, beside numbers and dates.
    """

    internal: bool = False
    paid: PaidSettings | None = None
    target: str | None = None
    ordered: Texts | None = None

    @property
    def paid_share(self) -> float:
        """The share of the budget that buys the comparison; 0 where nothing is bought."""
        return 0.0 if self.paid is None else self.paid.share


def check_evaluation(
    settings: EvaluationSettings,
    attributes: Sequence[Attribute],
    columns: Mapping[str, Column],
    split: Literal["shares", "sds"],
) -> None:
    """Refuse what cannot be bought, a target that cannot be predicted and an order that is not declared; raises ValueError."""
    single = [attribute.name for attribute in attributes if not attribute.is_set]
    if settings.paid is not None:
        _check_paid(settings.paid, len(single), split)
    if settings.target is not None and settings.target not in single:
        raise ValueError(
            f"evaluate.target ({settings.target!r}) must be a counted column with one value a cell, or a group"
        )
    if len(set(settings.ordered or ())) < len(settings.ordered or ()):
        raise ValueError("evaluate.ordered names a column twice")
    for name in settings.ordered or ():
        column = columns.get(name)
        if name not in single or not isinstance(column, Category) or column.private:
            raise ValueError(f"evaluate.ordered names {name!r}, which must be a counted category with public values")


def _check_paid(paid: PaidSettings, attributes: int, split: Literal["shares", "sds"]) -> None:
    if split == "sds":
        raise ValueError("evaluate.paid needs aggregate.split: shares: SDS's printed split does not know it")
    if paid.length > attributes:
        raise ValueError(
            f"evaluate.paid.length ({paid.length}) must be at most the number of counted columns and groups with one value a "
            f"cell ({attributes})"
        )


def ordered_attributes(
    settings: EvaluationSettings, attributes: Sequence[Attribute], columns: Mapping[str, Column]
) -> tuple[int, ...]:
    """Places of the attributes whose labels stand in the order of their values: numbers, dates, and what is declared so.

    Weekdays go round and have no order.
    """
    return tuple(
        place
        for place, attribute in enumerate(attributes)
        if attribute.name in (settings.ordered or ()) or (attribute.name in columns and columns[attribute.name].ordered)
    )
