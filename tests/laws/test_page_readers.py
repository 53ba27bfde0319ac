"""A page that is published speaks to its reader: what the steward alone can do is at the end of a run and in internal pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from importlib.resources import files

from marginweave.publish.pages import release_pages, render_report
from marginweave.released.verdict import VerdictSummary
from marginweave.texts.sentences import texts_of
from tests.support.keys import all_keys, named_keys
from tests.support.published import FULL, internal_evaluation, published, shown

TEMPLATES = ("report.html.j2", "quality.html.j2", "explore.html.j2", "comparison.html.j2")
ADVICE = ("Name the pairs that must be right.", "Say about how many rows there are.")


def is_for_the_steward(key: str) -> bool:
    """Return whether a text of the verdict is advice, by its section or its last word."""
    section, _, name = key.partition(".")
    return any(part == "advice" or part.endswith("-advice") for part in (section, name))


def texts_for_readers() -> Iterator[tuple[str, str]]:
    """Yield the name of each text of a published page and its words."""
    for key, text in texts_of("verdict").items():
        if not is_for_the_steward(key):
            yield f"verdict.{key}", text
    for key, text in texts_of("report").items():
        yield f"report.{key}", text
    place = files("marginweave.publish")
    for key, text in json.loads(place.joinpath("explore.texts.json").read_text("utf-8")).items():
        yield f"explorer.{key}", json.dumps(text)
    for name in TEMPLATES:
        markup = (
            place.joinpath(name).read_text("utf-8").replace("<code>", "`").replace("</code>", "`")
        )
        yield (
            name,
            re.sub(
                r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<style>.*?</style>|<[^>]*>",
                " ",
                markup,
                flags=re.DOTALL,
            ),
        )


def test_no_text_of_a_published_page_says_what_to_declare() -> None:
    """It names no key of a configuration, and no sentence asks for what needs one."""
    keys = all_keys()
    to_do: dict[str, list[str]] = {}
    for name, text in texts_for_readers():
        named = [key for key in named_keys(text, keys) if is_code(key, text)]
        asked = re.findall(
            r"(?:^|[.:;,] )((?:[Dd]eclare|[Ww]rite|[Nn]ame|[Ss]et|[Ll]eave) \w+)", text
        )
        if named or asked:
            to_do[name] = [*named, *asked]
    assert to_do == {}


def is_code(key: str, text: str) -> bool:
    """Return whether a text has a key as a key, and not as a word before a colon."""
    return "_" in key or "." in key or f"`{key}`" in text or bool(re.search(key + r": \{*\[", text))


def test_a_published_page_has_no_advice_and_the_internal_one_has_all() -> None:
    release, codes = published()
    judged = VerdictSummary(publication="with care", says=("Good for: pairs.",), advice=ADVICE)
    statement = release.statement.model_copy(update={"verdict": judged})
    advised = replace(release, statement=statement)
    made = shown(advised, codes)
    for page in release_pages(advised, made, FULL).values():
        assert not any(words in unescape(page.decode()) for words in ADVICE)
    internal = unescape(render_report(advised, made, FULL, internal_evaluation()))
    assert all(words in internal for words in ADVICE)
