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
    """Load the public names when they are asked for: Prefect takes more than a second, and --help does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'release' if name == 'release' else 'notebook'}"), name)


class _Package(ModuleType):
    """This package: `release` is the flow, whoever imports the submodule of the same name, and whenever."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.release if name == "release" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
