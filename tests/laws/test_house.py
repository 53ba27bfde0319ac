"""Rules of the house that no linter knows: where randomness may come from, what a wheel holds, how long a function is."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.one_tree import tracked_files, unpacked_wheel
from tests.support.places import REPOSITORY
from tests.support.prose import modules
from tests.support.syntax import nodes
from tests.support.versions import SMOKE

PRODUCT = modules()
# What a script imports: a public class may have the name of what is behind it.
PUBLIC = [path for path in PRODUCT if path.parent.name == "front" or path.name == "analyses.py"]
# Rooms of the library and stages, in whose files no seeded generator may be.
SEES_PRIVATE_ROWS = {
    *(
        "base",
        "sources",
        "drafts",
        "prepare",
        "columns",
        "counts",
        "draws",
        "mechanisms",
        "ledger",
        "checkpoints",
    ),
    *("validate", "preprocess", "encode", "budget", "aggregate", "internal"),
}
TEXTS = {path: path.read_text(encoding="utf-8") for path in PRODUCT}
LONGEST = 44
"""Lines of code of a function's body."""
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@cache
def code_lines(path: Path) -> frozenset[int]:
    """The numbers of the lines that have code: no blanks, comments or docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(TEXTS[path]).readline)
    lines = {
        line for t in tokens if t.type not in NO_CODE for line in range(t.start[0], t.end[0] + 1)
    }
    for node in nodes(path):
        documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if documented and ast.get_docstring(node) is not None:
            lines -= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    return frozenset(lines)


def relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_generators_stand_in_post_processing_only_and_say_so() -> None:
    """No numpy or Python generator near a private value; elsewhere the line carries its reason."""
    generator = re.compile(
        r"default_rng|np\.random|numpy\.random|^import random|^from random|random\.seed"
    )
    lines = [
        (path, line)
        for path, text in TEXTS.items()
        for line in text.splitlines()
        if generator.search(line)
    ]
    assert len(lines) > 5
    for path, line in lines:
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        places = {*parts[:-1], *(parts if parts[0] == "tasks" else ())}
        assert SEES_PRIVATE_ROWS.isdisjoint(places), line
        assert "# post-processing" in line or "np.random.Generator" in line, line


def test_a_class_has_a_name_of_its_own() -> None:
    """But the few public ones, which may have the name of what stands behind them."""
    for paths in ([path for path in PRODUCT if path not in PUBLIC], PUBLIC):
        names = [
            node.name for path in paths for node in nodes(path) if isinstance(node, ast.ClassDef)
        ]
        assert [name for name, times in Counter(names).items() if times > 1] == []


def unreadable(path: Path) -> list[str]:
    """What stops a reader of a file: a function whose body has over 44 lines of code, pickle, something left open."""
    found = re.findall(r"TODO|FIXME|XXX|NotImplementedError", TEXTS[path])
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # An option of a command has several lines, and is none of what the function does.
            lines = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
            if len(lines) > LONGEST and len(code_lines(path).intersection(lines)) > LONGEST:
                found.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            found += [
                name for name in names if name.split(".")[0] in {"pickle", "joblib", "random"}
            ]
    return found


def test_files_can_be_read() -> None:
    assert {relative(path): found for path in PRODUCT if (found := unreadable(path))} == {}


def test_noise_meets_counts_in_one_module() -> None:
    """The noise table is used by mechanisms, by what draws zero cells for them, and by thresholds alone."""
    needle = re.compile(r"^from \S*noise_table import (\([^)]*|.*)\bnoise_table\b", re.MULTILINE)
    users = {relative(path) for path, text in TEXTS.items() if needle.search(text)}
    assert users == {
        "src/marginweave/mechanisms/gaussian.py",
        "src/marginweave/measurements/thresholds.py",
        "src/marginweave/mechanisms/zero_cells.py",
    }


def test_the_wheel_holds_what_is_tracked() -> None:
    """Every tracked file of the library and of the three folders is in the wheel under marginweave/, and nothing else is."""
    tree = unpacked_wheel()
    files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    assert {file for file in files if ".dist-info/" not in file} == tracked_files()


def test_a_wheel_and_a_checkout_are_the_same_program() -> None:
    """The digest counts each file once, wherever the packages lie."""
    program = (
        "import marginweave.flows\n"
        "from marginweave.draws.program import program_identity\n"
        "print(program_identity().digest, marginweave.flows.__file__)"
    )
    digests, places = set(), set()
    for path in ("", str(unpacked_wheel())):
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-P", "-c", program]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        digest, place = done.stdout.split()
        digests.add(digest)
        places.add(place)
    assert len(digests) == 1
    assert len(places) == 2


# where the version of pyproject.toml is repeated, and how
VERSIONS = {
    "CITATION.cff": r"^version: (\S+)$",
    "deployments/compose/Dockerfile": r"marginweave:(\d\S*)",
    "deployments/compose/compose.yaml": r"marginweave:(\d\S*)",
    "docs/operations.md": r"marginweave:(\d\S*)",
}


@pytest.mark.parametrize("file", VERSIONS)
def test_the_version_is_the_same_everywhere(file: str) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    found = re.findall(
        VERSIONS[file], (REPOSITORY / file).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(found) == {version}


def test_constraints_are_versions_and_nothing_else() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line) for line in lines)


def imported_tests(parts: Iterable[ast.AST]) -> list[str]:
    """Return what nodes import from unit tests, laws or system tests, or relatively; programs in strings count as well."""
    found: list[str] = []
    for node in parts:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += re.findall(r"^\s*(?:from|import) (tests\.\S+)", node.value, re.MULTILINE)
    return [name for name in found if re.match(r"tests\.(unit|laws|system)\b|\.", name)]


def test_what_tests_share_is_support() -> None:
    """No file of tests or benchmarks imports from a test module; programs in strings are read as well."""
    files = sorted(
        path for folder in ("tests", "benchmarks") for path in (REPOSITORY / folder).rglob("*.py")
    )
    faults = {relative(path): imported_tests(nodes(path)) for path in files}
    assert len(files) > 200
    assert {path: names for path, names in faults.items() if names} == {}


@pytest.mark.parametrize("folder", ["unit", "laws", "system"])
@pytest.mark.parametrize(
    "line",
    [
        "from tests.{}.test_one import helper",
        "from tests.{}.conftest import helper as other",
        "import tests.{}.test_one",
        "from tests import {}",
        "def test_it():\n    from tests.{} import helper",
        "from .test_{} import helper",
        "PROGRAM = 'import sys\\nfrom tests.{}.test_one import helper'",
    ],
)
def test_an_import_from_a_test_module_is_found(line: str, folder: str) -> None:
    assert len(imported_tests(ast.walk(ast.parse(line.format(folder))))) == 1
    allowed = ast.parse("from tests.support.places import REPOSITORY\nfrom benchmarks import adult")
    assert imported_tests(ast.walk(allowed)) == []


BENCHMARKS = REPOSITORY / "benchmarks"
MAINS = [p.stem for p in BENCHMARKS.glob("[a-z]*.py")] + [
    f"{p.parent.name}.{p.stem}" for p in BENCHMARKS.glob("*/__main__.py")
]


@pytest.mark.parametrize("module", sorted(MAINS))
def test_benchmarks_follow_the_code(module: str) -> None:
    """They are not run here, but they can be: everything that they name exists."""
    assert callable(import_module(f"benchmarks.{module}").main)


def test_tests_that_commands_name_are_there() -> None:
    """Of `make kernels` and `make test-versions`, which no other test runs."""
    kernels = re.findall(r"tests/\S+\.py", (REPOSITORY / "Makefile").read_text(encoding="utf-8"))
    assert len(kernels) >= 5
    assert [path for path in (*kernels, *SMOKE) if not (REPOSITORY / path).exists()] == []
