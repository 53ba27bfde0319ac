"""Runs tests in a process that imports the product anew, with one fault in it or with none.

`python -m tests.faults.judge` reads an order as JSON from standard input and writes how the tests ended to its last line.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.faults.fault import Fault
from tests.faults.overlay import Overlay
from tests.faults.verdicts import Verdicts

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
# seconds of work until a child that goes round in circles is ended, however busy the machine is
LONGEST = 240


def main() -> None:
    """Do the order, and say how the tests ended."""
    for name in OUT_OF_THE_WAY:
        os.environ.pop(name, None)
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
    settings.register_profile("faults", EXAMPLES)
    order = json.load(sys.stdin)
    answer = _judge(order["fault"], order["tests"], Path(order["place"]))
    sys.stdout.write(f"\n{json.dumps(answer)}\n")


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
