"""Prose as a reader meets it: the sentences of a page, of a program's messages and help, and how hard they are to read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.notebooks import NOTEBOOKS
from tests.support.places import REPOSITORY
from tests.support.syntax import nodes

PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *NOTEBOOKS])
STYLE = REPOSITORY / "docs" / "style.md"
PARTS = ("src/marginweave", "flows", "tasks", "schemas")
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|cf|vs|No|p|pp|et al)\.")


@cache
def banned_words() -> tuple[str, ...]:
    """The words on the left of the list in docs/style.md."""
    rows = re.findall(
        r"^\| (.+?) \| .+ \|$",
        STYLE.read_text(encoding="utf-8").partition("\n## Words\n")[2],
        re.MULTILINE,
    )
    return tuple(word for row in rows[2:] for word in row.split(", "))


@cache
def banned() -> re.Pattern[str]:
    """Any of these words, in any case and across lines; `stands` is not looked for in `withstands`."""
    forms = [re.escape(word).replace(r"\ ", r"\s+") for word in banned_words()]
    return re.compile(rf"(?<![\w-])(?:{'|'.join(forms)})(?![\w-])", re.IGNORECASE)


def plain(markdown: str) -> str:
    """The text of a page in paragraphs: no code, no link's address, no table's lines; each item and cell is a paragraph."""
    text = re.sub(r"<!--.*?-->", "", _BLOCK.sub("", markdown), flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^ *(?:[-*>]|\d+\.|#+) +", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\|[ :|-]+\|$", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?<!\\)\|", "\n\n", text)
    return re.sub(r"`[^`]*`", "`x`", text)


def sentences(text: str) -> Iterator[str]:
    """The sentences of plain text; a colon or semicolon does not end one for a reader, so only full stops do."""
    for paragraph in re.split(r"\n\s*\n", _ABBREVIATION.sub(r"\1", text)):
        for sentence in re.split(
            r"(?<=[.!?])[)\"'”*_]*\s+(?=[(\"'“*_]*[A-Z0-9`]|\([a-z]\)|\*\*[a-z])",
            " ".join(paragraph.split()),
        ):
            if re.search(r"[A-Za-z]{2}", sentence):
                yield sentence


def words(sentence: str) -> list[str]:
    """The words of a sentence; numbers, formulas and names of code are not words to read."""
    return re.findall(r"[A-Za-z][A-Za-z'’-]*", sentence.replace("`x`", "name"))


def syllables(word: str) -> int:
    """About as many as a dictionary says: groups of vowels, without a silent e."""
    bare = re.sub(r"(?<=[^aeiouyl])e[sd]?$|(?<=[^aeiouy][aeiou]l)e[sd]?$", "", word.lower())
    return max(1, len(re.findall(r"[aeiouy]+", bare)))


def grade(text: str) -> float:
    """The Flesch-Kincaid grade of plain text: years of school that a reader needs, by the lengths of sentences and words."""
    read = [words(sentence) for sentence in sentences(text)]
    # a cell of a table or a heading is no sentence
    read = [sentence for sentence in read if len(sentence) > 3]
    count = sum(map(len, read))
    return (
        0.39 * count / len(read) + 11.8 * sum(syllables(w) for s in read for w in s) / count - 15.59
    )


def _docstring_nodes(path: Path) -> Iterator[ast.Constant]:
    for node in nodes(path):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
        ):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


def _joined(node: ast.JoinedStr) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "`x`" for part in node.values
    )


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that a person can meet: strings of several words, docstrings of what has no underscore."""
    documented = {id(node) for node in _docstring_nodes(path)}
    formatted = [node for node in nodes(path) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in formatted for part in ast.walk(node)}
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            text = _joined(node)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside | documented
        ):
            text = node.value
        else:
            continue
        # comments of a draft, and lists
        text = re.sub(r"^#(?: +|$)| {2,}|\n(?= )", "\n\n", text, flags=re.MULTILINE)
        if len(words(text)) > 2 and not text.lstrip().upper().startswith(
            ("SELECT ", "INSERT ", "CREATE ", "UPDATE ")
        ):
            yield node.lineno, text


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a module and of what it has without an underscore; each argument and error is a paragraph."""
    owners = [
        node
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    for node in owners:
        text = ast.get_docstring(node)
        if text and not getattr(node, "name", "").startswith("_"):
            yield getattr(node, "lineno", 1), re.sub(r"\n +(?=\w+: )|\n(?=\w+:\n)", "\n\n", text)


def template_text(path: Path) -> str:
    """What a template shows, each element a paragraph."""
    text = re.sub(
        r"<script.*?</script>|<style.*?</style>|\{#.*?#\}",
        " ",
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    return re.sub(
        r"\{\{.*?\}\}",
        "`x`",
        re.sub(r"<[^>]*>|\{%.*?%\}", "\n\n", text, flags=re.DOTALL),
        flags=re.DOTALL,
    )


def modules() -> list[Path]:
    """Every module of the product."""
    return sorted(path for part in PARTS for path in (REPOSITORY / part).rglob("*.py"))
