"""Order of the tests, and profiles of the property tests: `--hypothesis-profile=long` looks much longer."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.places import in_memory

# A law that fails says what it compared, in the modules of `tests/support` that have laws, too.
pytest.register_assert_rewrite(
    *(f"tests.support.{name}_tests" for name in ("ledger", "engine", "source"))
)

# Ledgers and Prefect's databases wait for the disk at each commit: a third of their tests' time.
if memory := in_memory():
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    tempfile.tempdir = str(memory)

# Pandera imports hypothesis where it is installed, whose plugins import trio and pytest into every process of ours.
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

# Where CI is set a run repeats exactly; everywhere else each one looks at new examples.
settings.register_profile("default", deadline=None, derandomize="CI" in os.environ, max_examples=20)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile("default")


# What a property test says of its number of examples is for `make test`: times as many where there is time, or where a
# planted fault must be found by the same examples every time.
MORE_EXAMPLES = {"long": 10, "faults": 4}

# Files that take minutes begin first, so that no worker is left alone with one at the end; that of the faults works where
# system tests wait.
LONGEST = (
    "test_production",
    "test_gate",
    "test_kills",
    "test_release",
    "test_tutorials",
    "test_marginals",
    "test_approval",
)
FOLDERS = ("faults", "system", "audit", "laws", "unit")
TESTS = Path(__file__).parent


def _turn(item: pytest.Item) -> tuple[int, int]:
    """When an item's file begins: the longest ones in their order, then folder by folder."""
    if item.path.stem in LONGEST:
        return -1, LONGEST.index(item.path.stem)
    return FOLDERS.index(item.path.relative_to(TESTS).parts[0]), 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    factor = MORE_EXAMPLES.get(settings.get_current_profile_name(), 1)
    tests: set[Any] = {getattr(item, "obj", None) for item in items} if factor > 1 else set()
    for test in tests:
        given = getattr(test, "_hypothesis_internal_use_settings", None)  # there is no public way
        if given is not None:
            more = settings(given, max_examples=factor * given.max_examples)
            test._hypothesis_internal_use_settings = more


# what is imported and collected stays: to look for garbage there takes a twentieth of the time
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The cores, and two more where there are system tests, which wait for servers, locks and sleeps."""
    waiting = any(not {"unit", "laws"} & set(Path(argument).parts) for argument in config.args)
    return len(os.sched_getaffinity(0)) + 2 * waiting


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills", type=int, default=20, help="random kills in tests/system/test_kills.py"
    )
    parser.addoption(
        "--write-outcomes",
        action="store_true",
        help="write the table of tests/system/test_outcomes.py anew",
    )
    parser.addoption("--kills-file", help="keeps how many of them are done, and is gone on with")


@pytest.hookimpl(trylast=True)  # once nothing is captured any more
def pytest_internalerror(excrepr: object) -> None:
    """An error of pytest itself, in a worker: its end first, for the main process tells of it from its beginning."""
    sys.stderr.write("\n".join(["", *str(excrepr).splitlines()[-12:], ""]))


def _longest_first(seconds: Mapping[Path, float]) -> list[tuple[Path, float]]:
    return sorted(seconds.items(), key=lambda pair: -pair[1])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which areas took how long, the longest first: a folder of tests, and the slowest file in it.

    Seconds of all workers together, fixtures included.
    """
    seconds_of_file: defaultdict[Path, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds_of_file[Path(report.nodeid.partition("::")[0])] += report.duration
    seconds_of_area: defaultdict[Path, float] = defaultdict(float)
    slowest_file: dict[Path, Path] = {}
    for file, seconds in _longest_first(seconds_of_file):
        seconds_of_area[file.parent] += seconds
        slowest_file.setdefault(file.parent, file)
    if len(seconds_of_area) < 2:
        return
    terminalreporter.section("seconds by area")
    for area, seconds in _longest_first(seconds_of_area):
        slowest = slowest_file[area]
        terminalreporter.write_line(
            f"{seconds:7.0f}  {area}, {slowest.name} {seconds_of_file[slowest]:.0f}"
        )
