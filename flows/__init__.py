"""Whole runs: `release(config)` and, for a notebook, `Synthesizer(config).fit(frame).sample(n)`."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .notebook import Synthesizer
    from .release import release

__all__ = ["Synthesizer", "release"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: Prefect takes more than a second, and --help does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    submodule = "release" if name == "release" else "notebook"
    return getattr(import_module(f"{__name__}.{submodule}"), name)


class _Package(ModuleType):
    """The class of this package: keeps `release` the flow, also after an import of the submodule of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "release" and isinstance(value, ModuleType):
            value = value.release
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
