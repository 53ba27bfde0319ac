"""Syntax trees of source files, each parsed and walked once a process: many laws read all files."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's tree, as `ast.walk` comes to them.

    They stay, and are kept from the garbage collector, which took as long as all parsing.
    """
    gc.disable()
    try:
        walked = tuple(ast.walk(tree(path)))
        gc.freeze()
    finally:
        gc.enable()
    return walked


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of a file's functions and methods."""
    return frozenset(node.name for node in nodes(path) if isinstance(node, ast.FunctionDef))
