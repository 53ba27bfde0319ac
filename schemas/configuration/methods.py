"""Which model reads the sections `aggregate` and `synthesize`: the one of the method that they name."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from marginweave.schemas.configuration.k_tuples import AggregateSettings
from marginweave.schemas.configuration.marginals import MarginalSettings
from marginweave.schemas.configuration.synthesis import SYNTHESES, AnySynthesis


def method_of(value: Any, default: str) -> str:
    """The method that a section names; what is no mapping is refused by the default's model."""
    found = value.get("method", default) if isinstance(value, dict) else getattr(value, "method", default)
    return str(found)


def _known(default: str, *others: str, resolved: tuple[str, ...] = ()) -> Discriminator:
    methods, named = (default, *others), (*resolved, default, *others)
    return Discriminator(
        lambda value: method if (method := method_of(value, default)) in methods else None,
        custom_error_type="method",
        custom_error_message=f"must have method {', '.join(named[:-1])} or {named[-1]}",
    )


Aggregation = Annotated[
    Annotated[AggregateSettings, Tag("k-tuples")] | Annotated[MarginalSettings, Tag("marginals")],
    _known("k-tuples", "marginals", resolved=("auto",)),
]
Synthesis = Annotated[
    AnySynthesis, _known(*(model.model_fields["method"].default for model in SYNTHESES), resolved=("auto",))
]
