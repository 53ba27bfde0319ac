"""docs/configuration.md stays true: its examples load, it names every key and no other, and its defaults hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from marginweave.configuration.columns import (
    BooleanColumn,
    Category,
    ConstantColumn,
    DateColumn,
    IdentifierColumn,
    MeasuredColumn,
    NumberColumn,
    SetColumn,
)
from marginweave.configuration.columns.base import ColumnBase
from marginweave.configuration.columns.binned import BinSteps, Histogram
from marginweave.configuration.columns.scales import LogBins
from marginweave.configuration.earlier import KnownRelease
from marginweave.configuration.evaluation import (
    CsvSettings,
    EvaluationSettings,
    ExpectationSettings,
    PublishSettings,
)
from marginweave.configuration.execution import EngineSettings, SourceFile
from marginweave.configuration.k_tuples import (
    AdaptiveThresholds,
    AggregateSettings,
    FixedThresholds,
)
from marginweave.configuration.known import KnownTable, TotalsFile
from marginweave.configuration.linked import Derivation, LinkedTable
from marginweave.configuration.load import load_configuration, parse_configuration
from marginweave.configuration.marginals import (
    AdaptiveCliques,
    AllCliques,
    MarginalSettings,
    TargetTable,
)
from marginweave.configuration.number_texts import NumberText
from marginweave.configuration.preparation import (
    GaussianImputation,
    ResizeSettings,
    UniformImputation,
    WeightedImputation,
)
from marginweave.configuration.privacy import PrivacySettings, SubjectUnit
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.computed import DeterminedColumn, DifferenceColumn, SumColumn
from marginweave.configuration.rules.conditions import Condition
from marginweave.configuration.rules.structure import AppliesRule, OrderedColumns, Structure
from marginweave.configuration.synthesis import GumSynthesis, MixtureSynthesis, SynthesisSettings
from marginweave.configuration.yaml_source import parse_yaml
from tests.support.configurations import raw

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ROWS = re.findall(r"^\| `([\w.]+)` \| .* \| (.*?) ?\|$", PAGE, re.MULTILINE)
PLACES: list[tuple[str, type[BaseModel]]] = [
    ("", Configuration),
    ("source.", SourceFile),
    ("privacy.", PrivacySettings),
    ("privacy.unit.", SubjectUnit),
    ("columns.NAME.", MeasuredColumn),
    ("category.", Category),
    ("boolean.", BooleanColumn),
    ("number.", NumberColumn),
    ("number.bins.", BinSteps),
    ("number.bins.", LogBins),
    ("number.text.", NumberText),
    ("number.draw.", Histogram),
    ("date.", DateColumn),
    ("set.", SetColumn),
    ("constant.", ConstantColumn),
    ("identifier.", IdentifierColumn),
    ("impute.", UniformImputation),
    ("impute.", GaussianImputation),
    ("impute.", WeightedImputation),
    ("resize.", ResizeSettings),
    ("structure.", Structure),
    ("structure.determined.", DeterminedColumn),
    ("structure.difference.", DifferenceColumn),
    ("structure.sum.", SumColumn),
    ("structure.applies.", AppliesRule),
    ("structure.ordered.", OrderedColumns),
    ("condition.", Condition),
    ("tables.NAME.", LinkedTable),
    ("tables.NAME.derive.", Derivation),
    ("known.", KnownTable),
    ("known.table.", TotalsFile),
    ("known.", KnownRelease),
    ("aggregate.", AggregateSettings),
    ("aggregate.thresholds.", FixedThresholds),
    ("aggregate.thresholds.", AdaptiveThresholds),
    ("marginals.", MarginalSettings),
    ("marginals.cliques.", AllCliques),
    ("marginals.cliques.target.", TargetTable),
    ("adaptive.", AdaptiveCliques),
    ("synthesize.", SynthesisSettings),
    ("gum.", GumSynthesis),
    ("mixture.", MixtureSynthesis),
    ("expectations.", ExpectationSettings),
    ("evaluate.", EvaluationSettings),
    ("publish.", PublishSettings),
    ("publish.csv.", CsvSettings),
    ("engine.", EngineSettings),
]


INDEX = re.compile(r"(?<=<!-- index: begin -->\n\n).*?(?=<!-- index: end -->)", re.DOTALL)


def anchor(heading: str) -> str:
    """The anchor that a site gives to a heading."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def index_of(page: str) -> str:
    """The index that belongs at the top of the page: each section with a table of keys, and these, linked to it."""
    lines, keys = ["| section | keys |", "| --- | --- |"], r"^\| `([\w.]+)` \| .* \| .*? ?\|$"
    for heading, text in re.findall(
        r"^#+ ([^\n]*)\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL
    ):
        links = [f"[`{key}`](#{anchor(heading)})" for key in re.findall(keys, text, re.MULTILINE)]
        lines += [f"| [{heading}](#{anchor(heading)}) | {' '.join(links)} |"] if links else []
    return "\n".join(lines) + "\n\n"


def fields(prefix: str, model: type[BaseModel]) -> dict[str, Any]:
    """Keys of a model by their path, with their default; what all kinds of column share stands in one place."""
    shared = (
        MeasuredColumn
        if model not in {MeasuredColumn, ConstantColumn, IdentifierColumn}
        else ColumnBase
    )
    common = (
        set()
        if model is MeasuredColumn or not issubclass(model, ColumnBase)
        else set(shared.model_fields)
    )
    own = {
        name for name in model.model_fields if name not in common or f"{prefix}{name}" in dict(ROWS)
    }
    return {
        f"{prefix}{model.model_fields[name].alias or name}": model.model_fields[name].default
        for name in own
    }


def test_it_names_every_key_and_no_other() -> None:
    known = {path for place in PLACES for path in fields(*place)}
    named = [path for path, _ in ROWS]
    assert sorted(named) == sorted(set(named))
    assert known - set(named) == set()
    assert set(named) - known == set()


@pytest.mark.parametrize(("path", "told"), ROWS, ids=[path for path, _ in ROWS])
def test_a_default_is_the_one_that_is_told(path: str, told: str) -> None:
    """A value in backquotes is the default itself, a dash is none; a required key has an empty cell."""
    found = [fields(*place) for place in PLACES]
    default = next(keys[path] for keys in found if path in keys)
    if not told:
        assert default is PydanticUndefined or isinstance(default, BaseModel)
    elif told == "-":
        assert default is None
    elif told.startswith("`"):
        value = parse_yaml(f"x: {told.strip('`')}")["x"] if told != "`;`" else ";"
        derived = {"number.outer", "number.draw", "date.draw", "resize.formula"}
        as_text = {"null": "null"}.get(told.strip("`"), value)
        assert (
            default in (value, as_text, tuple(value) if isinstance(value, list) else value)
            or path in derived
        )
        assert path not in derived or default is None


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[f"example {i + 1}" for i in range(len(EXAMPLES))]
)
def test_an_example_loads(example: str) -> None:
    """Each block, laid over a small configuration, is one; nothing in it is without effect."""
    block, base = parse_yaml(example), raw()
    plain = parse_configuration(base)
    found = parse_configuration({**base, **block})
    assert found != plain or "outside: null" in example
    assert set(found.columns) == set(block.get("columns", base["columns"]))


def test_every_section_that_is_named_is_there() -> None:
    headings = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)}
    linked = set(re.findall(r"\]\(#([a-z0-9-]+)\)", PAGE))
    assert linked <= headings
    assert len(EXAMPLES) >= 18


def test_the_index_links_each_key_to_its_section() -> None:
    """It is made of the tables below it: paste what the failure shows."""
    index = INDEX.search(PAGE)
    assert index is not None
    assert index.group() == index_of(INDEX.sub("", PAGE))
    assert all(f"[`{path}`](#" in index.group() for path, _ in ROWS)


def test_the_guide_shows_the_release_that_make_run_makes() -> None:
    """The name of its run follows from all settings, defaults included: what is shown was made with those of now."""
    example = load_configuration(ROOT / "deployments" / "examples" / "affairs.yaml")
    shown = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    assert set(re.findall(r"runs/(affairs-[0-9a-f]{8})", shown)) == {example.default_run}
