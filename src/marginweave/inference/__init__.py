"""Inference from a release alone: `regression`, `independence`, `analyse`, `synthetic_sets` and `combine`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marginweave.inference.analyses import Coefficients as Coefficients
    from marginweave.inference.analyses import analyse as analyse
    from marginweave.inference.analyses import combine as combine
    from marginweave.inference.analyses import independence as independence
    from marginweave.inference.analyses import regression as regression
    from marginweave.inference.analyses import synthetic_sets as synthetic_sets

__all__ = ["Coefficients", "analyse", "combine", "independence", "regression", "synthetic_sets"]


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that `query` answers without pandas."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("marginweave.inference.analyses"), name)
