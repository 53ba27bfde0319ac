"""docs/privacy.md names code and tests that exist, in every step, and leaves no draw and no mechanism out."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from marginweave.measurements.kinds import KINDS
from tests.support.places import REPOSITORY
from tests.support.syntax import functions_of

PAGE = (REPOSITORY / "docs" / "privacy.md").read_text(encoding="utf-8")
STEPS = {
    int(number): text
    for number, text in re.findall(
        r"^\*\*(\d+)\. (.*?)(?=^\*\*\d+\. |^## |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
}
CODE = re.compile(r"`((?:tasks|schemas|flows|src)/[\w/]+\.py):([\w.]+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Where a theorem is used, its docstring says whose it is.
THEOREMS = {
    "src/marginweave/mechanisms/gaussian.py": ["add_noise", "select_percentile"],
    "src/marginweave/accounting/accountants.py": ["gdp_delta", "zcdp_delta"],
    "src/marginweave/mechanisms/exponential.py": ["selection_mu"],
    "src/marginweave/accounting/composition.py": ["composed_epsilon", "account_epsilon"],
    "src/marginweave/mechanisms/laplace.py": ["laplace_scale", "add_drawn_noise"],
    "src/marginweave/mechanisms/percentile.py": ["rank_error"],
    "src/marginweave/measurements/thresholds.py": ["private_threshold"],
    "src/marginweave/accounting/amplification.py": ["functional_parameters"],
    "src/marginweave/measurements/marginal_split.py": ["marginal_draws"],
    "src/marginweave/measurements/levels.py": ["draw_level", "draw_unvisited"],
    "src/marginweave/measurements/private_values.py": ["discover_labels"],
    "src/marginweave/measurements/marginals.py": ["measure_marginals"],
    "src/marginweave/measurements/pair_scores.py": ["measure_indif"],
}


@cache
def definitions(file: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Functions and classes of a file by name, methods as Class.method."""
    found: dict[str, ast.FunctionDef | ast.ClassDef] = {}
    for node in ast.parse((REPOSITORY / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{part.name}": part
                for part in node.body
                if isinstance(part, ast.FunctionDef)
            }
    return found


@pytest.mark.parametrize(("file", "name"), sorted(set(CODE.findall(PAGE))), ids=lambda part: part)
def test_named_code_exists(file: str, name: str) -> None:
    assert name in definitions(file), f"{file} has no {name}"


@pytest.mark.parametrize(("file", "name"), sorted(set(TEST.findall(PAGE))), ids=lambda part: part)
def test_a_named_test_exists(file: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in functions_of(REPOSITORY / file), f"{file} has no {name}"


def test_every_step_has_code_and_tests() -> None:
    """Numbered from 1 without a gap; references to steps are to steps that there are."""
    assert list(STEPS) == list(range(1, len(STEPS) + 1))
    for number, text in STEPS.items():
        reason, code, tests = (
            [*re.split(r"^- (?:Code|Tests): ", text, flags=re.MULTILINE), "", ""]
        )[:3]
        assert len(reason.split()) > 15, number
        assert CODE.search(code), number
        assert TEST.search(tests), number
        assert not CODE.search(tests + reason), number
        assert not TEST.search(code + reason), number
    for first, last in re.findall(r"\((\d+) to (\d+)\)", PAGE):
        assert 1 <= int(first) <= int(last) <= len(STEPS)


def test_no_mechanism_is_left_out() -> None:
    """Every public function of the module in which noise meets counts, but those that prepare tables ahead of a draw."""
    found = definitions("src/marginweave/mechanisms/gaussian.py")
    public = {name for name in found if name[0].islower() and not name.startswith("prepare_")}
    named = {
        name
        for file, name in CODE.findall(PAGE)
        if file == "src/marginweave/mechanisms/gaussian.py"
    }
    assert public == {name for name in named if name[0].islower()}


def test_no_draw_is_left_out() -> None:
    """Every kind of measurement is spoken of, in the file that makes its noise."""
    named = {file for file, _ in CODE.findall(PAGE)}
    drawing = {
        Path(inspect.getfile(kind.draw)).resolve().relative_to(REPOSITORY).as_posix()
        for kind in KINDS
    }
    assert len(drawing) > 5
    assert drawing <= named


@pytest.mark.parametrize(
    "subject",
    ["Trusted curator", "Public configuration", "unit is the right one", "Secret randomness"],
)
def test_assumptions_are_listed(subject: str) -> None:
    assumptions = PAGE.partition("\n## Assumptions\n")[2].partition("\n## ")[0]
    assert re.search(rf"^- \*\*[^*]*{subject}", assumptions, re.MULTILINE)
    assert {"Data-dependent stops", "Timing", "Small print of numbers"} <= set(
        re.findall(r"\*\*([^*.]+?)\.?\*\*", assumptions)
    )


@pytest.mark.parametrize(
    ("file", "name"),
    [(f, n) for f, names in THEOREMS.items() for n in names],
    ids=lambda part: part,
)
def test_a_mechanism_says_whose_theorem_it_is(file: str, name: str) -> None:
    """Author and year; and its privacy cost."""
    text = ast.get_docstring(definitions(file)[name]) or ""
    assert re.search(r"\b(19|20)\d\d\b", text), f"{name} names no source"
    assert "DP:" in text, name
