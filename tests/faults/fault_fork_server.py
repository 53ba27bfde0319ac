"""A process that has imported every library but nothing of ours, and forks a child an order: tests, with a fault or without.

Orders are JSON lines on standard input, answers JSON lines on standard output. Importing the libraries takes seconds, so it is
done once; each child imports the product anew, with its one fault.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.faults.fault import Fault
from tests.faults.overlay import Overlay
from tests.faults.verdicts import Verdicts

LIBRARIES = (
    "_pytest.assertion.rewrite", "cloudpickle", "dp_accounting.pld.privacy_loss_distribution", "jinja2", "mpmath", "numba",
    "numpy", "opendp.measurements", "pandas", "pandera.pyarrow", "pandera.pandas", "prefect", "prefect.artifacts",
    "prefect.states", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet", "pydantic", "scipy.stats", "scipy.optimize",
    "sqlalchemy", "yaml",
)  # fmt: skip
# Kills are to repeat: the same examples every time, and none is made smaller first.
EXAMPLES = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list[HealthCheck](HealthCheck),  # pyright: ignore[reportArgumentType] - its own metaclass
    report_multiple_bugs=False,
)
PYTEST = (
    "--disable-plugin-autoload", "-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider",
    "--hypothesis-profile=faults", "--quiet", "--tb=short",
)  # fmt: skip
# Where one of these is set, pytest lays out the whole difference of two lists, however long: minutes of a test that has failed.
OUT_OF_THE_WAY = ("BUILD_NUMBER", "CI")
LONGEST = 240  # seconds of work until a child that goes round in circles is ended, however busy the machine is


def main() -> None:
    """Warm up, then serve orders."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for name in OUT_OF_THE_WAY:
        os.environ.pop(name, None)
    for library in LIBRARIES:
        importlib.import_module(library)
    settings.register_profile("faults", EXAMPLES)
    gc.freeze()  # what is imported stays, and pytest collects garbage ten times at its end
    for line in sys.stdin:
        answers.write(json.dumps(_serve(json.loads(line))) + "\n")
        answers.flush()


def _serve(order: dict[str, Any]) -> dict[str, Any]:
    place = Path(order["place"])
    pid = os.fork()
    if pid == 0:
        _child(order, place)
    _, status = os.waitpid(pid, 0)
    answer = place / "answer.json"
    ended = os.waitstatus_to_exitcode(status)
    return json.loads(answer.read_text()) if ended == 0 else {"ended": ended}


def _child(order: dict[str, Any], place: Path) -> None:
    code = 97
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
        with (place / "log").open("w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            answer = _judge(order["fault"], order["tests"], place / "tests")
            (place / "answer.json").write_text(json.dumps(answer))
            code = 0
    except BaseException:
        traceback.print_exc()  # into the log
        raise
    finally:
        os._exit(code)


def _judge(fault: dict[str, Any] | None, tests: list[str], place: Path) -> dict[str, Any]:
    """How the tests end, and whether the module that they saw has the fault."""
    overlay = None if fault is None else Overlay(Fault(**fault))
    if overlay is not None:
        overlay.install()
    verdicts = Verdicts(tests)
    pytest.main([*PYTEST, f"--basetemp={place}", *tests], plugins=[verdicts])
    return {"planted": overlay is not None and overlay.is_imported, "ends": verdicts.ends}


if __name__ == "__main__":
    main()
