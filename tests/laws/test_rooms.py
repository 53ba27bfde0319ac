"""The listing is the diagram: no circle between modules or rooms, and the page shows the house as it is."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.one_tree import module_of, unpacked_wheel
from tests.support.rooms import (
    BLOCK,
    PAGE,
    drawing,
    floors,
    imports_of_modules,
    imports_of_rooms,
    is_ours,
    room_of,
    rooms_that_know,
)

# A library, and the rooms that may know it.
MAY_KNOW = {
    "prefect": {"flows"},
    "typer": {"flows"},
    "rich": {"flows", "runs"},
    "pandera": {"schemas"},
    "great_expectations": {"schemas"},
    "pandas": {"schemas", "front", "inference", "forecast", "runs", "flows"},
    "sqlalchemy": {"ledger"},
    "sqlite3": {"ledger"},
    "opendp": {"mechanisms"},
    "numba": {"base"},
    "distributed": {"counts"},
    "jinja2": {"publish"},
    "prometheus_client": {"runs"},
}


def test_no_circle_is_between_modules() -> None:
    """Also not under TYPE_CHECKING, nor by an import inside a function."""
    TopologicalSorter(imports_of_modules()).prepare()


def test_rooms_stand_on_floors() -> None:
    rooms = floors(imports_of_rooms(imports_of_modules()))
    assert sum(map(len, rooms)) > 30


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        floors({"one": {"other"}, "other": {"third"}, "third": {"one"}})


@pytest.mark.parametrize("library", MAY_KNOW)
def test_a_library_is_known_where_it_is_needed(library: str) -> None:
    """Nobody else knows it, and what is listed is true."""
    assert rooms_that_know(library) == MAY_KNOW[library]


def test_rows_go_from_stage_to_stage_without_frames() -> None:
    """A frame is what a contract or a suite looks at, or what a script gives and is given."""
    for_scripts = {"front", "inference", "forecast"}
    texts = {
        file.relative_to(unpacked_wheel()): file.read_text("utf-8")
        for file in unpacked_wheel().rglob("*.py")
    }
    converts = {module_of(file.as_posix()) for file, text in texts.items() if ".to_pandas(" in text}
    knows = converts | {
        module for module, names in imports_of_modules().items() if "pandas" in names
    }
    assert {module for module in knows if room_of(module) not in for_scripts} == {
        "marginweave.flows.notebook",
        "marginweave.runs.frame_cells",
        "marginweave.runs.frames",
        "marginweave.schemas.contracts",
        "marginweave.schemas.expectations",
    }


def test_importing_runs_nothing_and_needs_no_prefect() -> None:
    """Who imports all of the library and all of the stages has imported neither Prefect nor the command line.

    Whatever stands on that line: nothing is parsed, said or made by it.
    """
    modules = sorted(
        name for name in imports_of_modules() if not name.startswith("marginweave.flows")
    )
    assert len(modules) > 300
    assert all(map(is_ours, modules))
    program = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'prefect', 'typer'})"
    )
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        program,
        "--epsilon",
        "nonsense",
        "--no-such-option",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\n", "")


def test_the_page_shows_the_house_as_it_is() -> None:
    """Mend it with `python -m tests.support.rooms`."""
    shown = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert shown is not None
    assert shown[0].splitlines() == drawing().splitlines()
