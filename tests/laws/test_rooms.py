"""The listing is the diagram: no circle between modules or rooms, and the page shows the house as it is."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from tests.support.rooms import BLOCK, PAGE, drawing, floors, import_graph, imports_of_rooms


def test_no_circle_is_between_modules() -> None:
    """Also not under TYPE_CHECKING, nor by an import inside a function."""
    graph = import_graph()
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()


def test_rooms_stand_on_floors() -> None:
    rooms = floors(imports_of_rooms(import_graph()))
    assert sum(map(len, rooms)) > 30


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        floors({"one": {"other"}, "other": {"third"}, "third": {"one"}})


def test_the_page_shows_the_house_as_it_is() -> None:
    """Mend it with `python -m tests.support.rooms`."""
    shown = BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert shown is not None
    assert shown[0].splitlines() == drawing().splitlines()
