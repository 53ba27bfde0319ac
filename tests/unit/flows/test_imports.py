"""`importing`: what a command imports at its start, in little time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from importlib import import_module

import pytest

from marginweave.flows.prefect.environment import importing

# Prints which of the extras a first check has imported, in a process that had none of them.
FIRST_CHECK = """
import sys
import pyarrow
from marginweave.flows.prefect.environment import _EXTRAS, importing
with importing():
    from marginweave.schemas.contracts import Contract, load_libraries
    load_libraries()
import pandera.pandas as pa
contract = Contract.of("validate", {"n": pa.Column(pa.Int, nullable=True)})
assert contract.broken(pyarrow.table({"n": ["one"]}))
print([name for name in _EXTRAS if name in sys.modules])
"""


# Prints whether numpy had been imported when the environment of a command was set up, and what was set.
SETUP = """
import os, sys
from marginweave.flows.cli import app
app = sys.modules["marginweave.flows.cli.app"]
app._invoke = lambda: print("numpy" in sys.modules, os.environ["OPENBLAS_THREAD_TIMEOUT"]) or 0
app.main()
"""


def test_idle_threads_of_openblas_sleep_at_once() -> None:
    """It reads the variable when numpy is imported."""
    variables = {
        name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"
    }
    command = [sys.executable, "-P", "-c", SETUP]
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    assert done.stdout == "False 4\n"


def test_the_first_check_of_a_contract_imports_no_extra() -> None:
    command = [sys.executable, "-P", "-c", FIRST_CHECK]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[-2] == "[]"


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
