"""How an error of a value is written is told by its kind, and its words are made from that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from marginweave.base.errors import MustError, UnconfirmedError
from marginweave.configuration import parse
from marginweave.configuration.question import Question

SOURCE = Path(parse.__file__).parent


def message(error: ValueError) -> str:
    """The sentence for an error of this kind in the key `where` of a question, which is 7."""
    entry = {
        "type": "value_error",
        "loc": ("where",),
        "input": 7,
        "msg": f"Value error, {error}",
        "ctx": {"error": error},
    }
    return parse.broken_rules([entry], Question)[0]


def test_a_value_is_shown_with_what_it_must_be_and_with_nothing_else() -> None:
    assert message(MustError("be a condition")) == "where (7) must be a condition"
    assert message(ValueError("must be a condition")) == "where must be a condition"
    assert message(UnconfirmedError("was drafted")) == "where was drafted"


def test_no_error_of_another_kind_says_what_a_value_must_be() -> None:
    pattern = re.compile(r"""ValueError\(\s*f?["']must """)
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    assert [path.name for path in files if pattern.search(path.read_text("utf-8"))] == []


def test_pydantic_hands_on_the_error_of_a_rule() -> None:
    with pytest.raises(ValidationError) as refusal:
        Question.model_validate({"share": True})
    errors = [dict(error) for error in refusal.value.errors(include_url=False)]
    (sentence,) = parse.broken_rules(errors, Question)
    assert sentence.startswith("the question must have where with share")
