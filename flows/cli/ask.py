"""The questions that a draft leaves to its steward, asked one by one in a terminal.

What was drafted is shown with each question and is the default. An answer is checked as the configuration would be, and asked
for again where it breaks a rule; nothing is made up in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.prompt import Prompt
from rich.text import Text

from marginweave.base.errors import InputError
from marginweave.configuration.code_lists import with_code_lists
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts.draft import flow

from .console import out

_ASKED = {
    "values": "Every value that can be, in order",
    "bounds": "The lowest and the highest that can be",
    "bins": "How many bins, or their edges",
    "decimals": "Decimals",
    "missing": 'Texts that mean "no value", if there are any',
    "codes": "Numbers that stand for something else, such as {999: refused}; {} for none",
    "within": "A range in which the bounds surely lie",
    "max_records": "The most rows of one person that are counted",
    "rows": "About how many",
    "public": "Where that is published (a questionnaire, a code list, a law), or later",
}
_LISTS = frozenset({"values", "bounds", "missing", "within"})
_CHOICES = """
Then each column. The answers are:
  yes      the line is right, and what it says is published.
  change   correct what it says.
  type     take it for another type
  private  buy its values or bounds from the budget
  drop     do not release it.
  later    leave the question in the file"""
_KINDS = {"category": "values", "boolean": "", "number": "bounds bins decimals", "date": "bounds bins"}
_PRIVATE: Mapping[str, Any] = {"category": {"domain": "private"}, "number": {"bounds": "private", "bins": 10}}
_PRIVACY = {"epsilon": 1.0, "delta": 1e-6, "unit": "row"}
_OTHER = {"type": "category", "values": ["x"]}
_LATER = "later"
_BASE = {"dataset": "draft", "source": "draft.csv", "privacy": _PRIVACY, "columns": {"x": _OTHER}}


class _Question(Prompt):
    illegal_choice_message = "That is none of the choices."


def answered(text: str, below: Path) -> Iterator[str]:
    """The draft `text` after each answer; the last one waits for what is left for later. Files of an answer lie below `below`.

    Raises:
        KeyboardInterrupt: the steward stopped.
    """
    out.print("Enter takes the answer in parentheses. Ctrl-C stops; what was answered until then is written.\n")
    head, columns, body = text.partition("columns:\n")
    drafted, lines, public = parse_yaml(text), body.splitlines(keepends=True), ""
    subject, head = _with_unit(drafted, head)
    out.print(_CHOICES)
    named = iter(drafted["columns"].items())
    for place, line in enumerate(lines):
        yield "".join([head, columns, *lines])
        name, said = ("", {"public": ""}) if line.lstrip().startswith("#") else next(named)
        if name == subject:
            lines[place] = f"  {flow('', name)}: {{type: identifier}}\n"
        elif "public" not in said:
            out.print(f"\n{line.replace(', confirm: true}', '}')}", end="")
            found = _column(name, {key: value for key, value in said.items() if key != "confirm"}, public, below)
            public = (found or {}).get("public", public)
            lines[place] = "" if found is None else f"  {flow('', name)}: {flow('', found)}\n"
    yield "".join([head if "confirm: true" in "".join(lines) else head[head.index("dataset:") :], columns, *lines])


def _with_unit(drafted: Mapping[str, Any], head: str) -> tuple[str | None, str]:
    """The column that tells the people apart, if one does, and the lines above the columns with what the steward says."""
    out.print("Whose privacy is it? Answer row where a row is a person, else the column that tells whose row it is.")
    known = drafted["privacy"]["unit"] if isinstance(drafted["privacy"]["unit"], dict) else {"column": "row"}
    unit: str | dict[str, Any] = "row"
    subject = _ask("Unit", known["column"], ["row", *drafted["columns"]], shown=len(drafted["columns"]) < 13)
    if subject != "row":
        asked = {"column": subject, "max_records": known.get("max_records") if subject == known["column"] else None}
        unit = _facts(asked, ["max_records"], lambda facts: {"privacy": {**_PRIVACY, "unit": facts}})
    rows = ""
    if _ask("Is the number of rows published?", "no", ["yes", "no"]) == "yes":
        rows = f"rows: {_facts({}, ['rows'], lambda facts: facts)['rows']}\n"
    for before, after in (("  confirm: .*\n", ""), ("  unit: .*", f"  unit: {flow('', unit)}"), ("rows: .*\n", rows)):
        head = re.sub(f"^{before}", after.replace("\\", r"\\"), head, count=1, flags=re.MULTILINE)
    return (None if subject == "row" else subject), head


def _column(name: str, drafted: dict[str, Any], public: str, below: Path) -> dict[str, Any] | None:
    """The column as the steward wants it, None where it is not released; `public` is where others are published."""
    kind, bought = drafted["type"], drafted.get("domain") == "private"
    fixed, open_ = kind == "identifier", not bought
    can = {"change": open_ and not fixed, "private": open_ and kind in _PRIVATE, _LATER: open_}
    choices = [word for word in ("yes", "change", "type", "private", "drop", _LATER) if can.get(word, True)]
    asked = "Release it, its values bought?" if bought else "Is it public as it is written?"
    answer = _ask("Leave it out of the release?" if fixed else asked, "yes", choices)
    if answer == "drop":
        return None
    if answer == _LATER:
        return {**drafted, "confirm": True}
    words: dict[str, Any] = {key: drafted[key] for key in ("label", "description") if key in drafted}
    facts, keys = drafted, list[str]()
    if answer == "private":
        facts, keys = {"type": kind, **_PRIVATE[kind], **words}, ["within"] * (kind == "number")
    elif answer != "yes":
        if answer == "type":
            kind = _ask("Type", next(each for each in _KINDS if bought or each != kind), list(_KINDS))
            facts = {"type": kind, **dict.fromkeys(_KINDS[kind].split()), **words}
        keys = [*(key for key in facts if key not in {"type", *words}), "missing"]
    if kind != "identifier" and "private" not in {facts.get("domain"), str(facts.get("bounds"))}:
        facts, keys = {**facts, "public": public or _LATER}, [*dict.fromkeys(keys), "public"]
    found = _facts(facts, keys, lambda facts: with_code_lists({"columns": {name: facts, f"not {name}": _OTHER}}, below))
    if found.get("public") == _LATER:
        found = {**{key: value for key, value in found.items() if key != "public"}, "confirm": True}
    return found


def _facts(
    facts: Mapping[str, Any], keys: Iterable[str], written: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """The facts with answers for the keys, asked until a configuration may say what is `written` of them."""
    found = dict(facts)
    while True:
        try:
            for key in keys:
                drafted = found.get(key)
                shown = "" if drafted in (None, "") else flow(key, drafted)
                found[key] = parsed(key, _ask(_ASKED.get(key, key), shown))
            kept = {key: value for key, value in found.items() if value not in ([], {}, None)}
            parse_configuration({**_BASE, **written(kept)})
        except InputError as error:
            out.print(str(error))
        else:
            return kept


def parsed(key: str, answer: str) -> Any:
    """What the answer would be below `key` of a configuration; a list needs no brackets, a text no quotes."""
    if answer.startswith("%") or (key == "public" and not answer.startswith('"')):
        return answer
    if (key in _LISTS or "," in answer) and not answer.startswith(("[", "{", '"')):
        answer = f"[{answer}]"
    return parse_yaml(f"{key}: {answer}", "the answer")[key]


def _ask(question: str, default: str, choices: Sequence[str] = (), *, shown: bool = True) -> str:
    form = _Question(Text(question), console=out, choices=list(choices) or None, show_choices=shown)
    try:
        return str(form(default=default or ...))
    except EOFError:
        raise KeyboardInterrupt from None
