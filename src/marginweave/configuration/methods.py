"""Sections of which there is one kind a method: which model reads `aggregate`, and which `synthesize`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from marginweave.configuration.k_tuples import AggregateSettings
from marginweave.configuration.marginals import MarginalSettings
from marginweave.configuration.synthesis import SYNTHESES, AnySynthesis


def method_of(value: Any, default: str) -> str:
    """The method that a section names; what is no mapping is refused by the default's model."""
    return str(value.get("method", default) if isinstance(value, dict) else getattr(value, "method", default))


def _known(*methods: str) -> Discriminator:
    """By the method that a section names; the first one is the default."""
    return Discriminator(
        lambda value: method if (method := method_of(value, methods[0])) in methods else None,
        custom_error_type="method",
        custom_error_message=f"must have method {', '.join(['auto', *methods[:-1]])} or {methods[-1]}",
    )


Aggregation = Annotated[
    Annotated[AggregateSettings, Tag("k-tuples")] | Annotated[MarginalSettings, Tag("marginals")],
    _known("k-tuples", "marginals"),
]
Synthesis = Annotated[AnySynthesis, _known(*(model.model_fields["method"].default for model in SYNTHESES))]
