"""The contracts of released files: published as they are, complete, and no older ones are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from marginweave.base.errors import InputError
from marginweave.base.formats import LAST_READER
from marginweave.released.evaluation import Evaluation
from marginweave.released.manifest import Manifest
from marginweave.released.statement import PrivacyStatement
from tests.support.contracts import CONTRACTS, PLACE, contract_text
from tests.support.published import FULL, published


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_published_schema_is_that_of_the_model(name: str) -> None:
    """`python -m tests.support.contracts` writes it."""
    assert (PLACE / f"{name}.schema.json").read_text(encoding="utf-8") == contract_text(name)


def _properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", {}).items()


@pytest.mark.parametrize(
    "name", ["privacy", "privacy-of-rejected", "account", "evaluation", "internal-evaluation"]
)
def test_every_field_is_described(name: str) -> None:
    """A description each, and a contract's name that ends in its version."""
    schema = json.loads(contract_text(name))
    assert schema["$id"] == schema["properties"]["$schema"]["const"]
    assert schema["$id"].startswith(f"urn:marginweave:{name}:")
    assert schema["additionalProperties"] is False
    own = [
        (field, about)
        for field, about in _properties(schema)
        if field not in {"version", "digest", "run", "release"}
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


@pytest.mark.parametrize("number", [1, 2])
def test_files_of_older_versions_are_refused_by_their_number(number: int) -> None:
    """In one sentence that says who reads them; a file without a number is none of ours."""
    said = rf" was made by an older version; {re.escape(LAST_READER)} is the last that reads it$"
    statement = json.loads(published()[0].statement.to_json())
    with pytest.raises(InputError, match="^the release of run people-1" + said):
        PrivacyStatement.from_json(json.dumps(statement | {"format": number}))
    with pytest.raises(InputError, match="^run r" + said):
        Manifest.from_json(json.dumps({"run": "r", "version": number}))
    for kind, content in ((PrivacyStatement, statement), (Manifest, {"version": 3})):
        with pytest.raises(ValidationError):
            kind.from_json(json.dumps(content | {"another": 1}))
