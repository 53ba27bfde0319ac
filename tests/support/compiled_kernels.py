"""Kernels that numba has compiled in this checkout, brought along to another copy of the same sources."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.places import REPOSITORY

LIBRARY = REPOSITORY / "src" / "marginweave"


def keep_compiled(package: Path) -> None:
    """Copy compiled kernels into `package`, an installed marginweave, where all their sources are the same there.

    Numba knows a kernel by size and time of its source alone, and a kernel may have others inlined: one source that differs,
    and all are compiled anew.
    """
    compiled = {index: _source(index) for index in LIBRARY.glob("**/__pycache__/*.nb[ic]")}
    if not all(
        _same(source, package / source.relative_to(LIBRARY)) for source in set(compiled.values())
    ):
        return
    for index, source in compiled.items():
        copy = package / source.relative_to(LIBRARY)
        cache = copy.parent / "__pycache__"
        cache.mkdir(exist_ok=True)
        shutil.copy(index, cache)
        times = source.stat()
        os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))


def _source(index: Path) -> Path:
    return index.parents[1] / f"{index.name.partition('.')[0]}.py"


def _same(source: Path, copy: Path) -> bool:
    return source.is_file() and copy.is_file() and source.read_bytes() == copy.read_bytes()
