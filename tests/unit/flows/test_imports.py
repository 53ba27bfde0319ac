"""`importing`: what a command imports at its start, in little time."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

import pytest

from marginweave.flows.prefect.environment import importing


def test_extras_look_as_if_they_were_not_installed_inside_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "httpx._main", raising=False)
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        with importing():
            assert not gc.isenabled()
            with pytest.raises(ImportError):
                import_module("httpx._main")
        assert import_module("httpx._main").main is not None
        assert gc.isenabled()
        assert gc.get_threshold()[0] > 700
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def test_an_extra_that_is_loaded_already_stays() -> None:
    loaded = import_module("hypothesis")
    thresholds = gc.get_threshold()
    try:
        with importing():
            assert import_module("hypothesis") is loaded
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
