"""The glossary of the site: rows of its tables become terms, which the search finds by their names."""

from __future__ import annotations

import re

_TABLE = re.compile(r"^\| word \|.*\n\| --- .*\n((?:\|.*\n?)+)", re.MULTILINE)
_ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+) \|$", re.MULTILINE)


def with_terms(page: str) -> str:
    """Return the page with a `glossary` directive in the place of each table whose first heading is `word`.

    The first cell of a row has one word or several, in bold and with commas between them. Each is a term.
    """
    return _TABLE.sub(_glossary, page)


def _glossary(table: re.Match[str]) -> str:
    entries = [row[1].replace(", ", "\n") + f"\n  {row[2]}\n" for row in _ROW.finditer(table[1])]
    return "```{glossary}\n" + "\n".join(entries) + "```\n"
