"""Ways of leaking that no single stage owns: retries, logs, state that outlives a call, work done cell by cell.

`docs/leaks.md` says which leak each of these tests, and those of the stages, forbid.
"""

from __future__ import annotations

import ast
import itertools
import pkgutil
import sys
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import marginweave.tasks
from marginweave.configuration.synthesis import GumSynthesis
from marginweave.counts.marginals import count_marginals
from marginweave.estimate.consistency import make_consistent
from marginweave.flows.release import as_task
from marginweave.measurements.marginals import measure_marginals
from marginweave.mechanisms.randomness import fresh_bits
from tests.support.draws import GAUSSIAN
from tests.support.places import REPOSITORY
from tests.support.prose import modules as modules_of_product
from tests.support.stages import is_stage
from tests.support.syntax import nodes
from tests.support.synthesized import synthesize_gum

PRODUCT = modules_of_product()


def modules() -> list[str]:
    """All modules of the stages."""
    return [
        module.name
        for module in pkgutil.walk_packages(marginweave.tasks.__path__, "marginweave.tasks.")
    ]


def stages() -> dict[str, Callable[..., Any]]:
    """Every stage, by the name of its function."""
    found = (vars(import_module(name)).values() for name in modules())
    return {item.__name__: item for item in itertools.chain.from_iterable(found) if is_stage(item)}


def test_only_stages_that_draw_nothing_are_tried_again() -> None:
    """Of all stages that there are, those that read the source and write files alone; none keeps a result anywhere."""
    every = {name: as_task(function) for name, function in stages().items()}
    assert len(every) >= 15
    assert {name for name, stage in every.items() if stage.retries} == {
        "validate",
        "publish",
        "report_internally",
    }
    assert not any(stage.persist_result or stage.log_prints for stage in every.values())
    assert {type(stage.cache_policy).__name__ for stage in every.values()} == {"_None"}


SPEAKS = {
    "debug",
    "info",
    "warning",
    "warn",
    "exception",
    "critical",
    "get_run_logger",
    "get_logger",
}


# The command line answers on a console of rich, which prints; `runs` reports progress; `verify` has a program for auditors.
ANSWERS = {"flows", "runs", "verify"}


def room_of_file(path: Path) -> str:
    """The folder of `src/marginweave` or of the repository that a file is in."""
    return (
        path.relative_to(REPOSITORY).as_posix().removeprefix("src/marginweave/").partition("/")[0]
    )


def test_nothing_is_logged_or_printed() -> None:
    """No line of ours goes to a log, standard output or a warning: what is told goes through reporters and errors."""
    found = set()
    for path in PRODUCT:
        # handed on is as good as called
        names = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)}
        names |= {
            getattr(node.func, "id", "") for node in nodes(path) if isinstance(node, ast.Call)
        }
        spoken = SPEAKS if room_of_file(path) in ANSWERS else SPEAKS | {"print", "stderr", "stdout"}
        found |= {(str(path.relative_to(REPOSITORY)), name) for name in names & spoken}
    # names of stages and draws, and seconds, for Prefect's log of a flow run
    reporter = {
        ("flows/prefect/reporting.py", "info"),
        ("flows/prefect/reporting.py", "get_run_logger"),
    }
    # who samples from a released folder in Python, without its model, is told so: nothing but the folder is named
    # sets of records warn where they cover no population, and name columns
    # whoever drafts from a frame is warned that its index is left out: the names of columns are public
    warned = {
        ("src/marginweave/inference/opened.py", "warn"),
        ("src/marginweave/inference/analyses.py", "warn"),
        ("src/marginweave/front/configuration.py", "warn"),
    }
    assert found == reporter | warned


# Rooms of pydantic models, whose defaults are copied.
MODELS = {"configuration", "released", "measurements", "accounting", "base"}


def _can_change(value: ast.expr | None) -> bool:
    displays = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    makers = {"list", "dict", "set", "defaultdict", "Counter", "deque", "bytearray"}
    return isinstance(value, displays) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makers
    )


def test_no_class_holds_what_a_run_could_change() -> None:
    """What one run leaves in a class the next would find: no list, mapping or set, but the defaults that pydantic copies."""
    found = set()
    for path in PRODUCT:
        kinds = ast.Assign if room_of_file(path) in MODELS else ast.Assign | ast.AnnAssign
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                found |= {
                    node.name
                    for child in node.body
                    if isinstance(child, kinds) and _can_change(child.value)
                }
    assert found == set()


LIBRARIES = {"numpy", "pandas", "pyarrow", "pyarrow.compute", "pyarrow.parquet"}


def test_what_is_asked_of_libraries_is_there() -> None:
    """Every name below numpy, pandas and pyarrow that the code has: a path that no test takes cannot fail by a removed one."""
    absent = set()
    for path in PRODUCT:
        imports = (
            alias for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names
        )
        known = {
            alias.asname or alias.name: import_module(alias.name)
            for alias in imports
            if alias.name in LIBRARIES
        }
        for node in nodes(path):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in known
            ):
                library = known[node.value.id]
                if not hasattr(library, node.attr):
                    absent.add(f"{path.name}: {library.__name__}.{node.attr}")
    assert absent == set()


def lines_run(work: Callable[[], Any]) -> int:
    """How many lines of Python `work` runs."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def marginals_work(sizes: tuple[int, ...]) -> Callable[[], Any]:
    """Counting, noise, consistency and records of two pairs over attributes of these sizes.

    Of few records: the first ones are drawn group by group, of which there may be as many as records.
    """
    rng = np.random.default_rng(1)
    codes = [rng.integers(0, size, 300) for size in sizes]
    pairs = [(0, 1), (1, 2)]

    def work() -> None:
        exact = count_marginals([codes], sizes, pairs)
        noisy = list(measure_marginals(GAUSSIAN, exact, pairs, [Fraction(3)] * 2, fresh_bits()))
        synthesize_gum(list(make_consistent(noisy, rounds=1)), sizes, 6, GumSynthesis(rounds=1))

    return work


def test_no_step_goes_through_a_domain_cell_by_cell() -> None:
    """Marginals of 120,000 cells take as many lines of Python as those of 12, up to a half more: a loop takes 10,000 times."""
    small, large = marginals_work((3, 4, 3)), marginals_work((300, 400, 300))
    small()  # tables of noise and compiled code are made once
    assert lines_run(large) <= 1.5 * lines_run(small)
