"""Marginweave: differentially private counts of attribute combinations, and synthetic records made from them.

import marginweave as mw

model = mw.Synthesizer(mw.Configuration.from_yaml("visits.yaml")).fit(frame)
records = model.sample(1000)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marginweave.base import errors as errors
    from marginweave.flows.notebook import Synthesizer as Synthesizer
    from marginweave.front.comparison import compare as compare
    from marginweave.front.configuration import Configuration as Configuration
    from marginweave.front.configuration import Privacy as Privacy
    from marginweave.front.configuration import category as category
    from marginweave.front.configuration import date as date
    from marginweave.front.configuration import number as number
    from marginweave.front.configuration import person as person
    from marginweave.front.ledger import Ledger as Ledger
    from marginweave.inference.opened import Release as Release

    __version__: str

# Where each public name is; a module is loaded when a name of it is asked for.
_MODULES = {
    **dict.fromkeys(
        ("Configuration", "Privacy", "category", "date", "number", "person"), "front.configuration"
    ),
    "Ledger": "front.ledger",
    "Release": "inference.opened",
    "Synthesizer": "flows.notebook",
    "compare": "front.comparison",
    "errors": "base.errors",
}
__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604 - the names above


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("marginweave")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name, module)  # or the module itself


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
