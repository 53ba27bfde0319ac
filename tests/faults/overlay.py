"""Imports one module of the product with a fault in it; every other one, and every file, stays as it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from tests.faults.fault import Fault
from tests.support.places import REPOSITORY


class Overlay(SourceFileLoader):
    """Finds and loads the module of `fault`, from its shipped source with the fault in it and never from a `.pyc`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.module, str(REPOSITORY / fault.file))
        self._source = fault.planted()
        self._loaded: CodeType | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the one module; it must be the one that is imported without the overlay, from this repository."""
        if name != self.name:
            return None
        shipped = PathFinder.find_spec(name, path)
        assert shipped is not None, f"{name} is not there"
        assert shipped.origin is not None, f"{name} is no file"
        assert Path(shipped.origin).samefile(self.path), (
            f"{name} is imported from {shipped.origin}, not {self.path}"
        )
        return spec_from_file_location(name, self.path, loader=self)

    def get_code(self, _: str) -> CodeType:  # pyright: ignore[reportIncompatibleMethodOverride] - by place
        """The compiled source, with the fault."""
        self._loaded = self.source_to_code(self._source.encode(), self.path)
        return self._loaded

    def install(self) -> None:
        """Stand before every other finder, while nothing of the product is imported."""
        early = [name for name in sys.modules if name.partition(".")[0] == "marginweave"]
        assert not early, f"{early} were imported before the fault was planted"
        sys.meta_path.insert(0, self)

    @property
    def is_imported(self) -> bool:
        """Whether the module that tests have seen is the one with the fault."""
        module = sys.modules.get(self.name)
        return self._loaded is not None and module is not None and module.__loader__ is self
