"""The JSON Schemas of released files, made from the models: `python -m tests.support.contracts` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from marginweave.released.account import AccountFile
from marginweave.released.evaluation import Evaluation, InternalEvaluation
from marginweave.released.manifest import Manifest
from marginweave.released.statement import PrivacyStatement, RejectedStatement

PLACE = Path(__file__).parents[2] / "schemas" / "published"
CONTRACTS: dict[str, type[BaseModel]] = {
    "privacy": PrivacyStatement,
    "privacy-of-rejected": RejectedStatement,
    "account": AccountFile,
    "evaluation": Evaluation,
    "internal-evaluation": InternalEvaluation,
    "manifest": Manifest,
}


def json_schema(file: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a released file, its identifier as `$id`."""
    schema = file.model_json_schema()
    name = schema["properties"]["$schema"]["const"]
    required = ["$schema", *schema.pop("required", [])]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        "required": required,
        **schema,
    }


def contract_text(name: str) -> str:
    """The JSON Schema of a file, as it is published."""
    return json.dumps(json_schema(CONTRACTS[name]), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in CONTRACTS:
        (PLACE / f"{name}.schema.json").write_text(contract_text(name), encoding="utf-8")
