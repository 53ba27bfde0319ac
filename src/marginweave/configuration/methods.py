"""Sections whose model depends on their method: `aggregate` and `synthesize`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Tag

from marginweave.configuration.k_tuples import AggregateSettings
from marginweave.configuration.marginals import MarginalSettings
from marginweave.configuration.synthesis import SYNTHESES, AnySynthesis

METHOD_ERROR = "method"
"""Type of pydantic's error for a method that there is not; its message begins with "must"."""


def method_of(value: Any, default: str) -> str:
    """Return the method that a section names, or the default; the model of the default refuses a section of another type."""
    method = (
        value.get("method", default)
        if isinstance(value, dict)
        else getattr(value, "method", default)
    )
    return str(method)


def _by_method(*methods: str) -> Discriminator:
    """Return a discriminator by the method that a section names; the first method is the default."""

    def method_or_none(value: Any) -> str | None:
        method = method_of(value, methods[0])
        return method if method in methods else None

    *names, last = ("auto", *methods)
    message = f"must have method {', '.join(names)} or {last}"
    return Discriminator(
        method_or_none, custom_error_type=METHOD_ERROR, custom_error_message=message
    )


Aggregation = Annotated[
    Annotated[AggregateSettings, Tag("k-tuples")] | Annotated[MarginalSettings, Tag("marginals")],
    _by_method("k-tuples", "marginals"),
]
_SYNTHESIS_METHODS = [model.model_fields["method"].default for model in SYNTHESES]
Synthesis = Annotated[AnySynthesis, _by_method(*_SYNTHESIS_METHODS)]
