"""Tests that a page names: whether they are there, and run whenever `make test` does."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.support.places import REPOSITORY

_AWAY = {"skip", "skipif", "xfail", "long"}


@cache
def _tree(file: Path) -> ast.Module | None:
    return ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else None


def why_not_living(named: str, repository: Path = REPOSITORY) -> str | None:
    """What is wrong with the test `file::function`: it is absent, may be skipped, or is a long one. None where it lives."""
    file, _, name = named.partition("::")
    tree = _tree(repository / file)
    if tree is None:
        return "there is no such file"
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found or not name.startswith("test_"):
        return "there is no such test"
    marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
    ]
    away = {
        node.attr
        for place in [*found[0].decorator_list, *marks]
        for node in ast.walk(place)
        if isinstance(node, ast.Attribute) and node.attr in _AWAY
    }
    away |= {
        node.func.attr
        for node in ast.walk(found[0])
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"skip", "importorskip", "xfail"}
    }
    return f"it may be left out: {', '.join(sorted(away))}" if away else None
