"""The machine that measures, without its name."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil

LIBRARIES = ("numpy", "numba", "pyarrow", "prefect")


def machine() -> dict[str, str]:
    """Processor, memory, system and versions."""
    cores = len(os.sched_getaffinity(0))
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return {
        "processor": f"{_processor()}, {cores} cores",
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "versions": f"marginweave {version('marginweave')}, {libraries}",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
