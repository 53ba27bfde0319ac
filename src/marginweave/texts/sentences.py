"""A sentence is the key of a text and the facts in it; the texts of a page are a file `PAGE.toml` beside this one.

Who translates a page translates its file: `key = "text"`, where {fact} and {fact:.1f} are filled by `str.format`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib.resources import files
from typing import Literal, TypeAlias

Page = Literal[
    "check", "plan", "verdict", "report", "counts", "overview", "independence", "regression"
]
"""The pages that have a file of texts."""


class Share(float):
    """A share of cells or rows, written in percent; never rounded to nothing or to all."""

    def __format__(self, spec: str) -> str:
        """Return 12.5 %, "less than 0.1 %" or "more than 99.9 %"; a spec such as .0f is that of the percentage."""
        if not spec and 0 < self < 0.0005:
            return "less than 0.1 %"
        if not spec and 0.9995 < self < 1:
            return "more than 99.9 %"
        return f"{100 * float(self):{spec or '.1f'}} %"


@dataclass(frozen=True)
class Sentence:
    """A sentence of a page: `key` names its text, `facts` fill it. A fact may be a sentence itself."""

    page: Page
    key: str
    facts: Mapping[str, Fact]

    def __str__(self) -> str:
        """Return the text with its facts."""
        return texts_of(self.page)[self.key].format(**self.facts)

    def __format__(self, spec: str) -> str:
        """Return the text, as a fact of another sentence."""
        return format(str(self), spec)


def sentence(page: Page, key: str, **facts: Fact) -> Sentence:
    """Return the sentence of a page. Facts that its text does not have are left out of the words."""
    return Sentence(page, key, facts)


Fact: TypeAlias = str | int | float | Share | datetime | Sentence

verdict_sentence = partial(sentence, "verdict")
report_sentence = partial(sentence, "report")
counts_sentence = partial(sentence, "counts")
overview_sentence = partial(sentence, "overview")
independence_sentence = partial(sentence, "independence")
regression_sentence = partial(sentence, "regression")


@cache
def texts_of(page: Page) -> Mapping[str, str]:
    """Return the texts of a page by their keys; sections of the file are the first part of a key, as in `unread.empty`."""
    content = tomllib.loads(files("marginweave.texts").joinpath(f"{page}.toml").read_text("utf-8"))
    return dict(_flat(content, ""))


def _flat(content: Mapping[str, object], section: str) -> list[tuple[str, str]]:
    """Return keys with the sections that they are in, and their texts without line breaks."""
    texts: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{section}{key}"
        if isinstance(value, dict):
            texts += _flat(value, f"{name}.")
        else:
            texts.append((name, " ".join(str(value).split("\n")).strip()))
    return texts
