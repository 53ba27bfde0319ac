"""The texts of pages: each key that the product names is there, and each text is filled by the facts that are given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.texts.sentences import Page, Share, sentence, texts_of

ROOT = Path(__file__).parents[3]
FILES = [
    path.read_text("utf-8")
    for folder in ("src", "flows", "tasks")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
SOURCES = "\n".join(FILES)
TEXTS = [(page, key) for page in get_args(Page) for key in texts_of(page)]


def named_keys(page: Page) -> set[str]:
    """Return what is named as a key of the page: in a sentence, or as SECTION.KEY in a file that makes its sentences."""
    keys = {*re.findall(rf'{page}_sentence\(\s*["\']([\w.-]+)["\']', SOURCES)}
    sections = {key.partition(".")[0] for key in texts_of(page)}
    for content in FILES:
        if f"{page}_sentence(" in content:
            texts = re.findall(r'"([\w-]+\.[\w.-]+)"', content)
            keys |= {text for text in texts if text.partition(".")[0] in sections}
    return keys


NAMED = [(page, key) for page in get_args(Page) for key in sorted(named_keys(page))]


@pytest.mark.parametrize(("page", "key"), TEXTS)
def test_a_text_is_named_by_the_product(page: Page, key: str) -> None:
    """By its whole key, or by its section where the key is made of two parts; texts that nobody shows go."""
    section = key.rpartition(".")[0]
    names = (
        f'"{key}"',
        f"'{key}'",
        f'"{key.removesuffix("-advice")}"',
        f'"{section}.{{',
        f"'{section}.{{",
    )
    assert any(name in SOURCES for name in names)


@pytest.mark.parametrize(("page", "key"), NAMED)
def test_a_key_that_the_product_names_has_a_text(page: Page, key: str) -> None:
    assert key in texts_of(page)


@given(st.floats(0, 1))
def test_a_share_is_never_rounded_to_nothing_or_to_all(share: float) -> None:
    text = f"{Share(share)}"
    assert (text == "0.0 %") == (share == 0)
    assert (text == "100.0 %") == (share == 1)


def test_a_sentence_is_a_fact_of_another() -> None:
    then = sentence("check", "then.null")
    text = str(sentence("check", "unread.nothing", value="a number", then=then))
    assert text == "No cell can be read as a number; they become missing."
