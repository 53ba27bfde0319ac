"""Whole runs: `release(config)` and, for a notebook, `Synthesizer(config).fit(frame).sample(n)`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marginweave.flows.notebook import Synthesizer
    from marginweave.flows.release import release

__all__ = ["Synthesizer", "release"]


def __getattr__(name: str) -> Any:
    """Load the public names when they are asked for: Prefect takes more than a second, and --help does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    flow, notebook = (import_module(f"{__name__}.{module}") for module in ("release", "notebook"))
    # Importing the submodule has put it in the place of the flow of the same name.
    globals().update(Synthesizer=notebook.Synthesizer, release=flow.release)
    return globals()[name]
