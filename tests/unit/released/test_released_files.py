"""The contracts of released files: published as they are, complete, and met by what earlier versions wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from marginweave.released.evaluation import Evaluation
from marginweave.released.manifest import Manifest
from marginweave.released.statement import PrivacyStatement
from tests.support.contracts import CONTRACTS, PLACE, contract_text
from tests.support.homes import HOMES, unpack_home
from tests.support.published import FULL, published


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_published_schema_is_that_of_the_model(name: str) -> None:
    """`python -m tests.support.contracts` writes it."""
    assert (PLACE / f"{name}.schema.json").read_text(encoding="utf-8") == contract_text(name)


def _properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", {}).items()


@pytest.mark.parametrize("name", ["privacy", "privacy-of-rejected", "account", "evaluation", "internal-evaluation"])
def test_every_field_is_described(name: str) -> None:
    """A description each, and a contract's name that ends in its version."""
    schema = json.loads(contract_text(name))
    assert schema["$id"] == schema["properties"]["$schema"]["const"]
    assert schema["$id"].startswith(f"urn:marginweave:{name}:")
    assert schema["additionalProperties"] is False
    own = [
        (field, about) for field, about in _properties(schema) if field not in {"version", "digest", "run", "release"}
    ]
    assert [field for field, about in own if not about.get("description")] == []


def test_files_name_their_contract_first_and_are_read_back() -> None:
    statement = published()[0].statement
    for file, kind in ((statement, PrivacyStatement), (FULL, Evaluation)):
        content = json.loads(file.to_json())
        assert next(iter(content.items())) == ("$schema", file.schema_)
        assert kind.from_json(file.to_json()).to_json() == file.to_json()
        with pytest.raises(ValidationError):
            kind.from_json(json.dumps(content | {"another": 1}))


def test_a_comparison_that_was_not_bought_and_one_of_other_records_are_two_things() -> None:
    without = Evaluation(**{name: value for name, value in FULL if name not in {"paid", "schema_"}})
    assert "paid" not in json.loads(without.to_json())
    other = json.loads(without.model_copy(update={"paid": None}).to_json())
    assert other["paid"] is None
    assert "paid" in Evaluation.from_json(json.dumps(other)).model_fields_set


@pytest.mark.parametrize("home", HOMES)
def test_files_of_0_1_0_are_read(home: str, tmp_path: Path) -> None:
    """Nothing of them is lost but the format, which becomes ours, and the account's total, which is no bound."""
    place = unpack_home(home, tmp_path)
    for run in (place / "runs").iterdir():
        for file in run.glob("[rp][er][lo]*/privacy.json"):
            old, new = json.loads(file.read_text()), json.loads(PrivacyStatement.from_json(file.read_bytes()).to_json())
            del old["account"]
            assert old == {name: value for name, value in new.items() if name in old} | {"format": 1}
            assert new.keys() - old.keys() == {"$schema", "programs"}
        for file in run.glob("[rp][er][lo]*/evaluation.json"):
            new = json.loads(Evaluation.from_json(file.read_bytes()).to_json())
            assert json.loads(file.read_text()) == {name: value for name, value in new.items() if name != "$schema"}
        Manifest.from_json((run / "manifest.json").read_bytes())
