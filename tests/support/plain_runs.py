"""Runs in the process of a test: the flow with the functions of its stages, without Prefect."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from marginweave.flows.prefect import records as prefect_records

_SERVED = ("shown_in_prefect", "announced")
_LISTENING = ("end_dead_attempts", "warn_of_exhaustion")


@contextmanager
def plain_flow() -> Iterator[Callable[..., Any]]:
    """`release(config, run, source, home)`, in whose stages no exception is turned into a state."""
    module = importlib.import_module("marginweave.flows.release")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "as_task", lambda function: function)
        for name in _SERVED:
            patch.setattr(module, name, lambda _: nullcontext())
        for name in _LISTENING:
            patch.setattr(module, name, lambda *_: None)
        patch.setattr(prefect_records, "announce", lambda *_, **__: None)
        yield module.release.fn


def run_plainly(home: Path, config: Path, run: str) -> Path:
    """The folder of a run that was made in this process."""
    with plain_flow() as release:
        release(str(config), run, None, str(home))
    return home / "runs" / run
