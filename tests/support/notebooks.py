"""Notebooks run without a kernel: python -m tests.support.notebooks NOTEBOOK FOLDER runs one and stores its outputs.

The code cells run in one namespace, with FOLDER as working directory. What a cell prints and the value of its last
expression become its outputs, as a kernel stores them.
"""

from __future__ import annotations

import ast
import io
import json
import os
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from runpy import run_path
from typing import Any

from tests.support.places import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "docs").glob("**/*.ipynb"))
Cell = dict[str, Any]


def page_of(path: Path) -> str:
    """The text of a page: of a notebook as the site has it (docs/notebooks.py)."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    text: str = run_path(str(REPOSITORY / "docs" / "notebooks.py"))["page_of"](path)
    return text


def cells_of(notebook: Path, kind: str) -> list[Cell]:
    """Its cells of a kind: code or markdown."""
    return [
        cell
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == kind
    ]


def outputs_of(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a kernel would store for a cell that it runs as its cell `number`."""
    tree, last, printed, value = ast.parse(source), None, io.StringIO(), None
    if tree.body and isinstance(end := tree.body[-1], ast.Expr):
        last = ast.Expression(end.value)
        tree.body.pop()
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(last, f"cell {number}", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append(
            {
                "name": "stdout",
                "output_type": "stream",
                "text": printed.getvalue().splitlines(keepends=True),
            }
        )
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        found.append(
            {
                "data": data,
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return found


def run_notebook(notebook: Path) -> list[list[dict[str, Any]]]:
    """The outputs of all code cells, run from top to bottom where we are."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = enumerate(cells_of(notebook, "code"), 1)
    return [outputs_of("".join(cell["source"]), names, number) for number, cell in cells]


def store(notebook: Path, folder: Path) -> None:
    """Run a notebook in a folder and store its outputs."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    with chdir(folder):
        found = run_notebook(notebook)
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, found, strict=True), 1):
        cell.update(execution_count=number, outputs=outputs)
    notebook.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "100")
    store(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
