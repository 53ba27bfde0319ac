"""README.md, the guide and the tutorials run as they are written, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.support.command_line import CommandLine
from tests.support.notebooks import NOTEBOOKS, cells_of, page_of, run_notebook
from tests.support.pages_run import (
    README,
    REFERENCES,
    TUTORIALS,
    blocks_of,
    enter,
    page_blocks,
    run_page,
    run_shell,
)
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.system
READING = 200  # words a minute


def test_the_readme_from_top_to_bottom(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release that the shell makes is the one that Python finds: charged once."""
    enter(served, monkeypatch)
    names = run_page(README, CommandLine(served.home, served.environment))  # every line as typed
    assert [*names["records"].columns] == ["sex", "region", "age", "smokes", "diagnosis", "cost"]
    assert len(names["records"]) == 1000
    assert {*names["ages"].columns.get_level_values(0)} == {"no", "yes"}
    assert [path.name for path in (served.home / "runs").iterdir()] == [
        names["model"].release.statement.run
    ]


def test_the_readme_fits_its_first_screen() -> None:
    """Purpose, pictures, three lines of shell and three of Python."""
    head = README.read_text(encoding="utf-8").partition("\n## ")[0].splitlines()
    assert len(head) <= 30
    assert [
        len(block.text.split("\n")) - block.text.count("\n\n") - 1 for block in page_blocks(README)
    ] == [3, 3]
    pictures = sorted((REPOSITORY / "docs" / "pictures").iterdir())
    assert [path.name for path in pictures] == ["explore.png", "report.png"]
    assert all(
        path.stat().st_size < 60_000 and f"]({path.relative_to(REPOSITORY)})" in "\n".join(head)
        for path in pictures
    )


def test_the_example_is_what_its_script_makes() -> None:
    """A table that is made up, from a seed: its bytes are those of deployments/example_table.py."""
    made: dict[str, Any] = {
        "__name__": "example_table",
        "__file__": str(REPOSITORY / "deployments" / "example_table.py"),
    }
    exec((REPOSITORY / "deployments" / "example_table.py").read_text(encoding="utf-8"), made)
    pd.testing.assert_frame_equal(
        pd.read_csv(REPOSITORY / "src/marginweave/front/example/visits.csv"),
        made["visits"](),
        check_dtype=False,
    )


def test_an_example_opens_the_account_of_the_readme(marginweave: CommandLine) -> None:
    command = marginweave("example").stdout.partition("Next: ")[2].partition(",")[0]
    assert f"\n{command} " in README.read_text(encoding="utf-8")


def test_an_example_is_not_written_over(marginweave: CommandLine) -> None:
    (marginweave.home / "visits.yaml").write_text("mine")
    refused = marginweave("example")
    assert (refused.returncode, "visits.yaml exists already" in refused.stderr) == (2, True)
    assert (marginweave.home / "visits.yaml").read_text() == "mine"
    refused = marginweave("example", "--to", "nowhere")
    assert (refused.returncode, "must be a folder that exists" in refused.stderr) == (2, True)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_its_outputs(
    notebook: Path, served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each code cell has stored what it gives when it is run: the same kinds of output, with the same columns."""
    enter(served, monkeypatch)
    for cell in cells_of(notebook, "markdown"):
        for block in blocks_of("".join(cell["source"])):
            run_shell(served, block.text)
    stored, found = cells_of(notebook, "code"), run_notebook(notebook)
    assert len(stored) == len(found) > 0
    assert [cell["execution_count"] for cell in stored] == [*range(1, len(stored) + 1)]
    for cell, outputs in zip(stored, found, strict=True):
        assert (
            [_shape(output) for output in cell["outputs"]]
            == [_shape(output) for output in outputs]
            != []
        )
    text = notebook.read_text(encoding="utf-8")
    assert all(
        place not in text
        for place in (str(served.home), str(REPOSITORY), "/home/", "/root/", "/tmp/")
    )


def _shape(output: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Of an output what does not change with the noise: its kinds, and the headers of its table."""
    html = "".join(output.get("data", {}).get("text/html", []))
    return sorted(output.get("data", {"stream": ""})), re.findall(r"<th>([a-z_]+)</th>", html)


def _page(page: Path) -> object:
    return pytest.param(
        page,
        id=page.stem,
        marks=[pytest.mark.long] if "\n<!-- long -->" in page.read_text() else [],
    )


@pytest.mark.parametrize("page", [_page(page) for page in TUTORIALS])
def test_a_tutorial_from_top_to_bottom(
    page: Path, paged: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code holds its own assertions; the README has the installed program."""
    enter(paged, monkeypatch)
    run_page(page, paged)


@pytest.mark.parametrize("page", REFERENCES, ids=lambda page: page.stem)
def test_a_reference_from_top_to_bottom(
    page: Path, marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Prefect; what its blocks print is what the page shows, but for numbers."""
    enter(marginweave, monkeypatch)
    run_page(page, marginweave)


@pytest.mark.parametrize(
    ("shown", "agrees"), [("a 10.5 b", True), ("a 1", False), ("a 1 c", False), ("", False)]
)
@pytest.mark.parametrize("block", ["python\nprint('a  2 b')", "sh\necho 'a  2 b'"])
def test_what_a_page_shows_is_what_its_block_prints(
    block: str, shown: str, agrees: bool, alone: CommandLine, tmp_path: Path
) -> None:
    """Every word, and no number."""
    page = tmp_path / "page.md"
    page.write_text(f"```{block}\n```\n\n```text\n{shown}\n```\n")
    if agrees:
        run_page(page, alone)
    else:
        with pytest.raises(AssertionError):
            run_page(page, alone)


@pytest.mark.parametrize("page", [*TUTORIALS, *NOTEBOOKS], ids=lambda page: page.stem)
def test_a_tutorial_takes_less_than_ten_minutes(page: Path) -> None:
    """At 200 words a minute nine of them are for reading: the longest runs a quarter of a minute here."""
    text = page_of(page) if page.suffix == ".md" else "\n".join(_sources(page))
    assert len(text.split()) < 9 * READING


def _sources(notebook: Path) -> list[str]:
    """What a reader of a notebook reads, outputs apart."""
    return [
        "".join(cell["source"])
        for kind in ("markdown", "code")
        for cell in cells_of(notebook, kind)
    ]
